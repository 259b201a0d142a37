"""What happened, as JSON lines: every process of a run appends to files of its own; the checker reads them all.
Times are seconds of the machine's monotonic clock, which its processes share. It knows nothing of the product."""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeAlias

import msgspec

from tests.pool.content import Space

Hit: TypeAlias = tuple[str, str, str]
"""A block that was served: the tier it came from for this request, its stamp, the digest of all its bytes."""


class Life(msgspec.Struct, frozen=True, tag="life"):
    """A node's process began to serve; `boot` counts its lives from 1."""

    node: str
    boot: int
    start: float


class Over(msgspec.Struct, frozen=True, tag="over"):
    """It has ended by itself, as it was told to."""

    node: str
    boot: int
    end: float


class Call(msgspec.Struct, frozen=True, tag="call"):
    """A call into the product begins; it must have ended `deadline` seconds later."""

    node: str
    boot: int
    op: int
    what: str
    start: float
    deadline: float


class Done(msgspec.Struct, frozen=True, tag="done"):
    """It has ended; `error`: what it raised that it must not raise, and where."""

    node: str
    boot: int
    op: int
    end: float
    error: str | None = None


class Request(msgspec.Struct, frozen=True, tag="request"):
    """A request was served. `labels`: what the driver's epochs were when it began, one a family of its space."""

    node: str
    boot: int
    start: float
    end: float
    space: Space
    tokens: list[int]
    labels: tuple[int, ...]
    hits: list[Hit]


class Bump(msgspec.Struct, frozen=True, tag="bump"):
    """An epoch was bumped: blocks with a label below this one are superseded. `acknowledged`: when the call returned, None if it
    failed. `confirmed`: it said that the bump outlives the loss of a server."""

    node: str
    boot: int
    family: str
    label: int
    start: float
    acknowledged: float | None
    confirmed: bool


class Fault(msgspec.Struct, frozen=True, tag="fault"):
    """Something was done to a target, from just before it until just after it was undone. `error`: it could not be done."""

    target: str
    what: str
    start: float
    end: float
    error: str | None = None


class Phase(msgspec.Struct, frozen=True, tag="phase"):
    """A part of the run."""

    name: str
    start: float
    end: float


Record: TypeAlias = Life | Over | Call | Done | Request | Bump | Fault | Phase


class Line(NamedTuple):
    """A record and where it stands."""

    where: str
    record: Record

    def __str__(self) -> str:
        return f"{self.where}: {msgspec.json.encode(self.record).decode()}"


class Recorder:
    """Appends to one file, a line a write: whoever is killed leaves at most its last line in part."""

    def __init__(self, file: Path, node: str = "", boot: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        self.node = node
        self.boot = boot
        self.clock = clock
        self._fd = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._gate = threading.Lock()
        self._ops = 0

    def write(self, record: Record) -> None:
        os.write(self._fd, msgspec.json.encode(record) + b"\n")

    @contextmanager
    def call(self, what: str, deadline: float, *expected: type[Exception]) -> Iterator[None]:
        """Around one call into the product. What it raises goes on, and is noted as an error unless it was expected."""
        with self._gate:
            self._ops += 1
            op = self._ops
        self.write(Call(self.node, self.boot, op, what, self.clock(), deadline))
        try:
            yield
        except expected:
            self.write(Done(self.node, self.boot, op, self.clock()))
            raise
        except Exception as error:
            at = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(at.filename).name}:{at.lineno}"
            self.write(Done(self.node, self.boot, op, self.clock(), f"{error!r} in {where}"))
            raise
        self.write(Done(self.node, self.boot, op, self.clock()))

    def close(self) -> None:
        os.close(self._fd)


def read(folder: Path) -> list[Line]:
    """All that was recorded in a folder (`*.jsonl`). Raises ValueError for a line that is no record, unless it is the last one of
    its file and was cut off."""
    decode = msgspec.json.Decoder(Record).decode
    found = []
    for file in sorted(folder.glob("*.jsonl")):
        lines = file.read_bytes().split(b"\n")
        for number, text in enumerate(lines[:-1], 1):  # after the last line feed stands nothing, or what was cut off
            try:
                found.append(Line(f"{file.name}:{number}", decode(text)))
            except msgspec.MsgspecError as error:
                raise ValueError(f"{file.name}:{number} is no record: {error}") from None
    return found
