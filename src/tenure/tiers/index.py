"""The entries of a store: one place a frame, with the record of its block or zeros. What cannot be proven does not count.
Called by the disk tier; it reads and writes no payload."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tenure.errors import RecordError, TierError
from tenure.tiers.layout import BlockLayout
from tenure.tiers.namespaces import Namespaces
from tenure.tiers.places import Failed, Places
from tenure.tiers.record import Envelope, unpack

__all__ = ["Index"]


_SCAN_BYTES = 1 << 20
_NOTHING = bytes(8)


class Index:
    """Entries of blocks of one layout and codec, in slots of `slot_bytes`; each counts in its namespace's present life only."""

    def __init__(self, places: Places, frames: int, layout: BlockLayout, codec: int, slot_bytes: int, spaces: Namespaces) -> None:
        self._places = places
        self._frames = frames
        self._layout = layout
        self._codec = codec
        self._slot_bytes = slot_bytes
        self._namespaces = spaces

    def get(self, frames: Sequence[int]) -> tuple[dict[int, Envelope], Failed]:
        """The envelopes in these frames (ascending) that count, and why the others do not."""
        stride = self._places.stride
        whole = memoryview(bytearray(len(frames) * stride))
        entries = {frame: whole[number * stride : (number + 1) * stride] for number, frame in enumerate(frames)}
        failed = self._places.get(entries, dict.fromkeys(frames, stride))
        found: dict[int, Envelope] = {}
        for frame, entry in entries.items():
            if frame not in failed:
                try:
                    found[frame] = self._counting(frame, entry)
                except TierError as error:
                    failed[frame] = error
        return found, failed

    def put(self, entries: dict[int, bytes]) -> Failed:
        """Writes packed envelopes, by frame in ascending order."""
        stride = self._places.stride
        return self._places.put({frame: memoryview(entry.ljust(stride, b"\0")) for frame, entry in entries.items()})

    def empty(self, frames: Iterable[int]) -> Failed:
        """Makes nothing count that is in these frames, ascending."""
        return self._places.put(dict.fromkeys(frames, memoryview(bytes(self._places.stride))))

    def scan(self) -> Iterator[tuple[dict[int, Envelope], Failed]]:
        """`get` of all frames, part by part; what is there and does not count is emptied (where that fails, it is refused again
        next time)."""
        step = max(1, _SCAN_BYTES // self._places.stride)
        for first in range(0, self._frames, step):
            found, failed = self.get(range(first, min(first + step, self._frames)))
            refused = {frame: error for frame, error in failed.items() if error.kind != "empty"}
            self.empty(sorted(refused))
            yield found, refused

    def _counting(self, frame: int, entry: memoryview) -> Envelope:
        """The envelope in an entry, if it counts. Raises TierError."""
        if entry[:8] == _NOTHING:
            raise TierError("empty", f"frame {frame} is empty", frame=frame)
        try:
            envelope = unpack(entry)
        except RecordError as error:
            raise TierError("torn", f"the entry of frame {frame}: {error}", frame=frame) from None
        if envelope.record.layout != self._layout or envelope.codec != self._codec or envelope.length > self._slot_bytes:
            raise TierError("foreign", f"frame {frame} has a block of another layout, codec or size", frame=frame)
        if envelope.life != self._namespaces.life(envelope.record.namespace):
            raise TierError("namespace", f"frame {frame} has a block of a namespace that was dropped", frame=frame)
        return envelope
