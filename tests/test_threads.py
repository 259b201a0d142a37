"""Many threads on one manager: nothing is lost, nobody waits for ever. TENURE_HAMMER: seconds for each hammer (5)."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import random
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from helpers import prompt

from tenure import BlockManager, Identity, PriorityRange, Quota, Retention, Sequence, _core
from tenure.errors import BudgetError, CapacityError, ConfigError

SECONDS = float(os.environ.get("TENURE_HAMMER", "5"))
POLICIES = [name for name in _core.POLICIES if name != "optimum"]


@pytest.fixture(autouse=True)
def watchdog() -> Iterator[None]:
    """A deadlock ends the run with every thread's stack, instead of lasting for ever."""
    faulthandler.dump_traceback_later(SECONDS + 120, exit=True, file=sys.__stderr__)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture
def hurried() -> Iterator[None]:
    """Threads take turns as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Runs work(0) to work(count - 1), each in a thread of its own, all started at once; the first error is raised here."""
    errors: list[BaseException] = []
    start = threading.Barrier(count)

    def run(number: int) -> None:
        start.wait()
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


class Hammer:
    """Everything that can be asked of a manager, at random; sequences pass from thread to thread."""

    def __init__(self, kv: BlockManager, policies: list[object]) -> None:
        self.kv = kv
        self.policies = policies
        self.running: deque[Sequence] = deque()
        self.identities = [Identity("m", tenant=f"t{i % 3}", epoch=i // 3) for i in range(6)]
        self.end = time.monotonic() + SECONDS
        self.calls = 0

    def work(self, seed: int) -> None:
        rng = random.Random(seed)
        while time.monotonic() < self.end:
            self.calls += 1
            with contextlib.suppress(CapacityError, BudgetError, IndexError):
                self._one(rng)

    def _one(self, rng: random.Random) -> None:
        kv, who = self.kv, rng.choice(self.identities)
        tokens = prompt(*(rng.randrange(4) for _ in range(rng.randrange(1, 6))))
        act = rng.randrange(1000)
        if act < 300:
            priority = Retention((PriorityRange(priority=rng.randrange(101), duration=rng.random()),))
            self.running.append(
                kv.sequence(
                    tokens,
                    who,
                    written=act < 150,
                    priority=priority if act % 3 == 0 else None,
                    session=rng.choice([None, "s"]),
                    protect_for=rng.choice([None, 0.01]),
                    expire_after=rng.choice([None, 0.05]),
                )
            )
        elif act < 600:
            seq = self.running.popleft()
            seq.release() if act < 550 else seq.abort()
        elif act < 800:
            seq = self.running.popleft()
            try:
                if act < 700:
                    seq.append([rng.randrange(3)] * rng.randrange(1, 9))
                elif act < 750:
                    self.running.append(seq.fork())
                else:
                    seq.truncate(rng.randrange(seq.num_tokens + 1))
            finally:
                self.running.append(seq)
        elif act < 880:
            kv.match(tokens, who)
        elif act < 930:
            with kv.lookup(tokens, who, owner="loader", ttl=1) as lease:
                assert len(lease.frames) * 4 == lease.tokens
        elif act < 960:
            kv.pin(tokens, who, owner="ops", ttl=0.01)
        elif act < 970:
            with contextlib.suppress(ConfigError):
                kv.tenants[who.account] = Quota(floor=rng.random() / 2, cap=0.5 + rng.random() / 2, weight=0.1 + rng.random())
        elif act < 980:
            kv.invalidate(epoch=rng.randrange(2))
        elif act < 985:
            kv.set_policy(rng.choice(self.policies))
        elif act < 990:
            kv.sweep()
            kv.clear()
        else:
            kv.check()
            kv.stats()
            kv.events(max(0, kv.totals()["events"] - 50))
            kv.leases()

    def finish(self) -> None:
        """Releases all; then the books are right and nothing is in use."""
        kv = self.kv
        for seq in self.running:
            seq.release()
        for lease in kv.leases():
            kv.release_lease(lease.id)
        counts = kv.check()
        assert (counts.active, counts.sealed) == (0, 0)
        assert counts.free + counts.cached == counts.frames
        assert (kv.totals()["pinned"], kv.totals()["sequences"]) == (0, 0)
        assert all(row.busy == 0 for row in kv.stats().values())
        kv.clear()
        assert kv.counts().free == counts.frames
        assert self.calls > 100


@pytest.mark.parametrize("on_duplicate", ["keep", "rewrite"])
def test_eight_threads_hammer_one_manager(on_duplicate: str) -> None:
    kv = BlockManager(64, 4, on_duplicate=on_duplicate, partial_reuse=1, events=1024)
    hammer = Hammer(kv, list(POLICIES))
    in_threads(8, hammer.work)
    hammer.finish()


class Mine:
    """A policy in Python: every eviction asks it, with the pool's lock held."""

    def priority(self, block: _core.BlockView) -> float:
        return block.uses + block.depth / 100


def test_a_policy_in_python_under_four_threads_is_no_deadlock(hurried: None) -> None:
    kv = BlockManager(32, 4, policy=Mine(), events=0)
    hammer = Hammer(kv, [Mine(), "lru", Mine()])
    in_threads(4, hammer.work)
    hammer.finish()


def test_tenants_that_come_at_the_same_time_keep_their_names(hurried: None) -> None:
    for _ in range(30):
        kv = BlockManager(64, 4)
        frames: dict[str, int] = {}

        def work(number: int, kv: BlockManager = kv, frames: dict[str, int] = frames) -> None:
            for name in (f"t{number}", "shared", f"u{number}"):
                kv.tenants[name] = Quota(cap=(number + 1) / 64) if name != "shared" else Quota(weight=2)
                if name != "shared":
                    seq = kv.sequence(prompt(number), Identity("m", tenant=name), written=True)
                    frames[name] = int(seq.block_table[0])
                    seq.release()

        in_threads(8, work)
        assert sorted(kv.tenants) == sorted(["shared", *(f"{kind}{i}" for kind in "tu" for i in range(8))])
        for name, frame in frames.items():
            block = kv.block(frame)
            assert block is not None
            assert block.tenant == name
            assert kv.tenants.stats(name).cap == int(name[1:]) + 1
        assert kv.tenants[name].cap > 0


def test_sequences_that_were_dropped_are_released_once_whoever_comes_next(hurried: None) -> None:
    kv = BlockManager(64, 4)

    def work(number: int) -> None:
        who = Identity("m", tenant=f"t{number}")
        for turn in range(300):
            with contextlib.suppress(CapacityError):
                kv.sequence(prompt(turn % 7, number), who)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        in_threads(8, work)
        gc.collect()
        kv.sequence([1], Identity("m")).release()
    assert kv.totals()["sequences"] == 0
    assert kv.check().sealed == kv.counts().active == 0


def test_one_prompt_computed_by_many_at_once_is_kept_once() -> None:
    kv = BlockManager(256, 4)
    who = Identity("m")

    def work(number: int) -> None:
        for turn in range(100):
            seq = kv.sequence(prompt(turn, turn + 1, number), who)
            seq.append([1, 2, 3])
            seq.release()

    in_threads(8, work)
    assert kv.check().free + kv.counts().cached == 256
    paths = [(block.parent_frame, block.tokens) for block in kv.blocks()]
    assert len(set(paths)) == len(paths)


def test_each_threads_requests_are_counted() -> None:
    kv = BlockManager(64, 4)

    def work(number: int) -> None:
        who = Identity("m", tenant=f"t{number}")
        for turn in range(200):
            with kv.sequence(prompt(turn % 5), who):
                pass

    in_threads(8, work)
    for number in range(8):
        row = kv.stats()[f"t{number}"]
        assert (row.requests, row.blocks_asked) == (200, 200)
        assert row.blocks_hit + sum(row.missed.values()) == row.blocks_asked
        assert sum(row.endings.values()) == row.requests
    assert sum(row.used for row in kv.stats().values()) + kv.counts().free == 64


def test_an_array_that_is_written_while_it_is_read_spoils_its_own_request_only() -> None:
    kv = BlockManager(4096, 4, events=0)
    who = Identity("m")
    tokens = np.arange(8192, dtype=np.int32)
    done = threading.Event()

    def work(number: int) -> None:
        if number:
            while not done.is_set():
                tokens[:] = np.roll(tokens, 1)
            return
        try:
            for _ in range(300):
                kv.sequence(tokens, who, written=True).release()
                kv.match(tokens, who)
        finally:
            done.set()

    in_threads(2, work)
    kv.check()
