"""The namespaces of a store: what each is of, and its life. A block counts only in the life that it was written in, so that a
dropped namespace takes all its blocks with it in one small write. Kept by the disk tier; it knows no blocks."""

from __future__ import annotations

import secrets
import struct
import threading
from collections.abc import Container
from pathlib import Path

from tenure.errors import ConfigError, StoreError
from tenure.tiers.files import replace_file
from tenure.tiers.record import checksum

__all__ = ["Namespaces", "parse_namespaces"]

_HEAD = struct.Struct("<8sHI")  # magic, version, how many
_ROW = struct.Struct("<32s8sI")  # namespace, life, bytes of its value
_MAGIC = b"TNRSPACE"
_VERSION = 1
_CHECK = 16

Row = tuple[bytes, bytes]  # life, value


class Namespaces:
    """A table in one file of at most `room` bytes, replaced whole at each change.

    `damaged` tells that the file was there and could not be read: then no namespace is known, and no block counts.
    """

    def __init__(self, path: Path, room: int) -> None:
        """Raises OSError when the file cannot be read."""
        self._path = path
        self._room = room
        self._lock = threading.Lock()
        self._rows: dict[bytes, Row] = {}
        self.damaged = False
        self._behind = False  # the file may still have what was dropped
        if path.exists():
            with path.open("rb") as file:
                found = parse_namespaces(file.read(room + 1))
            self.damaged = found is None
            self._behind = self.damaged
            self._rows = found or {}

    def life(self, namespace: bytes) -> bytes | None:
        """What its blocks must carry to count; None when it is not known."""
        row = self._rows.get(namespace)
        return None if row is None else row[0]

    def values(self) -> dict[bytes, bytes]:
        """The value of each namespace."""
        with self._lock:
            return {namespace: value for namespace, (_, value) in self._rows.items()}

    def put(self, namespace: bytes, value: bytes) -> None:
        """Adds a namespace or changes its value; durable when this returns. Raises ConfigError for a bad argument, StoreError
        when the table is full or cannot be written; nothing has then changed."""
        if not isinstance(namespace, bytes) or len(namespace) != 32 or not isinstance(value, bytes):
            raise ConfigError(f"a namespace is 32 bytes and its value bytes: got {namespace!r} and {value!r}")
        with self._lock:
            row = self._rows.get(namespace)
            if row is not None and row[1] == value:
                return
            life = secrets.token_bytes(8) if row is None else row[0]  # never one it had before, whatever became of the file
            self._write({**self._rows, namespace: (life, value)})

    def drop(self, namespace: bytes) -> bool:
        """Forgets a namespace; durable when this returns. Returns whether it was known. Raises StoreError when that cannot be
        written: then it is forgotten until the store is opened again, and dropping it again tries again."""
        with self._lock:
            known = namespace in self._rows
            if not known and not self._behind:
                return False
            self._behind = True
            rows = {kept: row for kept, row in self._rows.items() if kept != namespace}
            self._rows = rows
            self._write(rows)
            return known

    def keep(self, namespaces: Container[bytes]) -> int:
        """Forgets all others, in one write; returns how many those were. Raises StoreError, as `drop`."""
        with self._lock:
            rows = {kept: row for kept, row in self._rows.items() if kept in namespaces}
            gone = len(self._rows) - len(rows)
            if gone:
                self._behind = True
                self._rows = rows
                self._write(rows)
            return gone

    def _write(self, rows: dict[bytes, Row]) -> None:
        body = b"".join(_ROW.pack(name, life, len(value)) + value for name, (life, value) in rows.items())
        content = _HEAD.pack(_MAGIC, _VERSION, len(rows)) + body
        content += checksum(content)
        if len(content) > self._room:
            raise StoreError(
                f"the table of namespaces needs {len(content)} bytes: it has room for {self._room}; drop some of them",
                needed=len(content),
                room=self._room,
            )
        try:
            replace_file(self._path, content)
        except OSError as error:
            raise StoreError(f"{self._path} cannot be written: {error}") from error
        self._rows = rows
        self._behind = False


def parse_namespaces(content: bytes) -> dict[bytes, Row] | None:
    """The table in a file's content; None when that is not one."""
    if len(content) < _HEAD.size + _CHECK or checksum(content[:-_CHECK]) != content[-_CHECK:]:
        return None
    magic, version, count = _HEAD.unpack_from(content)
    if magic != _MAGIC or version != _VERSION:
        return None
    rows: dict[bytes, Row] = {}
    at, end = _HEAD.size, len(content) - _CHECK
    for _ in range(count):
        if at + _ROW.size > end:
            return None
        namespace, life, length = _ROW.unpack_from(content, at)
        at += _ROW.size
        if at + length > end:
            return None
        rows[namespace] = (life, content[at : at + length])
        at += length
    return rows if at == end else None
