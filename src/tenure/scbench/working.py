"""Who measures: some processes, each with the models that it needs, take sessions until none is left.
The command line starts it; it knows nothing of rows but to whom they go."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import islice

import msgspec
import torch

from tenure.checks import integer
from tenure.errors import TenureError
from tenure.scbench.added import load
from tenure.scbench.grid import Grid
from tenure.scbench.kept import Kept, Unit
from tenure.scbench.measuring import Measuring
from tenure.scbench.results import Row
from tenure.starting import uninterrupted

__all__ = ["measure"]

_FEWER = "run it again to go on, with fewer jobs"


def measure(kept: Kept, grids: Sequence[Grid], jobs: int, done: Callable[[Unit], None]) -> None:
    """Measures what is missing, in `jobs` processes of one thread each, and tells of each session that is kept. Sessions in which
    seconds are taken come first, one at a time.

    Raises ConfigError or what a session raises; TenureError when a process died. What was kept until then stays.
    """
    missing = kept.missing
    jobs = min(integer("jobs", jobs, 1, 1024), max(1, len(missing)))
    timed = [unit for unit in missing if grids[unit.grid].times(unit.task, unit.seed)]
    others = [unit for unit in missing if unit not in timed]
    for units, most in ((timed, 1), (others, jobs)):
        _measured(kept, grids, units, most, done)


def _measured(kept: Kept, grids: Sequence[Grid], units: Sequence[Unit], jobs: int, done: Callable[[Unit], None]) -> None:
    """So many units at once, each kept when it is done."""
    start = multiprocessing.get_context("spawn")  # torch's threads do not survive a fork
    left, waiting = iter(units), set[Future[tuple[Unit, list[Row]]]]()
    with ProcessPoolExecutor(jobs, start, _begin, (grids[0].use, msgspec.json.encode(grids))) as pool:
        try:
            while True:
                for unit in islice(left, jobs - len(waiting)):
                    with uninterrupted():  # a process may start, which has yet to say that Ctrl-C is for its parent alone
                        waiting.add(pool.submit(_session, unit))
                if not waiting:
                    return
                wait(waiting, return_when=FIRST_COMPLETED)
                for future in [one for one in waiting if one.done()]:
                    waiting.remove(future)
                    unit, rows = future.result()
                    kept.add(unit, rows)
                    done(unit)
        except BrokenProcessPool:
            raise TenureError(f"a measuring process died (is there enough memory?): {_FEWER}") from None
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            for future in waiting:  # what was being measured is finished, and kept
                if not future.cancelled() and future.exception() is None:
                    kept.add(*future.result())
            raise


_grids: tuple[Grid, ...] = ()
_measuring: dict[int, Measuring] = {}
_not_begun: TenureError | None = None
"""Of this process."""


def _begin(use: Sequence[str], grids: bytes) -> None:
    import signal

    global _grids, _not_begun
    torch.set_num_threads(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        load(use)  # a grid that names what they add is none before
        _grids = msgspec.json.decode(grids, type=tuple[Grid, ...])
    except (TenureError, msgspec.MsgspecError) as problem:  # raised here, it would be taken for a death
        _not_begun = TenureError(str(problem))


def _end_with_parent() -> None:
    """A parent that is killed tells nobody."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)


def _session(unit: Unit) -> tuple[Unit, list[Row]]:
    if _not_begun is not None:
        raise _not_begun
    try:
        if unit.grid not in _measuring:
            _measuring[unit.grid] = Measuring(_grids[unit.grid])
        return unit, _measuring[unit.grid].session(unit.task, unit.seed)
    except TenureError:
        raise
    except Exception as problem:  # of any library or method; not all of them can be sent to another process
        where = f"session {unit.seed} of {unit.task}"
        if isinstance(problem, MemoryError | torch.OutOfMemoryError) or "allocate" in str(problem):
            raise TenureError(f"there is too little memory for {where}: {_FEWER}") from None
        traceback.print_exc()
        raise TenureError(f"{where} failed: {type(problem).__name__}: {problem}") from None
