"""Faults seen in the field, and what must hold instead: wrong hits (rows 13, 14, 18 to 20, 22)."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from conftest import Build
from helpers import admit, hit_blocks, prompt, put, resident

from tenure import BlockManager, Identity, Reason, Sequence, content_digest
from tenure.errors import CapacityError


def test_an_adapter_is_known_by_its_content_not_by_its_name(build: Build) -> None:
    """row 13: the same LoRA name with new weights is another namespace."""
    kv = build(8)
    old, new = (Identity("m", adapter=content_digest(b"sql-lora", weights)) for weights in (b"v1", b"v2"))
    put(kv, old, 1, 2)
    found = kv.match(prompt(1, 2), new)
    assert (found.hit_tokens, found.why.reason, found.why.differs) == (0, Reason.FOREIGN, ("adapter",))
    assert content_digest(b"ab", b"c") != content_digest(b"a", b"bc") != content_digest(b"abc")


def test_fields_that_run_together_are_different_namespaces(build: Build) -> None:
    """row 14: a salt and a key that read the same when joined do not hit each other's KV."""
    kv = build(64)
    alike = [
        Identity("ab", weights="c"),
        Identity("a", weights="bc"),
        Identity("abc"),
        Identity("ab", adapter="c"),
        Identity("ab", tokenizer="c"),
        Identity("ab", weights=b"c"),
        Identity("ab", tenant="c"),
        Identity("ab", weights="c", tenant="default2"),
    ]
    for who in alike:
        put(kv, who, 1)
    assert len({who.namespace for who in alike}) == len(alike)
    assert kv.counts().cached == len(alike)


def test_extra_keys_do_not_run_into_the_tokens_or_each_other(build: Build, who: Identity) -> None:
    """row 14: an image's key belongs to its block, wholly."""
    kv = build(64)
    keys = [None, {0: b"ab"}, {0: b"a"}, {1: b"ab"}, {0: b"a", 1: b"b"}, {0: b"b", 1: b"a"}, {0: b"ab", 1: b"ab"}]
    for extra in keys:
        with kv.sequence(prompt(1, 2), who, extra_keys=extra, written=True) as seq:
            assert seq.hit_tokens == (4 if extra in ({1: b"ab"}, {0: b"a", 1: b"b"}, {0: b"ab", 1: b"ab"}) else 0)
    for extra in keys:
        assert kv.match(prompt(1, 2), who, extra_keys=extra).hit_tokens == 8


def test_invalidation_needs_no_idle_engine(build: Build, who: Identity) -> None:
    """row 18: running sequences finish, on their old blocks; new requests start afresh; old blocks go straight to Free."""
    kv = build(12)
    put(kv, who, 1, 2)
    running = kv.sequence(prompt(1, 2, 3), who)
    assert kv.invalidate(model=who.model) == 1
    assert hit_blocks(kv, who, 1, 2) == 0
    running.append(prompt(4))
    fork = running.fork()
    fresh = admit(kv, who, 1, 2)
    assert fresh.hit_tokens == 0
    assert not set(fresh.block_table) & set(running.block_table)
    running.release()
    fork.release()
    assert kv.counts() == (12, 10, 0, 2, 0)
    fresh.release()
    assert hit_blocks(kv, who, 1, 2) == 2


def test_an_invalidated_block_is_never_found_again(build: Build, who: Identity) -> None:
    """row 18: not even when a running sequence seals more of it, or its twin is computed afresh."""
    kv = build(12)
    running = kv.sequence(prompt(1, 2), who)
    kv.invalidate(weights=who.weights)
    running.seal()
    assert hit_blocks(kv, who, 1, 2) == 0
    put(kv, who, 1)
    running.append([7])
    assert hit_blocks(kv, who, 1, 2) == 1
    running.release()
    assert (hit_blocks(kv, who, 1, 2), kv.counts().free) == (1, 11)


def test_what_lies_idle_below_a_running_invalidated_block_is_reclaimed_before_live_blocks(
    build: Build, who: Identity, other: Identity
) -> None:
    """row 18: a sequence that still runs on a prefix does not keep the dead blocks behind it."""
    kv = build(6)
    put(kv, who, 9)  # alive, and the longest unused
    dead = who.with_(epoch=1)
    put(kv, dead, 1, 2, 3)
    running = kv.sequence([*prompt(1), 5], dead)
    kv.invalidate(epoch=1)
    put(kv, who, 10, 11)  # one frame is free, one is missing
    assert hit_blocks(kv, who, 9) == 1
    running.release()
    kv.sweep()
    assert resident(kv) == {9, 10, 11}


def test_sweeping_frees_all_that_nobody_uses_of_an_invalidated_namespace(build: Build, who: Identity) -> None:
    """row 18: with sequences running on part of it."""
    kv = build(8)
    put(kv, who, 1, 2, 3)
    put(kv, who, 1, 4)
    running = kv.sequence([*prompt(1), 5], who)
    kv.invalidate(model=who.model)
    assert kv.sweep() == 3
    running.release()
    assert kv.counts().free == 8


def test_blocks_and_index_go_together(build: Build, who: Identity) -> None:
    """row 19: after the pool was emptied nothing can be found, and every frame is free."""
    kv = build(8)
    put(kv, who, 1, 2, 3)
    put(kv, who, 1, 4)
    running = admit(kv, who, 5)
    assert kv.clear() == 4
    assert kv.counts() == (8, 7, 0, 1, 0)
    assert [hit_blocks(kv, who, *names) for names in [(1, 2, 3), (1, 4), (5,)]] == [0, 0, 1]
    running.release()
    assert kv.clear() == 1
    assert list(kv.blocks()) == []
    put(kv, who, 1, 2, 3)
    assert hit_blocks(kv, who, 1, 2, 3) == 3


def test_an_evicted_block_is_not_found_again(build: Build, who: Identity) -> None:
    """row 20: its index entry went with its frame; the frame has other tokens now."""
    kv = build(1)
    put(kv, who, 1)
    put(kv, who, 2)
    found = kv.match(prompt(1), who)
    assert (found.hit_tokens, found.why.reason) == (0, Reason.EVICTED)
    assert put(kv, who, 1) == 0
    assert hit_blocks(kv, who, 1) == 1


def assert_every_hit_is_true(kv: BlockManager, who: Identity, tokens: list[int]) -> None:
    found = kv.match(tokens, who)
    held = []
    for depth, frame in enumerate(found.frames):
        block = kv.block(int(frame))
        assert block is not None
        assert block.depth == depth
        assert block.parent_frame == (int(found.frames[depth - 1]) if depth else None)
        held += block.tokens
    assert held == tokens[: found.hit_tokens]


@pytest.mark.parametrize("policy", ["lru", "arc", "s3fifo"])
def test_every_hit_names_frames_that_hold_exactly_these_tokens(build: Build, who: Identity, policy: str) -> None:
    """row 20: through eviction, reuse, truncation, copies and invalidation."""
    kv = build(10, policy=policy)
    rng = random.Random(20)
    paths = [prompt(*names) for n in (1, 2, 3) for names in itertools.product(range(3), repeat=n)]
    running: list[Sequence] = []
    for step in range(400):
        act = rng.randrange(5)
        try:
            if act <= 1:
                running.append(kv.sequence(rng.choice(paths), who, written=act == 0))
            elif act == 2 and running:
                seq = rng.choice(running)
                seq.truncate(rng.randrange(seq.num_tokens + 1))
                seq.append(rng.choice(paths)[:4])
            elif act == 3 and step % 40 == 0:
                kv.invalidate(model=who.model)
            elif running:
                running.pop(rng.randrange(len(running))).release()
        except CapacityError:
            running.pop(0).release()
        if step % 4 == 0:
            for tokens in paths:
                assert_every_hit_is_true(kv, who, tokens)
    for seq in running:
        seq.release()


def test_a_collision_of_fingerprints_is_no_hit(who: Identity) -> None:
    """row 22: among 2^17 blocks and as many questions some 32-bit fingerprints are equal; tokens are compared, so none lies.

    Equal hashes of different blocks, made by hand: cpp/units.cpp.
    """
    count = 1 << 17
    kv = BlockManager(count, 2, events=0)
    rng = np.random.default_rng(22)
    blocks = np.unique(rng.integers(0, 1 << 31, size=(2 * count, 2), dtype=np.int64).astype(np.int32), axis=0)
    rng.shuffle(blocks)
    here, absent = blocks[:count], blocks[count : 2 * count]
    for tokens in here:
        kv.sequence(tokens, who, written=True).release()
    assert kv.counts().cached == len(here)
    frames = set()
    for tokens in here:
        found = kv.match(tokens, who)
        assert found.hit_tokens == 2
        frames.add(int(found.frames[0]))
    assert len(frames) == len(here)
    assert sum(kv.match(tokens, who).hit_tokens for tokens in absent) == 0
    for frame in range(0, count, 97):
        block = kv.block(frame)
        assert block is not None
        assert int(kv.match(block.tokens, who).frames[0]) == frame


def test_an_equal_block_under_another_parent_is_no_hit(build: Build, who: Identity) -> None:
    """row 22: the parent is compared too."""
    kv = build(8)
    put(kv, who, 1, 3)
    assert hit_blocks(kv, who, 3) == 0
    assert put(kv, who, 2, 3) == 0
    assert kv.counts().cached == 4
