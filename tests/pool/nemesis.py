"""A schedule of faults, drawn from a seed, and what carries it out: every fault is undone, whatever happens.
Used by the runs against faults; what a target is and how it is harmed is the targets' own."""

from __future__ import annotations

import heapq
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tests.pool.history import Fault


class Harm(NamedTuple):
    """What can be done to a target. `undo` None: it is over at once. `weight`: how often, next to its neighbours."""

    do: Callable[[], None]
    undo: Callable[[], None] | None = None
    weight: float = 1.0


@dataclass(frozen=True)
class Target:
    """Something that can be harmed in one way at a time. No more than `at_once` targets of one group are harmed at a time."""

    name: str
    group: str
    harms: Mapping[str, Harm]
    at_once: int = 1


class Step(NamedTuple):
    """From `start` to `end` (seconds from the schedule's begin) a target is harmed."""

    start: float
    end: float
    target: str
    what: str


def schedule(
    seed: int, seconds: float, targets: Sequence[Target], *, every: float, lasting: tuple[float, float] = (0.5, 3.0)
) -> list[Step]:
    """One fault after every `every` seconds or so, each within `lasting` seconds long, none beyond `seconds`; by start."""
    r = random.Random(seed)
    steps: list[Step] = []
    now = r.uniform(0, every)
    while now < seconds:
        going = [step for step in steps if step.end > now]
        busy = {step.target for step in going}
        crowd = [target.group for target in targets if target.name in busy]
        free = [target for target in targets if target.name not in busy and crowd.count(target.group) < target.at_once]
        choices = [(target, what, harm) for target in free for what, harm in target.harms.items()]
        if choices:
            target, what, harm = r.choices(choices, [harm.weight / len(target.harms) for target, _, harm in choices])[0]
            lasts = r.uniform(*lasting) if harm.undo is not None else 0.0
            steps.append(Step(now, min(now + lasts, seconds), target.name, what))
        now += r.uniform(0.5, 1.5) * every
    return steps


class Nemesis:
    """Carries out a schedule. `record` is given each fault when it is over."""

    def __init__(
        self,
        targets: Iterable[Target],
        record: Callable[[Fault], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._harms = {(target.name, what): harm for target in targets for what, harm in target.harms.items()}
        self._record = record
        self._clock = clock
        self._sleep = sleep
        self._open: list[tuple[float, Step, float]] = []  # due to be undone: when, what, since when

    def run(self, steps: Iterable[Step]) -> None:
        """Returns when all is over and undone. A fault that cannot be done is recorded so, and the run goes on; what cannot be
        undone raises RuntimeError, after all else has been undone."""
        begin = self._clock()
        broken: list[str] = []
        try:
            for step in sorted(steps):
                while self._open and self._open[0][0] <= begin + step.start:
                    self._wait(self._open[0][0])
                    self._undo_next(broken)
                self._wait(begin + step.start)
                self._do(step, begin + step.end, broken)
            while self._open:
                self._wait(self._open[0][0])
                self._undo_next(broken)
        finally:
            while self._open:
                self._undo_next(broken)
        if broken:
            raise RuntimeError(f"could not be undone: {'; '.join(broken)}")

    def _wait(self, until: float) -> None:
        left = until - self._clock()
        if left > 0:
            self._sleep(left)

    def _do(self, step: Step, until: float, broken: list[str]) -> None:
        harm = self._harms[step.target, step.what]
        start = self._clock()
        entry = (until, step, start)
        if harm.undo is not None:
            heapq.heappush(self._open, entry)  # before it is done: what is half done is undone too
        try:
            harm.do()
        except Exception as error:
            if harm.undo is None:
                self._record(Fault(step.target, step.what, start, self._clock(), repr(error)))
            else:
                self._open.remove(entry)
                heapq.heapify(self._open)
                self._undo(step, start, broken, repr(error))
        else:
            if harm.undo is None:
                self._record(Fault(step.target, step.what, start, self._clock()))

    def _undo_next(self, broken: list[str]) -> None:
        _, step, start = heapq.heappop(self._open)
        self._undo(step, start, broken)

    def _undo(self, step: Step, start: float, broken: list[str], error: str | None = None) -> None:
        undo = self._harms[step.target, step.what].undo
        assert undo is not None  # else it would not be open
        try:
            undo()
        except Exception as failed:
            error = f"not undone: {failed!r}"
            broken.append(f"{step.what} of {step.target}: {failed!r}")
        self._record(Fault(step.target, step.what, start, self._clock(), error))
