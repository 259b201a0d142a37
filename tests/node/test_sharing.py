"""Loads that several requests share, and frames that are given away under a copy: nobody takes for loaded what did not come."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tenure import BlockManager, ConfigError, LowerTier, Sequence
from tenure.node import Level, Node
from tenure.tiers import HostTier
from tenure.transfers import BlockName
from tests.node.making import LAYOUT, SIZE, WHO, node, prompt, serve
from tests.node.moody import Moody, ends, filled, started
from tests.tiers.making import record


def admitted(kv: Node, count: int) -> None:
    """Waits until so many requests have their frames."""
    while kv.counts().active < 4 * count:
        pass


@pytest.mark.parametrize("how", ["late", "closed", "raises", "io"])
def test_who_waits_for_a_load_of_another_sees_that_it_failed(how: str) -> None:
    tier = Moody()
    kv = filled(tier, frames=24, deadline=30.0)
    lane = kv._lanes["moody"]
    begin = lane.begin

    def begun_late(*given: Any) -> Any:
        future = begin(*given)
        admitted(kv, 4)  # the others will still wait when the first no longer does
        lane.deadline = 0.3
        return future

    if how == "late":
        lane.begin = begun_late  # type: ignore[method-assign]
    tier.gate.clear()
    tier.asked.clear()
    hits: list[int] = []
    first: list[Sequence] = []  # it computes nothing before the others have seen what came
    threads = [started(lambda: first.append(kv.sequence(prompt(0, 4), WHO)))]
    assert tier.asked.wait(60)
    threads += [started(lambda: hits.append(serve(kv, prompt(0, 4)))) for _ in range(3)]
    if how != "late":
        admitted(kv, 4)
        tier.raises, tier.fails = how == "raises", "" if how == "raises" else how
        tier.gate.set()
    assert all(ends(thread) for thread in threads)
    assert len(hits) == 3  # serve() looks at the bytes of its hits, and none has raised
    assert first[0].hit_tokens == 0
    tier.gate.set()
    first[0].abort()
    kv.check()


def test_a_load_that_did_not_count_counts_for_nobody() -> None:
    """Its bytes came, but it was invalidated before that was said."""
    tier = Moody()
    kv = filled(tier, frames=24, deadline=30.0)
    tier.gate.clear()
    hits: list[int] = []
    threads = [started(lambda: hits.append(serve(kv, prompt(0, 4)))) for _ in range(3)]
    admitted(kv, 3)
    kv.invalidate(model="m")
    tier.gate.set()
    assert all(ends(thread) for thread in threads)
    assert hits == [0, 0, 0]
    kv.check()


def swapped() -> BlockManager:
    """Block 0 is in the tiers "near" (in its frame 0, and wanted there once more) and "far"; the device has others."""
    lower = [LowerTier("near", 4, write="selective", uses=1), LowerTier("mid", 4, write="selective"), LowerTier("far", 4)]
    kv = BlockManager(2, SIZE, lower=lower)
    kv.sequence(prompt(0, 1), WHO).release()
    kv.sequence(prompt(0, 1), WHO).release()
    for tier in ("near", "far"):
        [order] = kv.take_writes(tier, 1)
        assert kv.finish_write(order, True)
    kv.sequence(prompt(1, 2), WHO).abort()
    assert kv.match(prompt(0, 1), WHO).lower == ("near",)
    return kv


def lost_and_back(kv: BlockManager) -> None:
    """Its frame in "near" is given away, and given to it again: meanwhile it may have held anything."""
    block = kv.block(0, "near")
    assert block is not None
    kv.lose("near", BlockName(*block.handle))
    [order] = kv.take_writes("near")
    assert (order.origin, order.target) == ("far", 0)
    assert kv.finish_write(order, True)
    assert kv.block(0, "near") is not None


def test_a_load_does_not_count_when_its_frame_was_given_away_in_between() -> None:
    kv = swapped()
    seq = kv.sequence(prompt(0, 1), WHO)
    assert [load.source for load in seq.loads] == [0]
    lost_and_back(kv)
    assert seq.loaded(1) == 0
    seq.release()
    kv.check()


def test_a_write_does_not_count_when_its_source_was_given_away_in_between() -> None:
    kv = swapped()
    with kv.sequence(prompt(0, 1), WHO) as seq:
        seq.loaded(1)
    kv.sequence(prompt(1, 2), WHO).abort()  # it has been used twice, and is due in "mid"
    [order] = kv.take_writes("mid")
    assert (order.origin, order.source) == ("near", 0)
    lost_and_back(kv)
    assert not kv.finish_write(order, True)
    kv.check()


def test_only_lower_tiers_lose_blocks() -> None:
    kv = swapped()
    with kv.sequence(prompt(3, 1), WHO, written=True) as seq:
        name = kv.block(int(seq.block_table[0])).handle  # type: ignore[union-attr]
        with pytest.raises(ConfigError, match="only lower tiers"):
            kv.lose("device", name)  # type: ignore[arg-type]
        kv.check()


def test_saying_that_no_loads_came_changes_nothing_where_there_were_none() -> None:
    kv = BlockManager(8, SIZE)
    kv.sequence(prompt(0, 1), WHO).release()
    first = kv.sequence(prompt(1, 2), WHO)
    second = kv.sequence(prompt(1, 2), WHO)
    first.seal()
    second.seal()  # duplicates, kept beside those of the first
    assert second.loaded(0) == 0
    second.append([5], written=False)
    second.loaded(0)
    assert second.written_tokens == 2 * SIZE
    second.release()
    first.release()
    assert kv.check().cached == 3


class Rewritten(HostTier):
    """While a block is being read its frame is given to another."""

    meanwhile: Callable[[], Any] | None = None

    def _slot(self, frame: int, length: int) -> memoryview:
        work, self.meanwhile = self.meanwhile, None
        if work is not None:
            work()
        return super()._slot(frame, length)


def test_a_host_frame_that_is_rewritten_under_a_read_gives_nothing() -> None:
    tier = Rewritten(LAYOUT, 8)
    block = np.full(LAYOUT.nbytes, 1, np.uint8)
    one, other = (record(LAYOUT, seed) for seed in (1, 2))
    assert tier.write([0], [block], [one]) == [None]
    tier.meanwhile = lambda: tier.write([0], [block + 1], [other])
    [outcome] = tier.read([0], [one], [np.zeros(LAYOUT.nbytes, np.uint8)])
    assert outcome is not None
    assert outcome.kind == "foreign"


def test_a_block_is_written_down_only_once_its_sequence_has_gone_on() -> None:
    """In lock-step a block seals when its tokens are announced, which is before they are computed."""
    tier = Moody()
    kv = node(8, Level(tier))
    device: Any = kv.device
    seq = kv.sequence(prompt(0, 1), WHO, written=True)
    assert kv.flush() == 0
    device.bytes[seq.block_table[0]] = 7  # now it is computed
    seq.append(prompt(0, 2)[SIZE:])
    assert kv.flush() == 1
    device.bytes[seq.block_table[1]] = 8
    seq.release()
    assert kv.flush() == 1
    serve(kv, prompt(1, 8))
    with kv.sequence(prompt(0, 2), WHO) as again:
        assert again.hit_tokens == 2 * SIZE
        assert device.bytes[again.block_table][:, 0].tolist() == [7, 8]


@pytest.mark.parametrize("end", ["abort", "truncate"])
def test_what_was_announced_and_given_up_is_written_nowhere(end: str) -> None:
    kv = node(8, Level(Moody()))
    seq = kv.sequence(prompt(0, 2), WHO)
    seq.append(prompt(0, 4)[2 * SIZE :])
    if end == "abort":
        seq.abort()
        assert kv.flush() == 2  # the prompt's, which the append has declared
    else:
        seq.truncate(3 * SIZE + 1)
        seq.append([5], written=False)
        assert kv.flush() == 3
        seq.abort()


def test_a_fork_does_not_offer_what_its_parent_has_announced() -> None:
    kv = node(8, Level(Moody()))
    parent = kv.sequence(prompt(0, 2), WHO, written=True)
    child = parent.fork()
    child.append([1])
    assert kv.flush() == 0
    parent.append([2])
    assert kv.flush() == 2
    child.release()
    parent.release()
    kv.check()


def test_threads_that_share_loads_of_a_failing_tier_never_get_wrong_bytes() -> None:
    tier = Moody()
    kv = filled(tier, frames=24, failures=1 << 20)
    wrong: list[BaseException] = []

    def work(seed: int) -> None:
        r = np.random.default_rng(seed)
        try:
            for _ in range(60):
                tier.fails = "io" if r.random() < 0.3 else ""
                serve(kv, prompt(int(r.integers(0, 5)), 4))
                kv.flush()
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert kv.check().active == 0
