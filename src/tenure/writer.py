"""Sealed blocks go down to a lower tier, one batch at a time and tier: read where they are, written, acknowledged or given up.
Part of the mover; it decides nothing: which blocks and into which frames is the manager's order."""

from __future__ import annotations

import logging
import time
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as LateError
from functools import partial
from itertools import groupby, pairwise
from typing import Any

from tenure.errors import RecordError, StaleHandleError, StoreError
from tenure.lane import Lane
from tenure.manager import BlockManager
from tenure.staging import Device, Staging
from tenure.tiers.base import Outcome
from tenure.tiers.record import Record
from tenure.transfers import BlockName, Write
from tenure.watch import Watch

__all__ = ["Writer"]

_LOG = logging.getLogger("tenure")
Done = dict[int, Outcome]
"""Outcomes by transfer; none of what could not even be tried."""


class Writer:
    """Down: from the device, or from a lane, to a lane below it."""

    def __init__(self, kv: BlockManager, device: Device, lanes: dict[str, Lane], staging: Staging) -> None:
        self._kv = kv
        self._device = device
        self._lanes = lanes
        self._staging = staging
        names = list(lanes)
        self._below = {tier: below for tier, below in pairwise(names) if lanes[below].back}
        self.batches = 0
        """how many have ended"""

    def write(self, tier: str, most: int, demote: int) -> int:
        """See Mover.write."""
        lane = self._lanes[tier]
        with lane.writing:
            if not lane.breaker.allows():
                return 0
            orders: list[Write] = []
            finished = 0
            went: bool | None = None  # nothing was tried
            try:
                for name in lane.due():
                    self._kv.offer_again(tier, name)
                self._make_clean(tier, demote + min(most, self._kv.waiting(tier)))
                orders = self._kv.take_writes(tier, most, demote=demote)
                for chunk in lane.chunks(len(orders)):
                    part, rest = orders[chunk.start : chunk.stop], orders[chunk.stop :]
                    watch = Watch(lane.deadline, partial(self._let_go, lane, part, rest))
                    finished, done = chunk.stop, {}
                    borrowed: list[Any] = []
                    try:
                        buffers = self._buffers(lane, part, borrowed)
                        with watch:
                            done = self._put(lane, part, buffers)
                    finally:
                        self._staging.give_back(borrowed)
                        self._finish(lane, part, done)
                        if watch.late:
                            finished = len(orders)
                    if any(map(lane.failure, done.values())):
                        went = False
                        break
                    went = True if done else went
                    if watch.late:
                        break
            except Exception:
                went = False
                _LOG.exception("writing to tier %s failed", tier)
            finally:
                self._finish(lane, orders[finished:], {})
                self.batches += bool(orders)
                lane.went(went)
            lane.names.forget()
            return len(orders)

    def _let_go(self, lane: Lane, under_way: list[Write], rest: list[Write]) -> None:
        """A write takes too long. What it writes was copied before, so that the device need not hold it; the rest is given up."""
        lane.too_late()
        lane.went(False)
        for order in under_way:
            self._kv.let_go(order)
        for order in rest:
            self._kv.finish_write(order, False)
        self.batches += 1

    def _make_clean(self, tier: str, coming: int) -> None:
        """Where the tier below is written to at eviction: what so many blocks will evict here goes down before them."""
        short = coming - self._kv.tier_stats(tier).free
        if short > 0 and tier in self._below:
            below = self._below[tier]
            self._lanes[below].in_time(lambda: self.write(below, 0, short), None)

    def wipe(self, lane: Lane) -> None:
        """See Mover.wipe."""
        with lane.writing:  # no frame is waiting for its block
            lane.tier.erase([frame for frame in range(lane.tier.frames) if self._kv.block(frame, lane.name) is None])

    def _finish(self, lane: Lane, orders: list[Write], done: Done) -> None:
        """Says of each order what came of it; a block that was written and does not count is taken out again."""
        nobodys = []
        for order in orders:
            there = order.transfer in done and done[order.transfer] is None
            if not self._kv.finish_write(order, there) and there:
                nobodys.append(order.target)
        if nobodys:
            lane.tier.erase(nobodys)

    def _buffers(self, lane: Lane, orders: list[Write], borrowed: list[Any]) -> dict[int, Any]:
        """The bytes of each block by transfer, none of what could not be read: the device's own, or in borrowed memory where they
        cannot be addressed or the tier may hang."""
        buffers: dict[int, Any] = {}
        for origin, group in groupby(sorted(orders, key=lambda o: o.origin), key=lambda o: o.origin):
            part = list(group)
            if origin == "device":
                frames = [order.source for order in part]
                views: list[Any] | None = self._device.views(frames) if lane.deadline is None else None
                if views is None:
                    views = self._staging.take(len(part))
                    borrowed += views
                    self._device.read(frames, views)
            else:
                part, views = self._fetch(self._lanes[origin], part, borrowed)
            buffers.update((order.transfer, view) for order, view in zip(part, views, strict=True))
        return buffers

    def _put(self, lane: Lane, orders: list[Write], buffers: dict[int, Any]) -> Done:
        records = self._records(lane, orders)
        tried = [order for order in orders if order.transfer in buffers and order.transfer in records]
        outcomes = lane.tier.write(
            [order.target for order in tried],
            [buffers[order.transfer] for order in tried],
            [records[order.transfer] for order in tried],
        )
        for order, outcome in zip(tried, outcomes, strict=True):
            if outcome is not None and outcome.kind == "codec":
                lane.names.hopeless.add(order.name)
            if outcome is not None and outcome.kind == "claimed":
                lane.put_off(order.name)
        return {order.transfer: outcome for order, outcome in zip(tried, outcomes, strict=True)}

    def _records(self, lane: Lane, orders: list[Write]) -> dict[int, Record]:
        """What names each block; none for one that cannot be named in this tier, nor for those after it."""
        records: dict[int, Record] = {}
        nameless: set[BlockName] = set()
        for order in orders:
            try:
                content = self._kv.content(order.name)
                if order.name in lane.names.hopeless or content.parent in lane.names.hopeless or content.parent in nameless:
                    nameless.add(order.name)  # without its bytes nothing after it can be kept
                    continue
                lane.names.make_known(content.who)
                records[order.transfer] = lane.names.record_to_write(order.name)
            except StaleHandleError:
                nameless.add(order.name)
            except StoreError:
                nameless.add(order.name)
                lane.refuse("namespace")
            except RecordError:
                lane.names.hopeless.add(order.name)
                lane.refuse("codec")
        return records

    def _fetch(self, lane: Lane, orders: list[Write], borrowed: list[Any]) -> tuple[list[Write], list[Any]]:
        """Blocks that come from another lower tier, as many as it gives in time."""
        if not orders or not lane.breaker.allows():
            return [], []
        went = False
        into = self._staging.take(len(orders))
        future = None
        try:
            records = [lane.names.record(order.name) for order in orders]
            future = lane.begin([order.source for order in orders], records, into)
            outcomes: list[Outcome] = future.result(lane.left(time.monotonic()))
            future = None
            borrowed += into
            went = not any(map(lane.failure, outcomes))
        except (LateError, CancelledError):
            lane.too_late()
            return [], []
        except StaleHandleError:  # one was invalidated meanwhile: the others come another time
            went = True
            return [], []
        finally:
            if future is not None:
                lane.give_up(future)
            lane.went(went)
        for order, outcome in zip(orders, outcomes, strict=True):
            if outcome is not None and lane.is_lost(order.name, outcome):
                self._kv.lose(lane.name, order.name)
        came = [i for i, outcome in enumerate(outcomes) if outcome is None]
        return [orders[i] for i in came], [into[i] for i in came]
