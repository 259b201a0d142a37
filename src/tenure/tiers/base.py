"""What every tier is: an array of frames, each empty or holding one block's bytes under its record; any failure is a typed miss.
Called by whoever moves blocks, who decides what goes where; a tier has no policy, no threads, no index by content."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import numpy.typing as npt

from tenure.checks import integer
from tenure.errors import ConfigError, TierError
from tenure.tiers.codec import Codec
from tenure.tiers.layout import BlockLayout
from tenure.tiers.record import Record

__all__ = ["KINDS", "Buffer", "Counters", "Outcome", "Tier"]

T = TypeVar("T", bound="Tier")
Buffer: TypeAlias = "bytes | bytearray | memoryview | npt.NDArray[Any]"
"""Anything contiguous with the buffer protocol."""
Outcome: TypeAlias = "TierError | None"
"""Of one block: None when it was done."""

KINDS = {
    "empty": "nothing is in the frame",
    "torn": "what is in the frame was not written whole, or was cut or overwritten",
    "checksum": "the payload is not what was written",
    "foreign": "the frame holds another block than the one asked for, or one of another codec or layout",
    "signature": "the record is unsigned or wrongly signed",
    "namespace": "the block's namespace is not known to the store, or was dropped",
    "codec": "the block cannot be encoded, or its payload not decoded",
    "claimed": "another node is writing the block",
    "late": "the claim had run out, or was another's, or the block had expired, when it was to be committed",
    "full": "the medium has no space left",
    "io": "the medium failed",
    "closed": "the tier is closed",
}
"""Every kind of TierError, and what it means."""


@dataclass(frozen=True, slots=True)
class Counters:
    """What a tier has done so far: blocks read, written and erased, bytes moved each way, refusals by kind."""

    reads: int
    writes: int
    erased: int
    bytes_read: int
    bytes_written: int
    refused: Mapping[str, int]


class Tier(ABC):
    """`frames` places for blocks of `layout`, numbered from 0, written down with `codec`.

    `block_bytes`: raw bytes of a block; every buffer has this length. `capacity_bytes`: the most that the tier ever takes of its
    medium, everything counted. Calls may come from several threads as long as no two of them name the same frame.

    A call with a wrong argument (a frame out of range or named twice, a buffer of the wrong size, a record of another layout)
    raises ConfigError and does nothing. Everything else that goes wrong is the outcome of one block.
    """

    name: str
    frames: int
    block_bytes: int
    capacity_bytes: int
    layout: BlockLayout
    codec: Codec

    def __init__(self, name: str, layout: BlockLayout, codec: Codec) -> None:
        if not isinstance(layout, BlockLayout):
            raise ConfigError(f"layout is {layout!r}: a BlockLayout is needed")
        if not isinstance(codec, Codec):
            raise ConfigError(f"codec is {codec!r}: a Codec is needed (Raw(), Zstd(), Int8(), ...)")
        self.name = name
        self.layout = layout
        self.codec = codec
        self.block_bytes = layout.nbytes
        self._gate = threading.Lock()
        self._open = True
        self._inside = 0
        self._totals: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()

    def write(self, frames: Sequence[int], blocks: Sequence[Buffer], records: Sequence[Record]) -> list[Outcome]:
        """Puts blocks into frames, whatever was in them; one outcome a block. A frame whose block failed is empty."""
        places = self._places(frames)
        self._same_length(places, "blocks", blocks)
        self._same_length(places, "records", records)
        self._checked(records)
        views = [self._bytes(block) for block in blocks]
        return self._done("writes", len(places), lambda: self._write(places, views, records))

    def read(self, frames: Sequence[int], records: Sequence[Record], into: Sequence[Buffer]) -> list[Outcome]:
        """Fills `into` from frames; one outcome a block: None only when the frame holds this very record and its payload is
        proven. The buffer of a block that failed may hold anything."""
        places = self._places(frames)
        self._same_length(places, "records", records)
        self._same_length(places, "into", into)
        self._checked(records)
        views = [self._bytes(buffer, writable=True) for buffer in into]
        return self._done("reads", len(places), lambda: self._read(places, records, views))

    def erase(self, frames: Sequence[int]) -> list[Outcome]:
        """Empties frames; one outcome a frame. An error means that its block may still be found by a later `scan`."""
        places = self._places(frames)
        return self._done("erased", len(places), lambda: self._erase(places))

    @property
    def counters(self) -> Counters:
        """What it has done so far."""
        with self._gate:
            total = self._totals
            return Counters(
                total["reads"],
                total["writes"],
                total["erased"],
                total["bytes_read"],
                total["bytes_written"],
                dict(self._refused),
            )

    def close(self) -> None:
        """Refuses calls from now on; what is held goes back as soon as nobody is inside. May be called again."""
        with self._gate:
            last = self._open and not self._inside
            self._open = False
        if last:
            self._close()

    def __enter__(self: T) -> T:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # -- what a tier adds; frames are in range and distinct, buffers of the right size

    @abstractmethod
    def _write(self, frames: list[int], blocks: list[memoryview], records: Sequence[Record]) -> list[Outcome]: ...

    @abstractmethod
    def _read(self, frames: list[int], records: Sequence[Record], into: list[memoryview]) -> list[Outcome]: ...

    @abstractmethod
    def _erase(self, frames: list[int]) -> list[Outcome]: ...

    @abstractmethod
    def _close(self) -> None: ...

    def _differs(self, frame: int, held: Record | None, record: Record) -> Outcome:
        """What is wrong with what a frame in memory holds; None when it is the very block."""
        if held is None:
            return TierError("empty", f"frame {frame} of {self.name} is empty", frame=frame)
        if held != record:
            return TierError("foreign", f"frame {frame} of {self.name} holds another block", frame=frame)
        return None

    def _count(self, what: str, amount: int) -> None:
        with self._gate:
            self._totals[what] += amount

    def _refuse(self, kind: str) -> None:
        with self._gate:
            self._refused[kind] += 1

    # -- inside

    def _done(self, what: str, blocks: int, work: Callable[[], list[Outcome]]) -> list[Outcome]:
        if self._enter():
            try:
                outcomes = work()
            finally:
                self._leave()
        else:
            outcomes = [TierError("closed", f"the tier {self.name} is closed") for _ in range(blocks)]
        failed = [outcome for outcome in outcomes if outcome is not None]
        self._count(what, len(outcomes) - len(failed))
        for outcome in failed:
            self._refuse(outcome.kind)
        return outcomes

    def _enter(self) -> bool:
        """Keeps what the tier holds from going back until `_leave`; False when it is closed."""
        with self._gate:
            self._inside += self._open
            return self._open

    def _leave(self) -> None:
        with self._gate:
            self._inside -= 1
            last = not self._open and not self._inside
        if last:
            self._close()

    def _places(self, frames: Sequence[int]) -> list[int]:
        places = [integer("frame", frame, 0, self.frames - 1) for frame in frames]
        if len(set(places)) != len(places):
            twice = [frame for frame, times in Counter(places).items() if times > 1]
            raise ConfigError(f"frames named more than once in one call: {twice}")
        return places

    def _checked(self, records: Sequence[Record]) -> None:
        for record in records:
            if not isinstance(record, Record):
                raise ConfigError(f"records holds {record!r}: a Record is needed")
            if record.layout is not self.layout and record.layout != self.layout:
                raise ConfigError(f"a record of {record.layout}: this tier holds {self.layout}")

    def _same_length(self, places: list[int], name: str, values: Sequence[Any]) -> None:
        if len(values) != len(places):
            raise ConfigError(f"{len(places)} frames but {len(values)} {name}: one for each frame is needed")

    def _bytes(self, buffer: Any, writable: bool = False) -> memoryview:
        try:
            view = memoryview(buffer).cast("B")
        except (TypeError, ValueError) as error:
            raise ConfigError(f"a buffer of type {type(buffer).__name__} cannot be taken: {error}") from None
        if len(view) != self.block_bytes:
            raise ConfigError(
                f"a buffer of {len(view)} bytes: a block of {self.layout} has {self.block_bytes}",
                found=len(view),
                needed=self.block_bytes,
            )
        if writable and view.readonly:
            raise ConfigError("a buffer to read into is read-only")
        return view
