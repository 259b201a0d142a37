"""Blocks in a directory on disk that survives its process: verified at every read, restored by `scan`, never beyond its cap.
Called by whoever moves blocks. A write empties the frame's entry, writes the payload, then the entry: whole or not there."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Container, Iterator, Sequence
from pathlib import Path

from tenure.checks import integer
from tenure.errors import ConfigError, StoreError, TierError
from tenure.tiers.base import Outcome, Tier
from tenure.tiers.codec import Codec, Raw
from tenure.tiers.files import PAGE, Lock, aligned, direct_flag, empty_buffer, space_taken
from tenure.tiers.index import Index
from tenure.tiers.layout import BlockLayout
from tenure.tiers.namespaces import Namespaces
from tenure.tiers.places import Failed, Places
from tenure.tiers.record import Record, checked_key, pack
from tenure.tiers.store import LOCK, Format, open_store

__all__ = ["DiskTier"]

_TOGETHER = 8 << 20
"""Bytes that are hashed and moved together: few enough to be still in the processor's cache for the second of the two."""


class DiskTier(Tier):
    """As many blocks as fit into `cap` bytes of disk, everything counted: slots, entries, tables, temporary and foreign files.

    path: the store's directory, made when missing; one owner at a time. key: 16 to 64 secret bytes; records are then signed
    (BLAKE2b, about 1 GB/s), unsigned and wrongly signed ones refused. sync: what `write` and `erase` have done survives a loss of
    power too, not only the end of the process; without it a loss of power costs blocks, and never gives a wrong one. direct: pass
    the page cache by; None for where the file system can. segment_bytes: of one file of a new store.

    Raises ConfigError for a bad setting; StoreError when the store is in use or of another format, when the cap is too small or
    the space cannot be reserved, and when the directory cannot be used.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        layout: BlockLayout,
        cap: int,
        *,
        codec: Codec | None = None,
        key: bytes | None = None,
        sync: bool = False,
        direct: bool | None = None,
        segment_bytes: int | None = None,
        name: str = "disk",
    ) -> None:
        super().__init__(name, layout, codec or Raw())
        self.capacity_bytes = integer("cap", cap, 1, 1 << 62)
        largest = integer("segment_bytes", max(1 << 30, cap // 256) if segment_bytes is None else segment_bytes, 1, 1 << 62)
        wanted = Format.of(layout, self.codec, checked_key(key), largest)
        self.path = Path(path)
        self._key = key
        self._spare: deque[memoryview] = deque()
        try:
            with contextlib.ExitStack() as opening:
                self.path.mkdir(mode=0o700, exist_ok=True)
                self._lock = Lock(self.path / LOCK)
                opening.callback(self._lock.release)
                store = open_store(self.path, wanted, cap)
                self._namespaces = Namespaces(store.namespaces, store.room)
                flag = direct_flag(next(iter(store.segments()))) if direct is not False else 0
                if direct and not flag:
                    raise ConfigError(f"the file system of {self.path} has no direct I/O: leave `direct` out, or False")
                index = [_opened(opening, store.index, 0)]  # the page cache is right for many small entries
                segments = [_opened(opening, segment, flag) for segment in store.segments()]
                self._files = opening.pop_all()
        except OSError as error:
            raise StoreError(f"the store {self.path} cannot be opened: {error}") from error
        self.direct = bool(flag)
        self.frames = store.frames
        self._slot = store.format.slot_bytes
        entries = Places(str(self.path), index, store.format.entry_bytes, self.frames, sync)
        self._index = Index(entries, self.frames, layout, self.codec.id, self._slot, self._namespaces)
        self._slots = Places(str(self.path), segments, self._slot, store.format.segment_slots, sync)
        self._at_once = max(1, _TOGETHER // self._slot)
        if self._namespaces.damaged:
            self._refuse("torn")

    # -- what is in it

    def scan(self) -> Iterator[tuple[int, Record]]:
        """Every frame with a whole record, ascending. To be run through after opening, before the first write.

        What is not whole, of another codec, or of a namespace that was dropped is counted as refused, and its frame emptied.
        Payloads are proven when they are read. Entries that the disk cannot give are counted as "io" and left out.
        """
        parts = self._index.scan()
        while True:
            if not self._enter():
                return
            try:
                part = next(parts, None)
            finally:
                self._leave()
            if part is None:
                return
            found, refused = part
            for error in refused.values():
                self._refuse(error.kind)
            yield from ((frame, envelope.record) for frame, envelope in found.items())

    def put_namespace(self, namespace: bytes, value: bytes) -> None:
        """Makes a namespace (32 bytes) known, with a value for the caller to find again; to be done before its first block is
        written. Durable when this returns. Raises ConfigError; StoreError when there is no room or it cannot be written."""
        self._still_ours()
        self._namespaces.put(namespace, value)

    def namespaces(self) -> dict[bytes, bytes]:
        """Every known namespace and its value."""
        return self._namespaces.values()

    def drop_namespace(self, namespace: bytes) -> bool:
        """None of the namespace's blocks counts from now on, nor after any crash; its frames are emptied by the next `scan` or
        written over. Durable when this returns. Returns whether it was known. Raises StoreError when it cannot be written."""
        self._still_ours()
        return self._namespaces.drop(namespace)

    def keep_namespaces(self, namespaces: Container[bytes]) -> int:
        """As `drop_namespace` for all others, in one write; returns how many those were."""
        self._still_ours()
        return self._namespaces.keep(namespaces)

    def used_bytes(self) -> int:
        """Bytes of disk that the directory takes now."""
        return space_taken(self.path)

    # -- what every tier does

    def _write(self, frames: list[int], blocks: list[memoryview], records: Sequence[Record]) -> list[Outcome]:
        jobs = {frame: (block, record) for frame, block, record in zip(frames, blocks, records, strict=True)}
        failed: Failed = {}
        for part in self._parts(frames):
            borrowed: list[memoryview] = []
            try:
                failed |= self._write_part({frame: jobs[frame] for frame in part}, borrowed)
            finally:
                self._spare.extend(borrowed)
        return [failed.get(frame) for frame in frames]

    def _write_part(self, jobs: dict[int, tuple[memoryview, Record]], borrowed: list[memoryview]) -> Failed:
        lives = {frame: self._namespaces.life(record.namespace) for frame, (_, record) in jobs.items()}  # as it was at the start
        failed = self._index.empty(jobs)
        entries: dict[int, bytes] = {}
        pieces: dict[int, memoryview] = {}
        for frame, (block, record) in jobs.items():
            if frame in failed:
                continue
            try:
                payload, entries[frame] = self._encoded(frame, block, record, lives[frame])
            except TierError as error:
                failed[frame] = error
            else:
                pieces[frame] = self._piece(payload, borrowed)
        failed |= self._slots.put(pieces)
        half_done = self._index.put({frame: entry for frame, entry in entries.items() if frame not in failed})
        if half_done:
            self._index.empty(sorted(half_done))  # if this fails too, the checksum of the entry tells
            failed |= half_done
        self._count("bytes_written", sum(len(piece) for frame, piece in pieces.items() if frame not in failed))
        return failed

    def _encoded(self, frame: int, block: memoryview, record: Record, life: bytes | None) -> tuple[memoryview, bytes]:
        if life is None:
            raise TierError("namespace", f"frame {frame}: the block's namespace is not known: put_namespace first", frame=frame)
        payload = memoryview(self.codec.encode(block, self.layout))
        return payload, pack(record, self.codec.id, payload, life, self._key)

    def _piece(self, payload: memoryview, borrowed: list[memoryview]) -> memoryview:
        """The payload in a form that can go to the disk: itself, or a copy in aligned memory, padded with zeros."""
        if not self.direct or aligned(payload):
            return payload
        slot, whole = self._borrow(borrowed), _to_page(len(payload))
        slot[: len(payload)] = payload
        slot[len(payload) : whole] = bytes(whole - len(payload))
        return slot[:whole]

    def _read(self, frames: list[int], records: Sequence[Record], into: list[memoryview]) -> list[Outcome]:
        jobs = {frame: (record, out) for frame, record, out in zip(frames, records, into, strict=True)}
        failed: Failed = {}
        for part in self._parts(frames):
            borrowed: list[memoryview] = []
            try:
                failed |= self._read_part({frame: jobs[frame] for frame in part}, borrowed)
            finally:
                self._spare.extend(borrowed)
        return [failed.get(frame) for frame in frames]

    def _read_part(self, jobs: dict[int, tuple[Record, memoryview]], borrowed: list[memoryview]) -> Failed:
        envelopes, failed = self._index.get(list(jobs))
        pieces: dict[int, memoryview] = {}
        for frame, (record, out) in jobs.items():
            if frame in failed:
                continue
            if envelopes[frame].record != record:
                failed[frame] = TierError("foreign", f"frame {frame} of {self.path} holds another block", frame=frame)
            else:
                pieces[frame] = self._landing(out, envelopes[frame].length, borrowed)
        failed |= self._slots.get(pieces, {frame: envelopes[frame].length for frame in pieces})
        for frame, piece in pieces.items():
            if frame in failed:
                continue
            out, envelope = jobs[frame][1], envelopes[frame]
            payload = piece[: envelope.length]
            try:
                envelope.verify(payload, self._key)
                if piece is not out:
                    self.codec.decode(payload, self.layout, out)
            except TierError as error:
                failed[frame] = error
        self._count("bytes_read", sum(len(piece) for frame, piece in pieces.items() if frame not in failed))
        return failed

    def _landing(self, out: memoryview, length: int, borrowed: list[memoryview]) -> memoryview:
        """Where a payload is read to: the caller's own buffer when it can be, else aligned memory."""
        if isinstance(self.codec, Raw) and length == len(out) and (not self.direct or aligned(out)):
            return out
        return self._borrow(borrowed)[: _to_page(length) if self.direct else length]

    def _erase(self, frames: list[int]) -> list[Outcome]:
        failed = self._index.empty(sorted(frames))
        return [failed.get(frame) for frame in frames]

    def _close(self) -> None:
        self._files.close()
        self._spare.clear()

    # -- inside

    def _parts(self, frames: list[int]) -> Iterator[list[int]]:
        """The frames in ascending order, as many at once as are to be moved together."""
        ordered = sorted(frames)
        for start in range(0, len(ordered), self._at_once):
            yield ordered[start : start + self._at_once]

    def _borrow(self, borrowed: list[memoryview]) -> memoryview:
        """Aligned memory of a slot's size, until the part is done."""
        try:
            borrowed.append(self._spare.pop())
        except IndexError:
            borrowed.append(empty_buffer(self._slot))
        return borrowed[-1]

    def _still_ours(self) -> None:
        if not self._open or not self._lock.still_ours():
            raise StoreError(f"the store {self.path} is closed, or was removed while it was open")


def _opened(opening: contextlib.ExitStack, path: Path, flag: int) -> int:
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | flag)
    opening.callback(os.close, fd)
    return fd


def _to_page(nbytes: int) -> int:
    return -(-nbytes // PAGE) * PAGE
