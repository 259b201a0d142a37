"""One lower tier as the mover runs it: the bytes' tier, its breaker, its deadline, and the names of the blocks in it.
Made by the node, used by the mover; it takes no decision about what is kept."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as LateError
from typing import Any, NamedTuple, TypeVar

from tenure.breaker import Breaker
from tenure.errors import TierError
from tenure.names import Names
from tenure.readers import Readers
from tenure.tiers.base import Outcome, Tier
from tenure.tiers.record import Record
from tenure.transfers import BlockName

__all__ = ["Lane", "LaneStats"]

T = TypeVar("T")
_LOG = logging.getLogger("tenure")
_CHUNK = 8 << 20
"""Bytes to move at a time, so that a slow tier and the device work beside each other, and in memory that has a bound."""
_FAILURES = frozenset({"io", "closed"})
"""Kinds of TierError that are the tier's failure, not one block's."""
_MOST_SUSPECTS = 1024
_MOST_PUT_OFF = 4096
_PUT_OFF = 0.5
"""Seconds after which a block is offered again that another node was writing."""


class LaneStats(NamedTuple):
    """How a lower tier does: its breaker ("closed", "open", "half-open") and how often that opened, calls that came too late,
    refusals by kind (tenure.tiers.KINDS), and invalidated namespaces that are still to be dropped on its medium."""

    breaker: str
    opened: int
    late: int
    refused: dict[str, int]
    undropped: int


class Lane:
    """deadline: seconds that a request waits for this tier; None for a tier that cannot hang. back: it is written to when the
    tier above evicts. callers: how many requests may wait for it beside each other, other than for reading; where they are
    several, those that write wait elsewhere than those that ask."""

    def __init__(
        self, tier: Tier, deadline: float | None, breaker: Breaker, names: Names, *, back: bool = False, callers: int = 1
    ) -> None:
        self.tier = tier
        self.name = tier.name
        self.deadline = deadline
        self.breaker = breaker
        self.names = names
        self.back = back
        self.writing = threading.Lock()  # one writer at a time: a frame that is nobody's is emptied before it is given out again
        self._count = threading.Lock()
        self._late = 0
        self._suspects: set[BlockName] = set()  # blocks that could not be read once
        self._put_off: deque[tuple[float, BlockName]] = deque(maxlen=_MOST_PUT_OFF)  # until when; earliest first
        self._refused: Counter[str] = Counter()
        self._closed = False
        self._readers: Readers[Any] | None = None if deadline is None else Readers(f"tenure-{self.name}")
        self._others: Readers[Any] | None = None if deadline is None else Readers(f"tenure-{self.name}-call", callers)
        self._writers = self._others if deadline is None or callers == 1 else Readers[Any](f"tenure-{self.name}-write", callers)

    # -- its state

    def went(self, well: bool | None) -> None:
        """How the last call went, None: there was none. A tier that has just been given up is said once."""
        if well is None:
            self.breaker.undone()
        elif well:
            self.breaker.succeeded()
        elif self.breaker.failed():
            _LOG.warning("tier %s fails and is left alone for a while; requests go on without it", self.name)

    def failure(self, outcome: Outcome) -> bool:
        """Whether it is the tier that has failed, not one block."""
        return outcome is not None and outcome.kind in _FAILURES

    def is_lost(self, name: BlockName, outcome: TierError) -> bool:
        """Whether a block that could not be read is not worth another try: what it holds is wrong, or reading it has failed
        before. One failure of the medium says nothing of the block, and what is below it would go too."""
        if outcome.kind not in _FAILURES:
            return True
        if outcome.kind == "closed":
            return False
        with self._count:
            if name in self._suspects:
                self._suspects.discard(name)
                return True
            if len(self._suspects) >= _MOST_SUSPECTS:
                self._suspects.clear()
            self._suspects.add(name)
            return False

    def put_off(self, name: BlockName) -> None:
        """Somebody else is writing this block: it is looked at again in a while, in case that one dies."""
        self._put_off.append((time.monotonic() + _PUT_OFF, name))

    @property
    def has_due(self) -> bool:
        """Whether `due` has any."""
        first = next(iter(self._put_off), None)  # in one step: another thread may take it
        return first is not None and first[0] <= time.monotonic()

    def due(self) -> list[BlockName]:
        """Blocks that were put off, and have waited long enough."""
        found = []
        while self.has_due:
            found.append(self._put_off.popleft()[1])
        return found

    def too_late(self) -> None:
        """Counts a call that was not waited for."""
        with self._count:
            self._late += 1

    def refuse(self, kind: str) -> None:
        """Counts a block that could not even be tried."""
        with self._count:
            self._refused[kind] += 1

    def settle(self) -> None:
        """Drops the namespaces that are to be dropped, as far as that can be done in time."""
        if self.names.undropped:
            self.in_time(self.names.drop_now, None)
        if left := self.names.undropped:
            _LOG.warning("tier %s: %d namespaces are not dropped on it yet; a restart now would find them", self.name, left)

    def stats(self) -> LaneStats:
        """How it does."""
        with self._count:
            refused = self._refused + Counter(self.tier.counters.refused)
            return LaneStats(self.breaker.state, self.breaker.opened, self._late, dict(refused), self.names.undropped)

    def close(self) -> None:
        """Its tier is closed; late calls are not waited for."""
        self.settle()
        self.tier.close()
        self._closed = True
        for threads in (self._readers, self._others, self._writers):
            if threads is not None:
                threads.close()

    # -- calls that may hang

    def chunks(self, count: int) -> list[range]:
        """Consecutive parts of `count` blocks, to be moved one after the other."""
        step = max(1, _CHUNK // self.tier.block_bytes)
        return [range(start, min(start + step, count)) for start in range(0, count, step)]

    def begin(self, frames: list[int], records: list[Record], into: list[Any]) -> Future[list[Outcome]]:
        """Begins to read, into memory that the caller may leave to it: in another thread where the tier may hang. Cancelled at
        once where all that could read it hangs already."""

        def read() -> list[Outcome]:
            return self.tier.read(frames, records, into)

        if self._readers is not None and not self._closed:
            return self._submit(self._readers, read)
        future: Future[list[Outcome]] = Future()
        try:
            future.set_result(read())
        except Exception as error:
            future.set_exception(error)
        return future

    def give_up(self, future: Future[Any]) -> None:
        """A read is not waited for any more; its memory is left to it."""
        if self._readers is not None:
            self._readers.give_up(future)

    def left(self, started: float) -> float:
        """Seconds until the deadline of what was started then (time.monotonic)."""
        return max(0.0, (self.deadline or 0.0) - (time.monotonic() - started))

    def in_time(self, job: Callable[[], T], patience: float | None, *, writes: bool = False) -> T | None:
        """Runs a job that may hang with this tier, and waits for it no longer than `patience` (None: the deadline) s. None when
        it came too late: it goes on by itself, unless another one hangs already. writes: it waits for its turn to write."""
        threads = self._writers if writes else self._others
        if threads is None or self._closed:
            return job()
        future = self._submit(threads, job)
        try:
            return future.result(self.deadline if patience is None else patience)
        except (LateError, CancelledError):
            self.too_late()
            self.went(False)
            threads.give_up(future)
            return None

    def _submit(self, threads: Readers[Any], job: Callable[[], T]) -> Future[T]:
        if not threads.stuck:
            return threads.submit(job)
        future: Future[T] = Future()
        future.cancel()
        return future
