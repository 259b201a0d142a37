"""A store's directory: its format, how many frames fit under its cap, and files that have exactly that size, all of it reserved.
Called by the disk tier when it opens; it reads and writes no blocks.

    store.tenure             what the store is of; written last, so that a store that has it is whole
    index.tenure             one entry a frame: the record of its block, or zeros
    segment-000000.tenure    slots for payloads, `segment_slots` a file
    namespaces.tenure        see namespaces.py
    lock.tenure              the owner's process id, locked while it lives
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import struct
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path

from tenure.errors import StoreError
from tenure.tiers.codec import Codec
from tenure.tiers.files import PAGE, replace_file, reserve, size_of, space_taken, write_at
from tenure.tiers.layout import BlockLayout
from tenure.tiers.record import checksum, entry_bytes

__all__ = ["LOCK", "Format", "Store", "open_store"]

LOCK = "lock.tenure"
_STORE, _INDEX, _NAMESPACES = "store.tenure", "index.tenure", "namespaces.tenure"
_OURS = re.compile(r"(store|index|namespaces|lock|segment-\d{6})\.tenure(\.tmp)?")
_MAGIC = b"TNRSTORE"
_VERSION = 1
_HEAD = struct.Struct("<8sH")  # magic and version: the same in every version
_FORMAT = struct.Struct("<8s8s6IQI16sQ")  # as the fields of Format
_CHECK = 16
_FIXED = 4 * PAGE  # the directory, the store's description and its temporary copy, the lock
_SEGMENT_SPARE, _SLOT_SPARE = 4 * PAGE, 32  # what file systems take to map a file in pieces (ext4: 12 bytes a piece)
_LEAST_ROOM, _MOST_ROOM = 64 << 10, 4 << 20


@dataclass(frozen=True, slots=True)
class Format:
    """What a store is made for. Of two that differ in anything but `segment_slots` neither reads the other's store."""

    codec: str
    dtype: str
    block_size: int
    layers: int
    heads: int
    head_size: int
    shard: int
    shards: int
    slot_bytes: int
    entry_bytes: int
    key_check: bytes
    segment_slots: int = field(compare=False)

    @classmethod
    def of(cls, layout: BlockLayout, codec: Codec, key: bytes | None, segment_bytes: int) -> Format:
        """The format of a new store."""
        size = layout.layout
        slot = -(-codec.bound(layout) // PAGE) * PAGE
        check = bytes(16) if key is None else hashlib.blake2b(digest_size=16, key=key, person=b"tenure.store.1").digest()
        model = (size.layers, size.heads, size.head_size, size.shard, size.shards)
        slots = max(1, segment_bytes // slot)
        return cls(codec.name, layout.dtype, layout.block_size, *model, slot, entry_bytes(layout.block_size), check, slots)

    def pack(self) -> bytes:
        """As bytes, with magic, version and checksum."""
        codec, dtype, *rest = astuple(self)
        body = _HEAD.pack(_MAGIC, _VERSION) + _FORMAT.pack(codec.encode(), dtype.encode(), *rest)
        return body + checksum(body)

    @classmethod
    def unpack(cls, data: bytes, path: Path) -> Format:
        """From a file's content. Raises StoreError for another version and for anything else."""
        if len(data) >= _HEAD.size:
            magic, version = _HEAD.unpack_from(data)
            if magic == _MAGIC and version != _VERSION:
                raise StoreError(
                    f"{path} is of format version {version}: this reads version {_VERSION}", found=version, wanted=_VERSION
                )
        if len(data) != _HEAD.size + _FORMAT.size + _CHECK or checksum(data[:-_CHECK]) != data[-_CHECK:]:
            raise StoreError(f"{path} is damaged, or is no store's: remove {path.parent} to start anew")
        codec, dtype, *rest = _FORMAT.unpack_from(data, _HEAD.size)
        if rest[-1] < 1:
            raise StoreError(f"{path} has segments of {rest[-1]} slots: remove {path.parent} to start anew")
        return cls(codec.rstrip(b"\0").decode("ascii", "replace"), dtype.rstrip(b"\0").decode("ascii", "replace"), *rest)

    def same_as(self, wanted: Format, path: Path) -> None:
        """Raises StoreError that names what differs, with both values."""
        for f in fields(self):
            found, asked = getattr(self, f.name), getattr(wanted, f.name)
            if not f.compare or found == asked:
                continue
            if f.name == "key_check":
                raise StoreError(f"the store {path} was made with another key, or one of the two has none")
            raise StoreError(
                f"the store {path} has {f.name.replace('_', ' ')} {found}: {asked} was asked for; use another directory for it",
                differs=f.name,
                found=found,
                wanted=asked,
            )


@dataclass(frozen=True, slots=True)
class Store:
    """An open store's sizes and paths. `room`: bytes that the table of namespaces may have."""

    path: Path
    format: Format
    frames: int
    room: int

    @property
    def index(self) -> Path:
        """The file of entries."""
        return self.path / _INDEX

    @property
    def namespaces(self) -> Path:
        """The table of namespaces."""
        return self.path / _NAMESPACES

    def segments(self) -> dict[Path, int]:
        """The files of slots in order, and the bytes of each."""
        slots = self.format.segment_slots
        return {
            self.path / f"segment-{number:06}.tenure": min(slots, self.frames - number * slots) * self.format.slot_bytes
            for number in range(-(-self.frames // slots))
        }


def open_store(path: Path, wanted: Format, cap: int) -> Store:
    """Makes the store, or opens it and fits it to the cap: it grows, or loses its last frames. The caller holds its lock.

    What a crash left behind is removed. Raises StoreError when the store is of another format, the cap too small or the disk too
    full, and has then removed nothing that counts; OSError when the directory cannot be used.
    """
    for temporary in path.glob("*.tenure.tmp"):
        temporary.unlink()
    description = path / _STORE
    if description.exists():
        with description.open("rb") as file:
            form = Format.unpack(file.read(PAGE), description)
        form.same_as(wanted, path)
    else:
        form = wanted
        for orphan in path.iterdir():  # of a creation that did not come to its end
            if _OURS.fullmatch(orphan.name) and orphan.name != LOCK:
                orphan.unlink()
    room = min(max(cap // 128, _LEAST_ROOM), _MOST_ROOM)
    store = Store(path, form, _frames_under(cap, form, room, _others(path)), room)
    if size_of(store.namespaces) > room:
        raise StoreError(
            f"the table of namespaces in {path} has {size_of(store.namespaces)} bytes: a cap of {cap} gives it room for {room}",
            found=size_of(store.namespaces),
            room=room,
        )
    _fit(store)
    if not description.exists():
        replace_file(description, form.pack())
    return store


def _others(path: Path) -> int:
    """Bytes of what else lies in the directory: it counts against the cap."""
    return sum(space_taken(other) for other in path.iterdir() if not _OURS.fullmatch(other.name))


def _frames_under(cap: int, form: Format, room: int, others: int) -> int:
    """The most frames with which everything on disk stays within the cap. Raises StoreError when there is no room for one."""

    def total(frames: int) -> int:
        index = -(-frames * form.entry_bytes // PAGE) * PAGE
        segments = -(-frames // form.segment_slots) * _SEGMENT_SPARE
        return _FIXED + 2 * room + others + index + segments + frames * (form.slot_bytes + _SLOT_SPARE)

    low, high = 0, cap // form.slot_bytes + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if total(middle) <= cap else (low, middle)
    if not low:
        raise StoreError(f"a cap of {cap} bytes is too small for one block: {total(1)} are needed", cap=cap, needed=total(1))
    return low


def _fit(store: Store) -> None:
    """Gives every file its size. Raises StoreError when the disk is too full; nothing has then grown."""
    index_bytes = store.frames * store.format.entry_bytes
    needed = store.frames * store.format.slot_bytes + index_bytes - space_taken(store.path)
    disk = os.statvfs(store.path)
    if needed > disk.f_bfree * disk.f_frsize:  # rather than to fill the disk first
        raise _no_space(store, needed, "not tried")
    segments = store.segments()
    if size_of(store.index) > index_bytes:
        os.truncate(store.index, index_bytes)  # first the entries, then what they tell of
    for old in store.path.glob("segment-*.tenure"):
        if old not in segments:
            old.unlink()
    _clear_lost(store, segments)
    before: dict[Path, int | None] = {}
    try:
        for path, nbytes in {store.index: index_bytes, **segments}.items():
            before[path] = size_of(path) if path.exists() else None
            reserve(path, nbytes)
    except OSError as error:
        for path, nbytes_before in before.items():
            with contextlib.suppress(OSError):
                if nbytes_before is None:
                    path.unlink()
                elif nbytes_before < size_of(path):
                    os.truncate(path, nbytes_before)
        raise _no_space(store, needed, error) from error


def _no_space(store: Store, needed: int, why: object) -> StoreError:
    disk = os.statvfs(store.path)
    free = disk.f_bavail * disk.f_frsize
    return StoreError(
        f"{needed} more bytes cannot be reserved for {store.path}, {free} are free: give it a smaller cap ({why})",
        needed=needed,
        free=free,
    )


def _clear_lost(store: Store, segments: dict[Path, int]) -> None:
    """Empties the entries of frames whose slots are gone, before new slots take their place."""
    entry, slot = store.format.entry_bytes, store.format.slot_bytes
    known = size_of(store.index) // entry
    if not known:
        return
    fd = os.open(store.index, os.O_WRONLY | os.O_CLOEXEC)
    try:
        for number, (path, nbytes) in enumerate(segments.items()):
            first = number * store.format.segment_slots
            lost = range(first + min(size_of(path), nbytes) // slot, min(first + nbytes // slot, known))
            if lost:
                write_at(fd, [memoryview(bytes(len(lost) * entry))], lost.start * entry)
    finally:
        os.close(fd)
