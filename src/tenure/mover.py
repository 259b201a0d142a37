"""Every copy between the tiers of one process: hits come up, sealed blocks go down; what fails, is late or wrong is a miss.
Called by the node for each request and by its threads; it never decides what is kept, nor raises into an engine."""

from __future__ import annotations

import logging
import math
import mmap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import TimeoutError as LateError
from contextlib import contextmanager
from itertools import groupby
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from tenure.errors import StaleHandleError, StoreError, TenureError
from tenure.lane import Lane
from tenure.sequence import Sequence as BlockSequence
from tenure.tiers.base import Outcome
from tenure.tiers.record import Record
from tenure.transfers import BlockName, Content, Load, Transfers, Write

__all__ = ["Device", "Mover"]

_LOG = logging.getLogger("tenure")
_MEDIUM = frozenset({"io", "full", "closed"})
"""Kinds of TierError that are the tier's failure, not one block's."""
Bytes = npt.NDArray[np.uint8]


class Device(Protocol):
    """Where the engine's KV lies, block by block."""

    frames: int
    block_bytes: int

    def views(self, frames: Sequence[int]) -> list[Bytes] | None:
        """The frames' own bytes, uint8 [block_bytes] each, writable; None where this process cannot address them."""

    def read(self, frames: Sequence[int], into: Sequence[Any]) -> None:
        """Copies blocks out."""

    def write(self, frames: Sequence[int], blocks: Sequence[Any]) -> None:
        """Copies blocks in; they are there when it returns."""


class Mover:
    """Moves blocks between a device and the lanes below it, as the manager orders.

    kv: the manager. lanes: by tier name, the fastest first. clock: the manager's. wall: seconds since the epoch.
    """

    def __init__(
        self,
        kv: Transfers,
        device: Device,
        lanes: dict[str, Lane],
        clock: Callable[[], float],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._kv = kv
        self._device = device
        self._lanes = lanes
        self._clock = clock
        self._wall = wall
        self._loading: dict[BlockName, threading.Event] = {}  # one load a block, however many requests want it
        self._lock = threading.Lock()
        self._spare: list[Bytes] = []

    # -- up

    def load(self, seq: BlockSequence) -> None:
        """Brings in what lower tiers have of the sequence's prompt, as far as it comes in time; the rest is to be computed."""
        loads = seq.loads
        if not loads:
            return
        mine: dict[BlockName, threading.Event] = {}
        theirs: dict[BlockName, threading.Event] = {}
        with self._lock:
            for load in loads:
                if load.name in self._loading:
                    theirs[load.name] = self._loading[load.name]
                else:
                    mine[load.name] = self._loading[load.name] = threading.Event()
        good = 0
        try:
            good = self._bring([load for load in loads if load.name in mine])
            if theirs:
                good = self._together(loads, mine, good, theirs)
        except Exception:  # a failure of a tier is a miss, whatever it was
            _LOG.exception("loading failed; the request computes the rest")
        finally:
            try:
                seq.loaded(good)
            finally:
                with self._lock:
                    for name, event in mine.items():
                        del self._loading[name]
                        event.set()

    def _together(self, loads: list[Load], mine: Any, good: int, theirs: dict[BlockName, threading.Event]) -> int:
        """How many loads from the first on are there, when others bring some: the manager looks whether they really came."""
        started = time.monotonic()
        done = 0
        for load in loads:
            if load.name in mine:
                if good == 0:
                    break
                good -= 1
            else:
                lane = self._lanes[load.tier]
                patience = None if lane.deadline is None else lane.left(started)
                if not theirs[load.name].wait(patience):
                    lane.late += 1
                    break
            done += 1
        return done

    def _bring(self, loads: list[Load]) -> int:
        """Copies to the device; returns how many, from the first on, are there and proven."""
        done = 0
        for tier, run in groupby(loads, key=lambda load: load.tier):
            part = list(run)
            came = self._bring_from(self._lanes[tier], part)
            done += came
            if came < len(part):
                break
        return done

    def _bring_from(self, lane: Lane, loads: list[Load]) -> int:
        if not lane.breaker.allows():
            return 0
        records: list[Record] = []
        for load in loads:
            try:
                records.append(self._record(lane, load.name))
            except TenureError:  # invalidated meanwhile
                break
        if not records:
            lane.breaker.undone()
            return 0
        loads = loads[: len(records)]
        bring = self._read_now if lane.deadline is None else self._read_in_time
        outcomes = bring(lane, loads, records)
        came = next((i for i, outcome in enumerate(outcomes) if outcome is not None), len(outcomes))
        bad = outcomes[came] if came < len(outcomes) else None
        lane.went(came == len(loads) or (bad is not None and bad.kind not in _MEDIUM))  # no outcome at all: it came too late
        if bad is not None and bad.kind != "closed":
            self._kv.lose(lane.name, loads[came].name)
        return came

    def _read_now(self, lane: Lane, loads: list[Load], records: list[Record]) -> list[Outcome]:
        targets, sources = [load.target for load in loads], [load.source for load in loads]
        views = self._device.views(targets)
        if views is not None:
            return lane.read(sources, records, views)
        staging = [self._staging() for _ in loads]
        outcomes = lane.read(sources, records, staging)
        came = [i for i, outcome in enumerate(outcomes) if outcome is None]
        self._device.write([targets[i] for i in came], [staging[i] for i in came])
        self._spare.extend(staging)
        return outcomes

    def _read_in_time(self, lane: Lane, loads: list[Load], records: list[Record]) -> list[Outcome]:
        """Through memory that is not the device's: a read that comes too late must find nothing of ours to write into."""
        started = time.monotonic()
        chunks = lane.chunks(len(loads))
        outcomes: list[Outcome] = []
        begun: list[tuple[range, list[Bytes], Any]] = []
        for number, chunk in enumerate(chunks):
            for ahead in chunks[number + len(begun) : number + 2]:
                staging = [self._staging() for _ in ahead]
                future = lane.begin([loads[i].source for i in ahead], [records[i] for i in ahead], staging)
                begun.append((ahead, staging, future))
            _, staging, future = begun.pop(0)
            try:
                part: list[Outcome] = future.result(lane.left(started))
            except LateError:
                lane.late += 1
                for _, _, other in begun:
                    other.cancel()
                future.cancel()
                break
            came = [i for i, outcome in zip(chunk, part, strict=True) if outcome is None]
            self._device.write([loads[i].target for i in came], [staging[i - chunk.start] for i in came])
            self._spare.extend(staging)
            outcomes += part
            if len(came) < len(chunk):
                break
        return outcomes

    # -- down

    def write(self, tier: str, most: int = 64, *, demote: int = 0) -> int:
        """Makes about `most` copies into a tier, as the manager orders them; returns how many orders there were."""
        lane = self._lanes[tier]
        with lane.writing:
            if not lane.breaker.allows():
                return 0
            orders = self._kv.take_writes(tier, most, demote=demote)
            if not orders:
                lane.breaker.undone()
                return 0
            done: dict[int, Outcome] = {}
            try:
                done = self._put(lane, orders)
            except Exception:
                _LOG.exception("writing to tier %s failed", tier)
            finally:
                nobodys = []
                for order in orders:
                    there = order.transfer in done and done[order.transfer] is None
                    if not self._kv.finish_write(order, there) and there:
                        nobodys.append(order.target)
                if nobodys:
                    lane.tier.erase(nobodys)
                failed = [outcome for outcome in done.values() if outcome is not None]
                lane.went(not any(outcome.kind in _MEDIUM for outcome in failed))
            self._forget(lane)
            return len(orders)

    @contextmanager
    def paused(self, seconds: float) -> Iterator[None]:
        """No writes are under way meanwhile, but for those of a tier that did not end them in so many seconds."""
        until = time.monotonic() + seconds
        held = [lane for lane in self._lanes.values() if lane.writing.acquire(timeout=max(0.0, until - time.monotonic()))]
        try:
            yield
        finally:
            for lane in held:
                lane.writing.release()

    def _put(self, lane: Lane, orders: list[Write]) -> dict[int, Outcome]:
        """One outcome by transfer; none for what could not even be tried."""
        records: dict[int, Record] = {}
        with lane.naming:
            for order in orders:
                try:
                    content = self._kv.content(order.name)
                    lane.make_known(content.who)
                    records[order.transfer] = self._record(lane, order.name, content)
                except (StaleHandleError, StoreError):
                    continue
        buffers: dict[int, Any] = {}
        borrowed: list[Bytes] = []
        for origin, group in groupby(sorted(orders, key=lambda o: o.origin), key=lambda o: o.origin):
            part = [order for order in group if order.transfer in records]
            frames = [order.source for order in part]
            views = self._device.views(frames) if origin == "device" else None
            if views is None:
                views = [self._staging() for _ in part]
                borrowed += views
                if origin == "device":
                    self._device.read(frames, views)
                else:
                    part, views = self._fetch(self._lanes[origin], part, views)
            buffers.update((order.transfer, view) for order, view in zip(part, views, strict=True))
        tried = [order for order in orders if order.transfer in buffers]
        outcomes = lane.tier.write(
            [order.target for order in tried],
            [buffers[order.transfer] for order in tried],
            [records[order.transfer] for order in tried],
        )
        self._spare.extend(borrowed)
        return {order.transfer: outcome for order, outcome in zip(tried, outcomes, strict=True)}

    def _fetch(self, lane: Lane, orders: list[Write], into: list[Bytes]) -> tuple[list[Write], list[Bytes]]:
        """Blocks that go down from a lower tier to a lower one."""
        records = [self._record(lane, order.name) for order in orders]
        outcomes = lane.read([order.source for order in orders], records, into)
        came = [i for i, outcome in enumerate(outcomes) if outcome is None]
        return [orders[i] for i in came], [into[i] for i in came]

    # -- inside

    def _record(self, lane: Lane, name: BlockName, content: Content | None = None) -> Record:
        return lane.record(name, content or self._kv.content(name), self._kv.content, self._until)

    def _until(self, when: float) -> float:
        """A time of the manager's clock, on the wall's."""
        return math.inf if math.isinf(when) else self._wall() + (when - self._clock())

    def _staging(self) -> Bytes:
        """Memory for one block, on a page of its own, so that it can be read and written directly."""
        try:
            return self._spare.pop()
        except IndexError:
            size = self._device.block_bytes
            return np.frombuffer(mmap.mmap(-1, -(-size // mmap.PAGESIZE) * mmap.PAGESIZE), np.uint8)[:size]

    def _forget(self, lane: Lane) -> None:
        """Digests of blocks that are gone are thrown out before they pile up."""
        if len(lane.digests) <= 2 * lane.tier.frames + 1024:
            return
        for name in list(lane.digests):
            try:
                self._kv.content(name)
            except StaleHandleError:
                lane.digests.pop(name, None)
