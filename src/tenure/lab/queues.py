"""Time for a simulation: servers that work one thing after the other, and processes that give them work or let time pass.
Used by the simulation of a pool; it knows neither nodes nor requests, and no real clock."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Generator

import numpy as np
import numpy.typing as npt

from tenure.checks import integer

__all__ = ["Floats", "Process", "Shards", "Time"]

Floats = npt.NDArray[np.float64]
Process = Generator[Floats | float, bool, None]
"""It yields seconds of work for each shard, or seconds (a float) that pass, and is told whether all shards answered."""


class Shards:
    """Servers of one thread each, first come, first served. `down`: a shard to the time (from, until) in which it answers
    nothing. `free`: when each will have done what it was given; `busy`: seconds of work that it was given. Raises ConfigError."""

    def __init__(self, count: int) -> None:
        self.free: Floats = np.zeros(integer("shards", count, 1, 1 << 20))
        self.busy: Floats = np.zeros(count)
        self.down: dict[int, tuple[float, float]] = {}

    def serve(self, now: float, work: Floats) -> tuple[float, bool]:
        """Gives each shard its seconds of work (0: it is not asked). Returns when the last of them will be done, and whether all
        answer. `now` never falls from call to call."""
        mine = np.flatnonzero(work)
        asked = len(mine)
        for shard, (begin, end) in self.down.items():
            if begin <= now < end:
                mine = mine[mine != shard]
        done = np.maximum(self.free[mine], now) + work[mine]
        self.free[mine] = done
        self.busy[mine] += work[mine]
        return float(done.max(initial=now)), len(mine) == asked


class Time:
    """rtt: seconds to shards and back. timeout: seconds after which a round trip fails that a shard does not answer. `trips`: of
    processes, each to one shard or several; `batches`: of work, by one shard."""

    def __init__(self, shards: Shards, rtt: float, timeout: float) -> None:
        self.now = 0.0
        self.trips = self.batches = 0
        self._shards, self._rtt, self._timeout = shards, rtt, timeout
        self._heap: list[tuple[float, int, Process, bool | None]] = []
        self._serial = itertools.count()

    def begin(self, process: Process, wait: float = 0.0) -> None:
        """Starts a process so many seconds from now."""
        self._later(self.now + wait, process, None)

    def run(self, until: float) -> None:
        """Everything up to this time, in its order; what is equal in the order in which it was asked for."""
        while self._heap and self._heap[0][0] <= until:
            self.now, _, process, well = heapq.heappop(self._heap)
            try:
                wanted = process.send(well)  # type: ignore[arg-type]  # None starts it
            except StopIteration:
                continue
            if isinstance(wanted, float):
                self._later(self.now + wanted, process, True)
                continue
            self.trips += 1
            self.batches += int(np.count_nonzero(wanted))
            end, whole = self._shards.serve(self.now, wanted)
            end = end if whole else max(end, self.now + self._timeout)
            self._later(end + self._rtt, process, whole)

    def _later(self, when: float, process: Process, well: bool | None) -> None:
        heapq.heappush(self._heap, (when, next(self._serial), process, well))
