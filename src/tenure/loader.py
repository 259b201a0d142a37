"""Hits that are in lower tiers come up to the device, as far as they come in time and whole; one load a block, whoever wants it.
Part of the mover; it never raises into an engine, and never says that a block is there which it has not proven."""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as LateError
from itertools import groupby
from typing import Any

from tenure.errors import TenureError
from tenure.lane import Lane
from tenure.manager import BlockManager
from tenure.sequence import Sequence as BlockSequence
from tenure.staging import Device, Staging
from tenure.tiers.base import Outcome
from tenure.tiers.record import Record
from tenure.transfers import BlockName, Load

__all__ = ["Loader"]

_LOG = logging.getLogger("tenure")


class _UnderWay:
    """A load that others may wait for. `came`: the block is on the device; known when it is over."""

    __slots__ = ("came", "over")

    def __init__(self) -> None:
        self.over = threading.Event()
        self.came = False


class Loader:
    """Up: from the lanes to the device."""

    def __init__(self, kv: BlockManager, device: Device, lanes: dict[str, Lane], staging: Staging) -> None:
        self._kv = kv
        self._device = device
        self._lanes = lanes
        self._staging = staging
        self._loading: dict[BlockName, _UnderWay] = {}
        self._lock = threading.Lock()

    def load(self, seq: BlockSequence) -> None:
        """See Mover.load."""
        loads = seq.loads
        if not loads:
            return
        started = time.monotonic()
        before = hit = seq.hit_tokens
        mine: dict[BlockName, _UnderWay] = {}
        theirs: dict[BlockName, _UnderWay] = {}
        good = 0
        try:
            with self._lock:
                for load in loads:
                    if load.name in self._loading:
                        theirs[load.name] = self._loading[load.name]
                    else:
                        mine[load.name] = self._loading[load.name] = _UnderWay()
            loads = seq.loads  # what came before that was said is on the device now
            good = self._bring([load for load in loads if load.name in mine], started)
            if theirs:
                good = self._together(loads, good, mine, theirs, started)
        except Exception:  # a failure of a tier is a miss, whatever it was
            _LOG.exception("loading failed; the request computes the rest")
        finally:
            try:
                hit = seq.loaded(good)
            finally:
                self._over(loads, mine, (hit - before) // self._kv.block_size)

    def _over(self, loads: list[Load], mine: dict[BlockName, _UnderWay], came: int) -> None:
        """Tells those who wait; the first `came` blocks are on the device, and stay there while anybody waits."""
        with self._lock:
            for place, load in enumerate(loads):
                if load.name in mine:
                    one = self._loading.pop(load.name)
                    one.came = place < came
                    one.over.set()

    def _together(
        self,
        loads: list[Load],
        good: int,
        mine: dict[BlockName, _UnderWay],
        theirs: dict[BlockName, _UnderWay],
        started: float,
    ) -> int:
        """How many loads from the first on are there, when others bring some; `good` of one's own are."""
        done = 0
        for load in loads:
            if load.tier == "device":
                good -= load.name in mine
            elif load.name in theirs:
                one, lane = theirs[load.name], self._lanes[load.tier]
                if not one.over.wait(None if lane.deadline is None else lane.left(started)):
                    lane.too_late()
                    break
                if not one.came:
                    break
            elif good == 0:
                break
            else:
                good -= 1
            done += 1
        return done

    def _bring(self, loads: list[Load], started: float) -> int:
        """Copies to the device; returns how many, from the first on, are there and proven."""
        done = 0
        for tier, run in groupby(loads, key=lambda load: load.tier):
            part = list(run)
            if tier == "device":
                done += len(part)
                continue
            came = self._bring_from(self._lanes[tier], part, started)
            done += came
            if came < len(part):
                break
        return done

    def _bring_from(self, lane: Lane, loads: list[Load], started: float) -> int:
        if not lane.breaker.allows():
            return 0
        went: bool | None = None  # nothing was tried
        try:
            records: list[Record] = []
            for load in loads:
                try:
                    records.append(lane.names.record(load.name))
                except TenureError:  # invalidated meanwhile
                    break
            if not records:
                return 0
            loads = loads[: len(records)]
            went = False
            outcomes = self._read(lane, loads, records, started)
            came = next((i for i, outcome in enumerate(outcomes) if outcome is not None), len(outcomes))
            bad = outcomes[came] if came < len(outcomes) else None
            went = came == len(loads) or (bad is not None and not lane.failure(bad))  # no outcome at all: it came too late
            if bad is not None and lane.is_lost(loads[came].name, bad):
                self._kv.lose(lane.name, loads[came].name)
            return came
        except Exception:
            _LOG.exception("reading from tier %s failed", lane.name)
            return 0
        finally:
            lane.went(went)

    def _read(self, lane: Lane, loads: list[Load], records: list[Record], started: float) -> list[Outcome]:
        """Straight into the device's frames where they can be addressed and the read is over when it returns."""
        views = self._device.views([load.target for load in loads]) if lane.deadline is None else None
        if views is None:
            return self._read_by_copies(lane, loads, records, started)
        return lane.tier.read([load.source for load in loads], records, views)

    def _read_by_copies(self, lane: Lane, loads: list[Load], records: list[Record], started: float) -> list[Outcome]:
        """Through memory that is not the device's: a read that comes too late must find nothing of ours to write into."""
        chunks = lane.chunks(len(loads))
        outcomes: list[Outcome] = []
        begun: list[tuple[range, list[Any], Any]] = []
        try:
            for number, chunk in enumerate(chunks):
                for ahead in chunks[number + len(begun) : number + 2]:
                    staging = self._staging.take(len(ahead))
                    future = lane.begin([loads[i].source for i in ahead], [records[i] for i in ahead], staging)
                    begun.append((ahead, staging, future))
                _, staging, future = begun[0]
                part: list[Outcome] = future.result(lane.left(started))
                begun.pop(0)
                came = [i for i, outcome in zip(chunk, part, strict=True) if outcome is None]
                self._device.write([loads[i].target for i in came], [staging[i - chunk.start] for i in came])
                self._staging.give_back(staging)
                outcomes += part
                if len(came) < len(chunk):
                    break
        except (LateError, CancelledError):
            lane.too_late()
        finally:
            for _, _, future in begun:
                lane.give_up(future)
        return outcomes
