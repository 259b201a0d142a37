"""What every reader shares: opening files (plain or gzip), walking lines, and what becomes of a bad one. The formats
beside it derive from `LineFormat` or `Format`. A bad line is never half used."""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import msgspec
import numpy as np

from tenure.errors import TraceError
from tenure.lab import text
from tenure.lab.builder import Request
from tenure.lab.ids import Ints

Fields = Mapping[str, Any]
MALFORMED = (msgspec.MsgspecError, UnicodeError, RecursionError)
BROKEN = (EOFError, zlib.error, gzip.BadGzipFile)
STDIN = Path("-")
_BOM = b"\xef\xbb\xbf"


class BadLineError(Exception):
    """One line that cannot be used, and why. Caught by `Source`; never leaves the readers."""

    def __init__(self, reason: str, **numbers: Any) -> None:
        super().__init__(reason)
        self.numbers = numbers


@dataclass(slots=True)
class Problems:
    """Raises a TraceError at the first bad line, or counts it and goes on when `skip`."""

    skip: bool = False
    tell: Callable[[TraceError], None] | None = None
    count: int = 0

    def bad(self, file: str, line: int, reason: str, **numbers: Any) -> None:
        """Report one bad line; the message begins with file:line."""
        problem = TraceError(f"{file}:{line}: {reason}", file=file, line=line, **numbers)
        if not self.skip:
            raise problem
        self.count += 1
        if self.tell is not None:
            self.tell(problem)


@dataclass(slots=True)
class Source:
    """One file being read, with the settings that concern its reader."""

    path: Path
    problems: Problems
    block_size: int | None = None
    tokenizer: str | Path | None = None
    _tokenize: text.Tokenize | None = None
    _large: dict[int, int] = field(default_factory=dict)
    _kept: bytes | None = None  # what came through a pipe, which can be read only once

    @property
    def name(self) -> str:
        """What messages call the file."""
        return "<stdin>" if self.path == STDIN else str(self.path)

    def open(self) -> Iterator[bytes]:
        """The file's lines as bytes, unzipped where it is gzip, without a byte order mark. Raises TraceError when it
        cannot be opened."""
        with self._begin() as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            lines = iter(gzip.GzipFile(fileobj=raw) if packed else raw)
            for first in lines:
                yield first.removeprefix(_BOM)
                break
            yield from lines

    def _begin(self) -> BinaryIO:
        """The file from its first byte, however often; a pipe is read into memory."""
        if self._kept is None:
            try:
                if self.path != STDIN:
                    raw = self.path.open("rb")
                    if raw.seekable():
                        return raw
                    with raw:
                        self._kept = raw.read()
                else:
                    self._kept = sys.stdin.buffer.read()
            except OSError as problem:
                raise TraceError(f"{self.name}: cannot be read: {problem.strerror or problem}", file=self.name, line=0) from None
        return io.BytesIO(self._kept)

    def check(self) -> None:
        """TraceError for a file without a line: an empty one, or a gzip file cut short before the first line's end."""
        try:
            if not any(line.strip() for line in self.open()):
                raise TraceError(f"{self.name}: is empty", file=self.name, line=0)
        except BROKEN as problem:
            raise TraceError(f"{self.name}: the compressed file {_broken(problem)}", file=self.name, line=1) from None

    def states(self, block_size: int) -> int:
        """Take the block size that the file states; TraceError when the caller named another."""
        if self.block_size not in (None, block_size):
            raise TraceError(
                f"{self.name}: has blocks of {block_size} tokens, not {self.block_size}: leave out --block-size",
                file=self.name,
                line=1,
                block_size=block_size,
            )
        self.block_size = block_size
        return block_size

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """(line number from 1, line) for every line that is not blank; a broken gzip stream is one bad line."""
        number = 0
        try:
            for number, line in enumerate(self.open(), start=1):
                if line.strip():
                    yield number, line.rstrip()
        except BROKEN as problem:
            self.bad(number + 1, f"the compressed file {_broken(problem, ' here')}")

    def whole(self) -> bytes | None:
        """The file as one piece; None (and reported) when its gzip stream is broken."""
        try:
            return b"".join(self.open())
        except BROKEN as problem:
            self.bad(1, f"the compressed file {_broken(problem)}")
            return None

    def peek(self, count: int = 1) -> list[bytes]:
        """Up to `count` first lines that are not blank; reports nothing."""
        found: list[bytes] = []
        try:
            for line in self.open():
                if line.strip():
                    found.append(line)
                if len(found) == count:
                    break
        except BROKEN:
            pass
        return found

    def bad(self, line: int, reason: str, **numbers: Any) -> None:
        """Report a bad line of this file."""
        self.problems.bad(self.name, line, reason, **numbers)

    def tokens(self, words: str) -> Ints:
        """Tokenise with the tokenizer the caller named; ConfigError when none was."""
        if self._tokenize is None:
            self._tokenize = text.load(self.tokenizer)
        return self._tokenize(words)

    def ids(self, values: list[int]) -> Ints:
        """Ids of any size as i64[n]: what does not fit gets one below 0 of its own. BadLineError for an id below 0."""
        if values and min(values) < 0:
            raise BadLineError(f"negative hash id {min(values)}", hash_id=min(values))
        try:
            return np.array(values, dtype=np.int64)
        except OverflowError:
            small = 2**63
            large = self._large
            return np.array([v if v < small else large.setdefault(v, -1 - len(large)) for v in values], dtype=np.int64)


def _broken(problem: Exception, where: str = "") -> str:
    return f"is truncated{where}" if isinstance(problem, EOFError) else f"is broken{where}: {problem}"


class Format(ABC):
    """One trace format: how to know it, and how to turn a file into requests."""

    name: ClassVar[str]
    block_size: ClassVar[int] = 16
    shares_ids: ClassVar[bool] = False  # whether equal ids in two files mean the same block
    about: ClassVar[str] = ""

    @classmethod
    @abstractmethod
    def knows(cls, fields: Fields) -> bool:
        """Whether an object with these fields (of the first line) is of this format."""

    @abstractmethod
    def requests(self, source: Source) -> Iterator[Request]:
        """The good requests of one file, in file order; bad ones go to `source.bad`."""

    def tokens_per_block(self, source: Source) -> int:
        """The block size of this file: what the caller said, or what the format says."""
        return source.block_size or self.block_size


class LineFormat(Format):
    """A format of one JSON object a line. Subclasses name the row's type and turn one row into a Request."""

    row: ClassVar[type[msgspec.Struct]]
    ordered: ClassVar[bool] = True  # whether lines must be in order of time

    @abstractmethod
    def request(self, row: Any, line: int, source: Source) -> Request:
        """One row as a Request; raises BadLineError."""

    def skips(self, line: int, raw: bytes, source: Source) -> bool:
        """Whether this line is no request (a header)."""
        return False

    def requests(self, source: Source) -> Iterator[Request]:
        """The good requests of one file, in file order; bad ones go to `source.bad`."""
        decode = msgspec.json.Decoder(self.row).decode
        latest = float("-inf")
        for line, raw in source.lines():
            if self.skips(line, raw, source):
                continue
            try:
                request = self.request(decode(raw), line, source)
            except (*MALFORMED, BadLineError) as problem:
                source.bad(line, str(problem), **getattr(problem, "numbers", {}))
                continue
            if self.ordered and request.arrival < latest:
                source.bad(
                    line,
                    f"goes back in time: {request.arrival:.3f} s after {latest:.3f} s",
                    arrival=request.arrival,
                    after=latest,
                )
                continue
            latest = max(latest, request.arrival)
            yield request


def seconds(timestamp: float, per_second: float = 1.0) -> float:
    """A trace's timestamp in seconds; BadLineError when it is no time."""
    value = timestamp / per_second
    if not -1e18 < value < 1e18:
        raise BadLineError(f"no usable timestamp: {timestamp}", timestamp=timestamp)
    return value


def check_length(ids: int, input_tokens: int, block_size: int) -> None:
    """BadLineError when the number of ids fits neither full blocks nor full blocks and a tail."""
    if ids not in (input_tokens // block_size, -(-input_tokens // block_size)):
        raise BadLineError(
            f"{ids} hash ids do not fit {input_tokens} tokens in blocks of {block_size} (another --block-size?)",
            hash_ids=ids,
            input_length=input_tokens,
            block_size=block_size,
        )
