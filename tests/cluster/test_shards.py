"""Ranks of a group: a block is a hit where every rank has its shard, and nowhere else."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest

from tenure import CapacityError, Identity, Layout, TokenError
from tenure.cluster.shards import sequence_of_all
from tenure.node import Level, Node
from tenure.tiers import BlockLayout, HostTier
from tests.cluster.making import SIZE, Clock
from tests.cluster.memory import MemoryPool, Server
from tests.node.making import ArrayDevice, kv_of, prompt

RANKS = 3
LONG = prompt(0, 6)


class Group:
    """Ranks with a device each, a pool that all share, and an all-reduce between threads."""

    def __init__(self, frames: tuple[int, ...] = (16,) * RANKS, seed: int = 0) -> None:
        self.server, self.clock = Server(), Clock()
        self.who = [Identity("m", layout=Layout(2, 2, 16, rank, RANKS)) for rank in range(RANKS)]
        layouts = [BlockLayout.of("bf16", SIZE, 2, 2, 16, rank, RANKS) for rank in range(RANKS)]
        self.nodes = [
            Node(
                ArrayDevice(count, layout.nbytes),
                [Level(HostTier(layout, 32)), Level(MemoryPool(self.server, layout))],
                SIZE,
                clock=self.clock,
                background=False,
            )
            for count, layout in zip(frames, layouts, strict=True)
        ]
        self.barrier = threading.Barrier(RANKS, timeout=20)
        self.values = [0] * RANKS

    def least(self, rank: int, value: int) -> int:
        self.values[rank] = value
        self.barrier.wait()
        low = min(self.values)
        self.barrier.wait()
        return low

    def serve(self, tokens: list[int], **asked: Any) -> list[Any]:
        """What every rank found: the tokens hit, or the error."""
        found: list[Any] = [None] * RANKS

        def run(rank: int) -> None:
            kv: Any = self.nodes[rank]
            try:
                with sequence_of_all(kv, tokens, self.who[rank], lambda value: self.least(rank, value), **asked) as seq:
                    for block in range(len(tokens) // SIZE):
                        right = kv_of(self.who[rank], tokens[: (block + 1) * SIZE])
                        row = kv.device.bytes[seq.block_table[block]]
                        if block * SIZE < seq.hit_tokens:
                            assert (row == right).all(), "a hit without its bytes"
                        else:
                            row[:] = right
                    seq.seal()
                    found[rank] = seq.hit_tokens
            except Exception as error:
                found[rank] = error

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(RANKS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    def close(self) -> None:
        for kv in self.nodes:
            kv.check()
            kv.close()


def test_what_all_have_all_hit() -> None:
    group = Group()
    assert group.serve(LONG) == [0, 0, 0]
    assert group.serve(LONG) == [24, 24, 24]
    group.close()


def test_what_one_lacks_is_a_miss_for_all() -> None:
    group = Group()
    group.serve(LONG)
    group.nodes[1].clear()
    assert group.serve(LONG) == [0, 0, 0]
    group.nodes[2].clear()
    with group.nodes[2].sequence(LONG[:8], group.who[2]) as seq:
        group.nodes[2].device.bytes[seq.block_table[:2]] = [kv_of(group.who[2], LONG[:4]), kv_of(group.who[2], LONG[:8])]
    assert group.serve(LONG) == [8, 8, 8]
    group.close()


def test_a_shard_that_the_pool_has_lost_is_a_miss_for_all() -> None:
    group = Group()
    group.serve(LONG)
    for kv in group.nodes:
        kv.flush()
        kv.clear()
    whole = dict(group.server.bytes)
    gone = list(group.nodes[1].sequence([1], group.who[1]).effective.digest_chain(LONG, SIZE))[3]
    group.server.bytes = {key: value for key, value in whole.items() if key[0] != gone}
    assert len(group.server.bytes) == len(whole) - 1
    assert group.serve(LONG) == [12, 12, 12]
    group.close()


def test_where_one_has_no_room_all_are_refused() -> None:
    group = Group(frames=(16, 4, 16))
    found = group.serve(LONG)
    assert all(isinstance(error, CapacityError) for error in found)
    assert group.serve(LONG[:16]) == [0, 0, 0]
    group.close()


def test_an_error_of_one_rank_leaves_no_rank_waiting() -> None:
    group = Group()
    who, group.who[1] = group.who[1], "nobody"  # type: ignore[call-overload]
    found = group.serve(LONG)
    assert isinstance(found[0], CapacityError)
    assert not isinstance(found[1], CapacityError)
    group.who[1] = who
    assert group.serve(LONG) == [0, 0, 0]
    assert all(isinstance(error, TokenError | CapacityError) for error in group.serve([-1]))
    group.close()


def test_a_rank_that_is_gone_leaves_no_sequence_open() -> None:
    group = Group()
    kv: Any = group.nodes[0]

    def gone(value: int) -> int:
        raise ConnectionError("a rank is gone")

    with pytest.raises(ConnectionError):
        sequence_of_all(kv, LONG, group.who[0], gone)
    assert kv.counts().free == kv.frames
    group.close()


@pytest.mark.parametrize("seed", range(4))
def test_ranks_that_evict_differently_always_agree(seed: int) -> None:
    r = random.Random(seed)
    group = Group(frames=(14, 9, 11))
    hits = 0
    for _ in range(60):
        which = r.randrange(4)
        found = group.serve([*prompt(which, r.randint(1, 6)), *([r.randint(0, 9)] * r.randint(0, 3))])
        assert found[0] == found[1] == found[2]
        hits += found[0]
        what, kv = r.random(), r.choice(group.nodes)
        if what < 0.2:
            kv.clear()
        elif what < 0.5:
            kv.flush()
        elif what < 0.6 and group.server.heads:
            del group.server.heads[r.choice(list(group.server.heads))]
    assert hits > 100
    group.close()
