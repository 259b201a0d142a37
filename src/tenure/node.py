"""What one process runs: a manager, the bytes of its tiers, and what moves them. Used by engines instead of a bare BlockManager;
its rules are the manager's and the tiers' own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

from tenure.breaker import Breaker
from tenure.checks import positive
from tenure.errors import CapacityError, ConfigError
from tenure.identity import Identity
from tenure.lane import Lane, LaneStats
from tenure.lower import LowerTier
from tenure.manager import BlockManager
from tenure.mover import Device, Mover
from tenure.restore import restore
from tenure.sequence import Sequence
from tenure.tiers.base import Tier
from tenure.tiers.disk import DiskTier

__all__ = ["Level", "Node"]

_IDLE = 0.02
"""Seconds between two looks for something to write."""
_BATCH = 32
_PATIENCE = 1.0
"""Seconds that a request without room waits for copies under way to end."""
T = TypeVar("T")


@dataclass(frozen=True)
class Level:
    """A tier below the device, and how it is run.

    tier: where the bytes go. policy, params, write, uses: as LowerTier has them. deadline: seconds that a request waits for its
    loads from it (None: a tier that cannot hang, and is read at once). lossy_answers: what a lossy codec gives back may answer
    for the exact KV; without it only namespaces whose `quantisation` is the codec's name are kept there. failures: how many in
    a row open its breaker.
    """

    tier: Tier
    policy: str | object = "lru"
    params: Mapping[str, float] | None = None
    write: str = "through"
    uses: int = 2
    deadline: float | None = None
    lossy_answers: bool = False
    failures: int = 3


class Node(BlockManager):
    """A BlockManager whose hits have their bytes on the device when `sequence` returns, wherever they were.

    device: the arena of the frames (tenure.tiers.device.DeviceArena, or what behaves like it). levels: the tiers below, the
    fastest first; a tier on disk gives back what it kept, before anything is admitted. background: write down in threads of its
    own; else only `flush` does. settings: the manager's, without `frames`.

    Use it in a `with` block, or call `close`. Raises ConfigError for parts that do not fit together.
    """

    def __init__(
        self,
        device: Device,
        levels: Iterable[Level] = (),
        block_size: int = 16,
        *,
        background: bool = True,
        wall: Callable[[], float] = time.time,
        **settings: Any,
    ) -> None:
        self.levels = {level.tier.name: level for level in levels}
        for level in self.levels.values():
            _fits(level, device, block_size)
        lower = [
            LowerTier(name, level.tier.frames, level.policy, level.params, level.write, level.uses)
            for name, level in self.levels.items()
        ]
        super().__init__(device.frames, block_size, lower=lower, **settings)
        self.device = device
        self._lanes = {
            name: Lane(
                level.tier,
                level.deadline,
                Breaker(self._clock, level.failures),
                level.tier if isinstance(level.tier, DiskTier) else None,
            )
            for name, level in self.levels.items()
        }
        self._mover = Mover(self, device, self._lanes, self._clock, wall)
        for number, lane in enumerate(self._lanes.values(), 1):
            if isinstance(lane.tier, DiskTier):
                restore(self, number, lane, lane.tier, wall)
        self._back = any(level.write == "back" for level in self.levels.values())
        self._closing = threading.Event()
        self._wake = {name: threading.Event() for name in self._lanes}
        self._threads = [
            threading.Thread(target=self._write_down, args=(name,), name=f"tenure-to-{name}", daemon=True)
            for name in (self._lanes if background else ())
        ]
        for thread in self._threads:
            thread.start()

    def sequence(self, tokens: Any, who: Identity, **asked: Any) -> Sequence:
        """As BlockManager.sequence; every token of `hit_tokens` has its KV on the device when it returns. What a lower tier has
        and does not give back in time is computed again, and no error."""
        if self._back:
            self._make_clean(tokens)
        seq = super().sequence(tokens, who, **asked)
        try:
            self._mover.load(seq)
        except BaseException:
            seq.abort()
            raise
        for wake in self._wake.values():
            if not wake.is_set():
                wake.set()
        return seq

    def invalidate(self, **fields: Any) -> int:
        """As BlockManager.invalidate, in every tier, and for tiers on disk also after a restart."""
        for lane in self._lanes.values():
            lane.naming.acquire()
        try:
            count = super().invalidate(**fields)
            for identity in self._identities:
                if all(getattr(identity, name) == value for name, value in fields.items()):
                    for lane in self._lanes.values():
                        lane.drop(identity.namespace)
            return count
        finally:
            for lane in self._lanes.values():
                lane.naming.release()

    def flush(self) -> int:
        """Writes down now, in this thread, all that is due; returns how many copies that took. What the node's own threads are
        writing has been written too when it returns."""
        total = 0
        for name in self._lanes:
            while done := self._mover.write(name, _BATCH):  # it waits for the node's own thread, if that is writing
                total += done
        return total

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
        for wake in self._wake.values():
            wake.set()
        for thread in self._threads:
            thread.join(timeout=5)
        if flush:
            self.flush()
        for lane in self._lanes.values():
            lane.close()

    def __enter__(self) -> Node:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close(flush=kind is None)

    # -- inside

    def _patiently(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except CapacityError:
            with self._mover.paused(_PATIENCE):  # blocks being written down are held: without them there may be room
                return call()

    def _tiers_for(self, who: Identity) -> int:
        mask = 1
        for number, level in enumerate(self.levels.values(), 1):
            codec = level.tier.codec
            mask |= (codec.lossless or level.lossy_answers or who.quantisation == codec.name) << number
        return mask

    def _write_down(self, name: str) -> None:
        wake = self._wake[name]
        while not self._closing.is_set():
            if not (self.waiting(name) and self._mover.write(name, _BATCH)):
                wake.wait(_IDLE)
                wake.clear()

    def _make_clean(self, tokens: Any) -> None:
        """For tiers that are written to at eviction: what this request will evict goes down before it."""
        above = "device"
        for name, level in self.levels.items():
            if level.write == "back":
                free = self.tier_stats(above).free
                wanted = -(-_length(tokens) // self.block_size) if above == "device" else _BATCH
                if wanted > free:
                    self._mover.write(name, 0, demote=min(wanted - free, self.frames))
            above = name


def _length(tokens: Any) -> int:
    try:
        return len(tokens)
    except TypeError:
        return 0  # the admission says what is wrong with it


def _fits(level: Level, device: Device, block_size: int) -> None:
    tier = level.tier
    if tier.layout.block_size != block_size:
        raise ConfigError(f"tier {tier.name!r} holds blocks of {tier.layout.block_size} tokens, the node has {block_size}")
    if tier.block_bytes != device.block_bytes:
        raise ConfigError(
            f"a block has {tier.block_bytes} bytes in tier {tier.name!r} ({tier.layout}) and {device.block_bytes} on the device",
            tier=tier.block_bytes,
            device=device.block_bytes,
        )
    if level.deadline is not None:
        positive("deadline", level.deadline)
