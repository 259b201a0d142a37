"""The frozen KV: what is taken, joined and counted; bytes and the exact lead; refusals that change nothing."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs tenure[model]")
transformers = pytest.importorskip("transformers", reason="needs tenure[model]")

from tenure import ConfigError
from tenure.scbench.kv import KV, by_slot

SIZE = 4


def made(tokens: int = 18, layers: int = 2, start: int = 0, dtype: Any = torch.float32) -> KV:
    """Two heads of 3; each value says its layer, head and position."""
    keys = []
    for layer in range(layers):
        places = torch.arange(start, start + tokens, dtype=dtype)
        keys.append(
            torch.stack([100 * layer + 50 * head + places for head in range(2)])[..., None].expand(-1, -1, 3).contiguous()
        )
    return KV.of(keys, [-one for one in keys], SIZE, start)


def masks(*blocks: list[list[int]], sealed: int = 4) -> list[Any]:
    """For each layer, for each head, the blocks that stay."""
    return [torch.tensor([[block in head for block in range(sealed)] for head in heads]) for heads in blocks]


def test_what_it_takes() -> None:
    kv = made(dtype=torch.bfloat16)
    assert (kv.layers, kv.length, kv.slots(1), kv.sealed(1), kv.exact) == (2, 18, 18, 4, 18)
    assert kv.token_bytes == 2 * 2 * 2 * 3 * 2
    assert kv.full == kv.resident == 18 * kv.token_bytes


def test_taking_blocks_keeps_positions_and_the_open_block() -> None:
    kv = made()
    taken = kv.take(masks([[0, 2], [1, 3]], [[0, 1], [0, 1]]))
    assert taken.positions[0].tolist() == [[0, 1, 2, 3, 8, 9, 10, 11, 16, 17], [4, 5, 6, 7, 12, 13, 14, 15, 16, 17]]
    for layer in range(2):
        for head in range(2):
            wanted = 100.0 * layer + 50 * head + taken.positions[layer][head]
            assert torch.equal(taken.keys[layer][head, :, 0], wanted)
            assert torch.equal(taken.values[layer][head, :, 2], -wanted)
    assert (taken.length, taken.full, taken.resident) == (18, kv.full, 10 * kv.token_bytes)
    assert kv.resident == kv.full
    assert kv.take(masks([[0, 1, 2, 3]] * 2, [[0, 1, 2, 3]] * 2)) is kv


def test_layers_may_keep_different_amounts_and_none() -> None:
    taken = made().take(masks([[], []], [[3], [0]]))
    assert [taken.slots(layer) for layer in range(2)] == [2, 6]
    assert taken.positions[0].tolist() == [[16, 17]] * 2
    assert made(16).take(masks([[], []], [[], []])).slots(0) == 0


@pytest.mark.parametrize(
    ("blocks", "exact"),
    [
        (([[0, 1], [0, 1]], [[0, 1], [0, 1]]), 8),
        (([[0, 1], [0, 1]], [[0, 1], [0, 2]]), 4),
        (([[0, 1], [0, 1]], [[0, 1], [1, 2]]), 0),
        (([[0, 1], [0, 1]], [[0, 1, 2, 3], [0, 1, 2, 3]]), 8),
    ],
)
def test_exact_is_the_lead_that_no_head_lost(blocks: Any, exact: int) -> None:
    taken = made().take(masks(*blocks))
    assert taken.exact == exact
    more = KV.of(*[[part[:, -3:] for part in parts] for parts in (made(21).keys, made(21).values)], SIZE, 18)
    assert taken.extended(more).exact == exact
    assert made().extended(more).exact == 21
    inexact = KV.of(made().keys, made().values, SIZE, exact=False)
    assert inexact.exact == inexact.take(masks(*blocks)).exact == 0


def test_tokens_that_follow_fill_the_open_block() -> None:
    taken = made().take(masks([[0, 2], [1, 3]], [[0, 1], [0, 1]]))
    joined = taken.extended(made(3, start=18))
    assert (joined.length, joined.slots(0), joined.sealed(0)) == (21, 13, 3)
    assert joined.positions[0][0].tolist() == [0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 20]
    again = joined.take([torch.tensor([[False, True, True]] * 2)] * 2)
    assert again.positions[0][0].tolist() == [8, 9, 10, 11, 16, 17, 18, 19, 20]


def test_rounded_kv_counts_what_is_stored() -> None:
    kv = made()
    rounded = kv.rounded(kv.keys, kv.values, 100)
    assert (rounded.resident, rounded.full, rounded.exact) == (100, kv.full, 0)
    assert rounded.extended(made(3, start=18)).resident == 100 + 3 * kv.token_bytes
    with pytest.raises(ConfigError, match="rounded"):
        rounded.take(masks([[0], [1]], [[0], [1]]))


@pytest.mark.parametrize(
    ("budget", "metadata", "blocks"),
    [(1, 0, 4), (1, 0.5, 4), (0.5, 0, 1), (10 / 18, 0, 2), (0.5, 1 / 18, 1), (0.5, 4 / 18, 0), (0.99, 0, 3), (0.01, 0, 0)],
)
def test_room_is_what_the_budget_pays_for(budget: float, metadata: float, blocks: int) -> None:
    """Of 18 tokens two are open: half, 9, pays for one block of four beside them."""
    assert made().room(0, budget, metadata) == blocks


def test_room_is_counted_from_what_was_seen_not_from_what_is_left() -> None:
    thinned = made(32).take(masks(*[[[0, 3, 5, 6], [0, 1, 2, 3]]] * 2, sealed=8))
    assert thinned.room(0, 0.5) == thinned.sealed(0) == 4
    assert thinned.room(0, 0.25) == 2


@pytest.mark.parametrize(
    ("keep", "reason"),
    [
        (masks([[0], [1]]), "1 layers"),
        (masks([[0], [1]], [[0], [1, 2]]), "equally many"),
        (masks([[0], [1]], [[0], [1]], sealed=5), r"bool \[2, 4\] is needed"),
        ([torch.ones((2, 4))] * 2, "float32"),
    ],
)
def test_masks_that_do_not_fit_are_refused(keep: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        made().take(keep)


def test_tokens_must_follow() -> None:
    with pytest.raises(ConfigError, match="18 is next"):
        made().extended(made(3, start=19))


def test_a_mask_of_blocks_by_slot() -> None:
    mask = by_slot(torch.tensor([True, False]), 10, 4)
    assert mask.tolist() == [True] * 4 + [False] * 4 + [True] * 2
