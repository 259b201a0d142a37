"""Who holds how much of a prefix: by our digests, and by engines' own names."""

from __future__ import annotations

import random
from typing import Any

import pytest
from helpers import Clock, prompt

from tenure import BlockManager, ConfigError, Identity, IdentityError, LowerTier, TokenError

pytest.importorskip("zmq", reason="pyzmq is not installed")

from tenure.cluster.index import Holder, Index
from tenure.events import AllBlocksCleared, Batch, BlockRemoved, BlockStored, KVEvent, Mirror

WHO = Identity(model="m", tenant="acme")


def told(index: Index, node: str, *events: KVEvent, boot: str = "b1") -> None:
    index.apply(Batch(node, boot, 0, 0.0, list(events)))


def ours(node: str, *prompts: list[int], index: Index, who: Identity = WHO, host: bool = False) -> BlockManager:
    """A node of ours that has served these prompts."""
    kv = BlockManager(8, 4, lower=[LowerTier("host", 32)])
    mirror = Mirror(kv)
    for tokens in prompts:
        kv.sequence(tokens, who).release()
        if host:
            for write in kv.take_writes("host"):
                kv.finish_write(write, True)
    told(index, node, AllBlocksCleared(), *mirror.step())
    return kv


def test_the_most_first_then_the_fastest_medium() -> None:
    index = Index()
    ours("a", prompt(1, 2), index=index)
    ours("b", prompt(1, 2, 3), index=index)
    ours("c", prompt(1, 2, 3), prompt(11, 12, 13, 14, 15, 16, 17, 18), index=index, host=True)
    ours("d", prompt(5), index=index)
    assert index.holders([*prompt(1, 2, 3, 4), 9], WHO) == [
        Holder("b", 12, {"GPU": 12}),
        Holder("c", 12, {"CPU": 12}),
        Holder("a", 8, {"GPU": 8}),
    ]
    assert index.holders(prompt(1)[:3], WHO) == []
    assert index.nodes() == {"a": 2, "b": 3, "c": 11, "d": 1}


def test_the_tenants_adapters_and_extra_keys_of_others_do_not_count() -> None:
    index = Index()
    ours("a", prompt(1, 2), index=index)
    assert index.holders(prompt(1), WHO)
    for who in (WHO.with_(tenant="umbrella"), WHO.with_(adapter="x"), WHO.with_(model="n"), WHO.with_(epoch=1)):
        assert index.holders(prompt(1), who) == []
    assert index.holders(prompt(1, 2), WHO, extra_keys={1: b"image"}) == [Holder("a", 4, {"GPU": 4})]


def test_a_node_that_reboots_or_clears_loses_what_it_had() -> None:
    index = Index()
    ours("a", prompt(1, 2), index=index)
    told(index, "a", boot="b2")
    assert index.holders(prompt(1), WHO) == []
    ours("b", prompt(1), index=index)
    told(index, "b", AllBlocksCleared())
    assert index.nodes() == {"a": 0, "b": 0}


def test_a_silent_node_does_not_count_until_it_is_heard_of() -> None:
    clock = Clock()
    index = Index(silent_after=10, clock=clock)
    ours("a", prompt(1), index=index)
    index.engine("e", "m", silent_after=20)
    told(index, "e", BlockStored([1], None, prompt(1), 4), boot="")
    clock.advance(11)
    assert [holder.node for holder in index.holders(prompt(1), WHO)] == ["e"]
    assert index.nodes() == {"e": 1}
    clock.advance(11)
    assert index.holders(prompt(1), WHO) == []
    told(index, "a")
    assert [holder.node for holder in index.holders(prompt(1), WHO)] == ["a"]
    index.forget("a")
    index.forget("nobody")
    assert index.holders(prompt(1), WHO) == []


def test_an_engines_blocks_are_found_by_their_tokens() -> None:
    index = Index()
    index.engine("e", "m")
    told(index, "e", BlockStored([11, 12], None, prompt(1, 2), 4, None, "GPU"), boot="")
    told(
        index,
        "e",
        BlockStored([b"x" * 32], 12, prompt(3), 4, None, "CPU"),
        BlockStored([11], None, prompt(1), 4, None, "CPU"),
        boot="",
    )
    assert index.holders(prompt(1, 2, 3, 4), WHO) == [Holder("e", 12, {"GPU": 8, "CPU": 4})]
    assert index.holders(prompt(1, 2), WHO.with_(tenant="umbrella")) == [Holder("e", 8, {"GPU": 8})]
    assert index.holders(prompt(1, 2), WHO.with_(model="n")) == []
    assert index.holders(prompt(1, 2), WHO.with_(adapter="x")) == []
    told(index, "e", BlockRemoved([11, 12], "GPU"), boot="")
    assert index.holders(prompt(1, 2, 3), WHO) == [Holder("e", 4, {"CPU": 4})]
    told(index, "e", AllBlocksCleared(), boot="")
    assert index.holders(prompt(1), WHO) == []


def test_an_engines_adapters_and_salts_are_kept_apart() -> None:
    index = Index()
    index.engine("e", "m")
    told(index, "e", BlockStored([1], None, prompt(1), 4, 7, "GPU", "x", [("x",)]), boot="")
    told(index, "e", BlockStored([2], None, prompt(2), 4, None, "GPU", None, [("salt",)]), boot="")
    told(index, "e", BlockStored([3], None, prompt(3), 4, cache_salt="salt"), boot="")
    assert index.holders(prompt(1), WHO.with_(adapter="x")) == [Holder("e", 4, {"GPU": 4})]
    assert index.holders(prompt(1), WHO) == index.holders(prompt(2), WHO) == index.holders(prompt(3), WHO) == []


def test_an_engines_groups_that_keep_a_window_do_not_count() -> None:
    index = Index()
    index.engine("e", "m")
    told(index, "e", BlockStored([1], None, prompt(1), 4, group_idx=1, kv_cache_spec_kind="sliding_window"), boot="")
    assert index.holders(prompt(1), WHO) == []
    told(index, "e", BlockStored([1], None, prompt(1), 4, group_idx=0, kv_cache_spec_kind="full_attention"), boot="")
    told(index, "e", BlockRemoved([1], group_idx=1), boot="")
    assert len(index.holders(prompt(1), WHO)) == 1


@pytest.mark.parametrize(
    "event",
    [
        BlockStored([1], 99, prompt(1), 4),
        BlockStored([1], None, [1, 2, 3], 4),
        BlockStored([1], None, [], 0),
        BlockStored([1], None, [-1, 2, 3, 4], 4),
        BlockStored([1], None, [1 << 40, 2, 3, 4], 4),
    ],
)
def test_an_engines_blocks_that_cannot_be_placed_are_counted(event: KVEvent) -> None:
    index = Index()
    index.engine("e", "m")
    told(index, "e", event, boot="")
    assert index.unplaced == 1
    assert index.nodes() == {"e": 0}


def test_blocks_of_an_impossible_size_are_counted_and_do_not_stop_requests() -> None:
    index = Index()
    ours("a", prompt(1), index=index)
    digest = next(WHO.digest_chain(prompt(1), 4))
    for number, size in enumerate((0, -4, 1 << 16)):
        told(index, f"odd-{number}", BlockStored([digest], None, prompt(1), size))
    assert index.unplaced == 3
    assert [holder.node for holder in index.holders(prompt(1), WHO)] == ["a"]


def test_any_number_of_media() -> None:
    index = Index()
    digests = list(WHO.digest_chain(prompt(1, 2), 4))
    for number in range(64):
        told(index, "a", BlockStored([digests[0]], None, prompt(1), 4, medium=f"m{number}"))
    told(index, "b", BlockStored([digests[0]], None, prompt(1), 4, medium="m63"))
    assert [(holder.node, holder.tokens) for holder in index.holders(prompt(1, 2), WHO)] == [("a", 4), ("b", 4)]


def test_what_does_not_fit_is_refused() -> None:
    index = Index()
    with pytest.raises(ConfigError, match=r"say first index.engine\('e', model\)"):
        told(index, "e", boot="")
    with pytest.raises(ConfigError):
        Index(silent_after=0)
    with pytest.raises(TokenError):
        index.holders([-1], WHO)
    with pytest.raises(IdentityError):
        index.holders([1], "m")  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(8))
def test_the_index_agrees_with_sets_of_prefixes(seed: int) -> None:
    """Engines that store and lose blocks at random, each with names of its own, against one set of prefixes for each."""
    rng = random.Random(seed)
    index = Index()
    nodes: dict[str, dict[tuple[int, ...], set[str]]] = {name: {} for name in ("e", "f", "g")}
    for node in nodes:
        index.engine(node, "m")
    for _ in range(300):
        node, held = rng.choice(list(nodes.items()))
        path = tuple(token for _ in range(rng.randint(1, 4)) for token in prompt(rng.randint(1, 2)))
        name: Any = lambda prefix, node=node: None if not prefix else hash((node, prefix)) & ((1 << 64) - 1)  # noqa: E731
        medium = rng.choice(("GPU", "CPU"))
        if rng.random() < 0.6:
            at = 0
            while path[: at + 4] in held and at + 4 < len(path):
                at += 4
            prefixes = [path[:end] for end in range(at + 4, len(path) + 1, 4)]
            told(
                index, node, BlockStored([name(p) for p in prefixes], name(path[:at]), list(path[at:]), 4, None, medium), boot=""
            )
            for prefix in prefixes:
                held.setdefault(prefix, set()).add(medium)
        else:
            told(index, node, BlockRemoved([name(path)], medium), boot="")
            held.get(path, set()).discard(medium)
            if not held.get(path, {medium}):
                del held[path]
        asked = [token for _ in range(4) for token in prompt(rng.randint(1, 2))]
        expected = {}
        for other, theirs in nodes.items():
            length = 0
            while tuple(asked[: length + 4]) in theirs and length < len(asked):
                length += 4
            if length:
                expected[other] = length
        found = index.holders(asked, WHO)
        assert {holder.node: holder.tokens for holder in found} == expected
        assert [holder.tokens for holder in found] == sorted(expected.values(), reverse=True)
        assert all(sum(holder.media.values()) == holder.tokens for holder in found)
