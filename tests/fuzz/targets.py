"""What must hold for any bytes that a tier may find: a record, an entry of an index, a table, a description, a payload.
Each target takes bytes and raises when it does not hold. Run by hypothesis in the suite, and for longer by `make fuzz`."""

from __future__ import annotations

import contextlib
import os
import socket
import tempfile
import time
from pathlib import Path

import numpy as np

from tenure.cluster.handover import Handover
from tenure.errors import RecordError, StoreError, TierError
from tenure.tiers import CODECS, BlockLayout
from tenure.tiers.heads import MOST_CHUNKS, Head, parse
from tenure.tiers.index import Index
from tenure.tiers.namespaces import Namespaces, parse_namespaces
from tenure.tiers.places import Places
from tenure.tiers.protocol import Address, Landed, Login, Refused
from tenure.tiers.record import checksum, entry_bytes, pack, unpack
from tenure.tiers.store import Format
from tenure.tiers.wire import LostError, Wire

LAYOUT = BlockLayout.of("bf16", 4, layers=1, heads=2, head_size=8)
_CODECS = [make() for make in CODECS.values()]
_FOLDER = tempfile.TemporaryDirectory(prefix="tenure-fuzz-")
_INDEX = os.open(Path(_FOLDER.name) / "index", os.O_RDWR | os.O_CREAT)
_SPACES = Namespaces(Path(_FOLDER.name) / "namespaces", 1 << 16)
_SPACES.put(bytes(32), b"")
_SOCKET = str(Path(_FOLDER.name) / "socket")
_LISTENING = socket.socket(socket.AF_UNIX)
_LISTENING.bind(_SOCKET)
_LISTENING.listen()
LIFE = _SPACES.life(bytes(32)) or b""


def record(data: bytes) -> None:
    """A record that packs to the same bytes, or RecordError. With a right checksum too, or nothing behind it is ever reached."""
    for candidate in (data, data[:-16] + checksum(data[:-16])):
        try:
            found = unpack(candidate)
        except RecordError:
            continue
        assert len(found.signed_part) <= len(candidate) <= 1 << 20
        again = unpack(pack(found.record, found.codec, memoryview(b""), found.life))
        assert again.record == found.record
        assert again.record.expires == found.record.expires
        try:
            found.verify(memoryview(data), b"a key of 16 bytes")
        except TierError:
            continue
        raise AssertionError("a record nobody signed was taken for a signed one")


def index(data: bytes) -> None:
    """An index of any content gives envelopes that count and typed errors, and one more look finds what does not count gone."""
    stride = entry_bytes(LAYOUT.block_size)
    parts = [data[at : at + stride] for at in range(0, min(len(data), 8 * stride), stride)]
    for content in (b"".join(parts), b"".join(map(_repaired, parts))):
        _index(content, stride, max(1, len(parts)))


def _index(content: bytes, stride: int, frames: int) -> None:
    os.ftruncate(_INDEX, 0)
    os.pwrite(_INDEX, content, 0)
    entries = Index(Places("fuzz", [_INDEX], stride, frames, False), frames, LAYOUT, 0, 4096, _SPACES)
    first = [(found, refused) for found, refused in entries.scan()]
    for found, _ in first:
        for envelope in found.values():
            assert envelope.record.layout == LAYOUT
            assert envelope.length <= 4096
            assert envelope.life == _SPACES.life(envelope.record.namespace)
    second = [(found, refused) for found, refused in entries.scan()]
    assert [set(found) for found, _ in first] == [set(found) for found, _ in second]
    assert not any(refused for _, refused in second)


def _repaired(entry: bytes) -> bytes:
    """With the checksum that its bytes should have, or nothing behind the checksum is ever reached."""
    if len(entry) < 180:
        return entry
    end = 180 + 4 * int.from_bytes(entry[176:180], "little") + int.from_bytes(entry[14:16], "little") + 32
    return entry[:end] + checksum(entry[:end]) + entry[end + 16 :] if end + 16 <= len(entry) else entry


def table(data: bytes) -> None:
    """A table of namespaces is itself or nothing."""
    for candidate in (data, data + checksum(data)):
        rows = parse_namespaces(candidate)
        assert rows is None or all(len(name) == 32 and len(life) == 8 for name, (life, _) in rows.items())


def description(data: bytes) -> None:
    """A store's description is one or a StoreError."""
    for candidate in (data, data + checksum(data)):
        try:
            form = Format.unpack(candidate, Path("store"))
        except StoreError:
            continue
        assert form.segment_slots > 0
        try:
            form.same_as(Format.of(LAYOUT, _CODECS[0], None, 1 << 30), Path("store"))
        except StoreError:
            continue


def codec(data: bytes) -> None:
    """A payload is decoded or refused, by each codec."""
    for each in _CODECS:
        bound = each.bound(LAYOUT)
        for payload in (data, data[:bound].ljust(bound, b"\0")):
            out = bytearray(LAYOUT.nbytes)
            try:
                each.decode(memoryview(payload), LAYOUT, memoryview(out))
            except TierError as error:
                if error.kind != "codec":
                    raise
            else:
                if each.lossless:
                    assert len(each.encode(memoryview(out), LAYOUT)) <= bound


def head(data: bytes) -> None:
    """What stands at a block's head in a pool is a claim or a block that reads back as itself, or nothing."""
    found = parse(data)
    if found is not None:
        assert parse(found.encode()) == found
    if isinstance(found, Head):
        assert found.chunks <= MOST_CHUNKS


def handover(data: bytes) -> None:
    """A hand-over reads back as itself, or is refused."""
    try:
        found = Handover.decode(data)
    except RecordError:
        return
    again = Handover.decode(found.encode())
    assert (again.who, again.published, again.extra_keys) == (found.who, found.published, found.extra_keys)
    assert np.array_equal(again.tokens, found.tokens)


def reply(data: bytes) -> None:
    """What a server sends is a reply, or the connection is given up; memory for a bulk is filled whole or not believed."""
    deadline = time.monotonic() + 5
    wire = Wire(Address(_SOCKET, None), Login(), deadline)
    server, _ = _LISTENING.accept()
    with server, contextlib.closing(wire):
        server.sendall(data)
        server.shutdown(socket.SHUT_WR)
        for place in range(1000):
            try:
                found = wire.receive((memoryview(bytearray(3)), memoryview(bytearray(5))) if place % 2 else (), deadline)
            except LostError:
                return
            assert found is None or isinstance(found, bytes | int | list | Landed | Refused)
    raise AssertionError("more replies than bytes")


TARGETS = {"record": record, "index": index, "table": table, "description": description, "codec": codec}
TARGETS |= {"head": head, "handover": handover, "reply": reply}
