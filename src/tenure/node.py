"""What one process runs: a manager, the bytes of its tiers, and what moves them. Used by engines instead of a bare BlockManager;
its rules are the manager's and the tiers' own."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, TypeVar

from tenure._core import as_tokens
from tenure.breaker import Breaker
from tenure.checks import positive
from tenure.cluster.shared import Shared
from tenure.errors import CapacityError, ConfigError
from tenure.identity import Identity
from tenure.lane import Lane, LaneStats
from tenure.lease import Lease
from tenure.level import Level, fitting
from tenure.manager import BlockManager
from tenure.mover import Device, Mover
from tenure.names import Names
from tenure.ownership import give_up, take_over
from tenure.restore import restore
from tenure.sequence import Match, Sequence
from tenure.tiers.disk import DiskTier
from tenure.tiers.pool import PoolTier

__all__ = ["Level", "Node"]

_IDLE = 0.02
"""Seconds between two looks for something to write."""
_BATCH = 32
_MARGIN = 32
"""Blocks that are kept ready to be evicted, above a tier that is written to at eviction."""
_AT_THE_END = 5.0
"""Seconds that closing waits for a batch, and for a thread in one, of a tier that may hang."""
_CALLERS = 4
"""Requests that may ask a pool at once."""
_PATIENCE = 1.0
"""Seconds that a request without room waits for copies under way to end."""
T = TypeVar("T")
_LOG = logging.getLogger("tenure")


class Node(BlockManager):
    """A BlockManager whose hits have their bytes on the device when `sequence` returns, wherever they were.

    device: the arena of the frames (tenure.tiers.device.DeviceArena, or what behaves like it). levels: the tiers below, the
    fastest first; a tier on disk gives back what it kept, before anything is admitted. background: write down in threads of its
    own; else only `flush` does, and `refresh`. settings: the manager's, without `frames`.

    With a pool among the levels, what other nodes have put there is hit too, and a request's KV is of the epochs that all nodes
    share: they are read again every `poll` seconds, and where the pool cannot be asked for `trust` seconds, nothing of before
    counts as proven. The node tells the pool what it serves, under its `name` (None: its host and process), and takes part in
    rollouts.

    Use it in a `with` block, or call `close`. Raises ConfigError for parts that do not fit together.
    """

    def __init__(
        self,
        device: Device,
        levels: Iterable[Level] = (),
        block_size: int = 16,
        *,
        background: bool = True,
        poll: float = 1.0,
        trust: float = 30.0,
        name: str | None = None,
        wall: Callable[[], float] = time.time,
        **settings: Any,
    ) -> None:
        self.device = device
        self.levels = fitting(levels, device, block_size)
        super().__init__(device.frames, block_size, lower=[level.lower() for level in self.levels.values()], **settings)
        self._wall = wall
        self._lanes = {name: self._lane(level) for name, level in self.levels.items()}
        self._mover = Mover(self, device, self._lanes)
        self._poll = positive("poll", poll)
        self.shared = self._in_common(self._poll, trust, name)
        take_over(self)
        try:
            for number, lane in enumerate(self._lanes.values(), 1):
                if isinstance(lane.tier, DiskTier):
                    restore(self, number, lane, lane.tier, wall)
            if self.shared is not None:
                for who in self._identities:  # of some epoch: what it was of has most likely none of its own
                    self.shared.epochs.meet(who.with_(epoch=0))
        except BaseException:
            give_up(self)
            raise
        first = next(iter(self._lanes.values()), None)
        self._made_clean = first.name if first is not None and first.back else None  # the tier that eviction goes down to
        self._closing = threading.Event()
        self._threads = [
            threading.Thread(target=self._write_down, args=(name,), name=f"tenure-to-{name}", daemon=True)
            for name in (self._lanes if background else ())
        ]
        if background and self.shared is not None:
            self._threads.append(threading.Thread(target=self._keep_up, args=(self.shared,), name="tenure-epochs", daemon=True))
        for thread in self._threads:
            thread.start()

    def sequence(self, tokens: Any, who: Identity, **asked: Any) -> Sequence:
        """As BlockManager.sequence; every token of `hit_tokens` has its KV on the device when it returns. What a lower tier has
        and does not give back in time is computed again, and no error."""
        seq = self._admit(tokens, self._now(tokens, who, asked.get("extra_keys"), asked.get("max_hit")), **asked)
        seq.who = who
        return seq

    def version(self, model: str, session: str) -> dict[str, Any]:
        """The identity fields (`who.with_(**fields)`) that a request of this session has while versions of a model change
        (tenure.cluster.rollouts): what was heard at the last poll; the pool is asked only before the first. Keep to it until the
        request ends. Empty: no rollout of the model is known, serve what you have. Raises ConfigError for a session that is no
        text."""
        return {} if self.shared is None else self.shared.member.version(model, session)

    def match(self, tokens: Any, who: Identity, *, extra_keys: Mapping[int, bytes] | None = None) -> Match:
        """As BlockManager.match."""
        return super().match(tokens, self._now(tokens, who, extra_keys), extra_keys=extra_keys)

    def invalidate(self, **fields: Any) -> int:
        """As BlockManager.invalidate, in every tier at once, and for tiers on disk also after a restart: durable when it returns,
        unless the tier did not answer in time or could not write (`lane_stats(tier).undropped`); then it is said in the log, and
        tried again before anything else is written for the namespace, and at the end.

        With a pool it is a new epoch for all nodes: at once for whoever asks the pool, within `poll` seconds elsewhere (`trust`
        where the pool cannot be asked). One field of tenure.cluster.epochs.FAMILIES reaches whatever has that value anywhere;
        other fields reach the namespaces that this node knows."""
        count = self._forget(self._spaces_of(fields))
        if self.shared is not None:
            count = max(count, self.shared.invalidate(fields))
        self._settle()
        return count

    def invalidate_here(self, **fields: Any) -> int:
        """As `invalidate`, on this node alone: other nodes, and the pool, are not told."""
        return self._forget(self._spaces_of(fields))

    def supersede(self, who: Identity) -> None:
        """Nobody on this node hits what is kept under this very identity any more; it costs the same however many there have
        been."""
        if (space := self._spaces.get(who.namespace)) is not None:
            self._forget([space])

    def clear(self) -> int:
        """As BlockManager.clear; what a tier on disk has dropped is not found after a restart either."""
        count = super().clear()
        for name, lane in self._lanes.items():
            if isinstance(lane.tier, DiskTier):
                self._mover.wipe(name)
        return count

    def flush(self) -> int:
        """Writes down now, in this thread, all that is due, however long that takes; returns how many copies there were. What the
        node's own threads are writing has been written too when it returns."""
        total = 0
        for name in self._lanes:
            while done := self._mover.write(name, _BATCH):  # it waits for the node's own thread, if that is writing
                total += done
        return total

    def refresh(self) -> bool:
        """What the node does at every poll, now: reads the epochs of what was asked for lately from the pool, hears of rollouts,
        says what it serves. False when the pool does not answer."""
        return self.shared is None or self.shared.refresh()

    def write_some(self, tier: str, most: int, until: float) -> int:
        """Writes down about `most` of what waits for a tier, now, unless that takes until after `until` (time.monotonic); returns
        how many copies there were, 0 when it took too long."""
        return self._mover.write_in_time(tier, most, patience=max(0.0, until - time.monotonic()))

    def lane_stats(self, tier: str) -> LaneStats:
        """How a lower tier's medium does. Raises ConfigError for a tier that is not there."""
        self._tier(tier)
        if tier not in self._lanes:
            raise ConfigError(f"{tier!r} is no lower tier: there are {', '.join(self._lanes) or 'none'}")
        return self._lanes[tier].stats()

    def close(self, *, flush: bool = True) -> None:
        """Ends the threads and closes the tiers; flush: first write down what is due. May be called again."""
        if self._closing.is_set():
            return
        self._closing.set()
        for thread in self._threads:
            thread.join(timeout=_AT_THE_END)
        for name in self._lanes:
            if flush:
                while self.waiting(name) and self._mover.write_in_time(name, _BATCH, patience=_AT_THE_END):
                    pass
            if flush and (left := self.waiting(name)):
                _LOG.warning("tier %s: %d blocks have not been written to it", name, left)
        if self.shared is not None:
            self.shared.member.leave()
        for lane in self._lanes.values():  # only now: a lower tier may have had to read from a faster one
            lane.close()
        give_up(self)

    def __enter__(self) -> Node:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close(flush=kind is None)

    # -- inside

    def _admit(self, tokens: Any, who: Identity, **asked: Any) -> Sequence:
        if self._made_clean is not None:
            self._make_clean(self._made_clean, tokens)
        seq = super().sequence(tokens, who, **asked)
        try:
            self._mover.load(seq)
        except BaseException:
            seq.abort()
            raise
        return seq

    def _now(
        self, tokens: Any, who: Identity, extra_keys: Mapping[int, bytes] | None = None, max_hit: int | None = None
    ) -> Identity:
        """The identity to ask the manager with: that of the present epochs, where nodes share them."""
        return who if self.shared is None else self.shared.find(tokens, who, extra_keys, max_hit)

    def _forget(self, spaces: list[int]) -> int:
        """Nobody hits these namespaces any more, in any tier; `_settle` makes it last. Returns how many they are."""
        gone = [self._identities[space].namespace for space in spaces]
        with contextlib.ExitStack() as gates:
            for lane in self._lanes.values():
                gates.enter_context(lane.names.gate)
            for space in spaces:  # from here on there are no hits, however long the tiers take
                self._core.invalidate(space, self._clock())
            for lane in self._lanes.values():
                lane.names.drop(gone)
        return len(spaces)

    def _settle(self) -> None:
        for lane in self._lanes.values():
            lane.settle()

    def _in_common(self, poll: float, trust: float, name: str | None) -> Shared | None:
        """What it shares with other nodes; None without a pool."""
        pools = [
            Shared(self, lane, lane.tier, self._clock, trust, poll, name)
            for lane in self._lanes.values()
            if isinstance(lane.tier, PoolTier)
        ]
        if len(pools) > 1:
            raise ConfigError(f"a node has one pool: there are {len(pools)}")
        return pools[0] if pools else None

    def _keep_up(self, shared: Shared) -> None:
        while not self._closing.wait(self._poll):
            try:
                shared.refresh()
                self._settle()  # what is superseded is dropped on disk too
            except Exception:
                _LOG.exception("keeping up with the pool's epochs goes on")

    def _lease(
        self, kind: int, tokens: Any, who: Identity, owner: str, ttl: float | None, extra_keys: Mapping[int, bytes] | None
    ) -> Lease:
        """As the manager's, after what lower tiers have of the prefix has been brought up: a lease is on device frames."""
        tokens = as_tokens(tokens)
        who = self._now(tokens, who, extra_keys)
        found = super().match(tokens, who, extra_keys=extra_keys)
        with contextlib.ExitStack() as brought:
            if found.lower:
                there = tokens[: found.hit_tokens + len(found.lower) * self.block_size]
                with contextlib.suppress(CapacityError):  # no room: what is on the device is what there is
                    brought.callback(self._admit(there, who, extra_keys=extra_keys).abort)
            return super()._lease(kind, tokens, who, owner, ttl, extra_keys)

    def _lane(self, level: Level) -> Lane:
        def wall(when: float) -> float:
            return math.inf if math.isinf(when) else self._wall() + (when - self._clock())

        lasting = level.tier if isinstance(level.tier, DiskTier) else None
        shared = isinstance(level.tier, PoolTier)
        names = Names(level.tier.layout, lasting, self.content, wall, shared=shared)
        breaker = Breaker(self._clock, level.failures)
        callers = _CALLERS if shared else 1
        return Lane(level.tier, level.deadline, breaker, names, back=level.write == "back", callers=callers)

    def _patiently(self, call: Callable[[], T]) -> T:
        ended = self._mover.batches
        try:
            return call()
        except CapacityError as error:
            short = error.numbers.get("short")
            if short is None or (ended == self._mover.batches and self._core.held_by_copies() < short):
                raise  # copies are not what is in the way
            with self._mover.paused(_PATIENCE):  # blocks being written down are held: without them there may be room
                return call()

    def _tiers_for(self, who: Identity) -> int:
        mask = 1
        for number, level in enumerate(self.levels.values(), 1):
            if level.may_hold(who):
                mask |= 1 << number
            else:
                _LOG.warning(
                    "tier %s is %s and keeps nothing of %s: give it lossy_answers=True, or say quantisation=%r in the identity",
                    *(level.tier.name, level.tier.codec.name, who.model, level.tier.codec.name),
                )
        return mask

    def _write_down(self, name: str) -> None:
        while not self._closing.is_set():
            done = 0
            try:
                waits = self.waiting(name) or self._lanes[name].has_due
                done = self._mover.write(name, _BATCH) if waits else self._clean_ahead(name)
            except Exception:
                _LOG.exception("writing to tier %s goes on", name)
            if not done:
                self._closing.wait(_IDLE)

    def _clean_ahead(self, name: str) -> int:
        """For a tier that is written to at eviction: what would be evicted next above it goes down before it is needed."""
        above = self.tiers[self.tiers.index(name) - 1]
        if not self._lanes[name].back or self.tier_stats(above).free >= _MARGIN:
            return 0
        return self._mover.write(name, 0, demote=_MARGIN)

    def _make_clean(self, name: str, tokens: Any) -> None:
        """What this request will evict goes down before it, to the tier below the device."""
        count = _length(tokens)
        short = -(-count // self.block_size) - self.counts().free
        if short > 0 and count <= self.frames * self.block_size:  # else it is refused in any case
            self._mover.write_in_time(name, 0, demote=short)


def _length(tokens: Any) -> int:
    try:
        return len(tokens)
    except TypeError:
        return 0  # the admission says what is wrong with it
