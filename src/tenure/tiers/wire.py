"""One connection to a Valkey server: commands go out in one piece, replies come in, bulk straight into the memory it is for.
Used by the client of the pool; every call has a deadline, and after any failure the connection is of no use."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, TypeAlias

__all__ = ["Address", "Command", "Landed", "Login", "LostError", "Refused", "Reply", "Wire", "packed"]

_BUFFER = 1 << 16
_LARGE = 4096
"""Words from this size on are sent from where they lie."""
_MOST_REPLY = 64 << 20
"""Bytes that a reply may have that is not read into memory given for it."""
_MOST_DEPTH = 8


class LostError(Exception):
    """The connection cannot be had, has broken or is too late."""


class Address(NamedTuple):
    """Where a server listens; without a port `host` is the path of a unix socket."""

    host: str
    port: int | None

    def __str__(self) -> str:
        return self.host if self.port is None else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Login:
    """What a server wants to see before commands."""

    user: str | None = None
    password: str | None = None
    database: int = 0
    tls: ssl.SSLContext | None = None


class Command(NamedTuple):
    """key: decides which server of a cluster gets it. into: memory of just the reply's size, for a bulk reply."""

    key: bytes
    words: tuple[bytes | memoryview, ...]
    into: memoryview | None = None


class Refused(NamedTuple):
    """An error as a reply, or that no reply came (`lost`)."""

    text: str
    lost: bool = False


class Landed(NamedTuple):
    """A bulk reply went into the memory given for it, if it had just that size in bytes."""

    size: int


Reply: TypeAlias = "bytes | int | Landed | Refused | list[Reply] | None"


def packed(commands: Sequence[Command]) -> list[bytes | bytearray | memoryview]:
    """Commands as they go over the wire, in pieces to be sent one behind the other; large words are not copied."""
    pieces: list[bytes | bytearray | memoryview] = []
    small = bytearray()
    for command in commands:
        small += b"*%d\r\n" % len(command.words)
        for word in command.words:
            if len(word) < _LARGE:
                small += b"$%d\r\n" % len(word)
                small += word
                small += b"\r\n"
            else:
                small += b"$%d\r\n" % len(word)
                pieces += (small, word)
                small = bytearray(b"\r\n")
    pieces.append(small)
    return pieces


class Wire:
    """An open connection. Deadlines are of time.monotonic. Every call raises LostError when it fails or is late."""

    def __init__(self, address: Address, login: Login, deadline: float) -> None:
        self.address = address
        self._held = bytearray(_BUFFER)
        self._buffer = memoryview(self._held)
        self._start = self._end = 0
        self._tls = login.tls is not None
        try:
            self._socket = _connected(address, login.tls, _left(deadline))
        except OSError as error:
            raise LostError(f"{address} cannot be reached: {_why(error)}") from None
        try:
            self._log_in(login, deadline)
        except BaseException:
            self.close()
            raise

    def _log_in(self, login: Login, deadline: float) -> None:
        commands = []
        if login.password is not None:
            words = [b"AUTH", *([login.user.encode()] if login.user else []), login.password.encode()]
            commands.append(Command(b"", tuple(words)))
        if login.database:
            commands.append(Command(b"", (b"SELECT", b"%d" % login.database)))
        if not commands:
            return
        self.send(packed(commands), deadline)
        for reply in [self.receive(None, deadline) for _ in commands]:
            if isinstance(reply, Refused):
                raise LostError(f"{self.address} refuses the login: {reply.text}")

    def fileno(self) -> int:
        """To wait for its replies."""
        return self._socket.fileno()

    def idle(self) -> bool:
        """Whether it is open still and owes nothing: what is to be read of an idle connection is its end."""
        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN)
        return self._start == self._end and not waiting.poll(0)

    def close(self) -> None:
        """Ends it."""
        with contextlib.suppress(OSError):
            self._socket.close()

    def send(self, pieces: Sequence[bytes | bytearray | memoryview], deadline: float) -> None:
        """Sends all of it."""
        views = [memoryview(piece) for piece in pieces]
        try:
            if self._tls:
                for view in views:
                    self._socket.settimeout(_left(deadline))
                    self._socket.sendall(view)
                return
            at = 0
            while at < len(views):
                self._socket.settimeout(_left(deadline))
                sent = self._socket.sendmsg(list(islice(views, at, at + 64)))
                while at < len(views) and sent >= len(views[at]):
                    sent -= len(views[at])
                    at += 1
                if sent:
                    views[at] = views[at][sent:]
        except OSError as error:
            raise LostError(f"{self.address} takes nothing: {_why(error)}") from None

    def receive(self, into: memoryview | None, deadline: float, depth: int = 0) -> Reply:
        """The next reply."""
        line = self._line(deadline)
        kind, rest = line[:1], line[1:]
        if kind == b"$":
            size = self._number(rest)
            if size < 0:
                return None
            return self._bulk(size, into, deadline)
        if kind == b":":
            return self._number(rest)
        if kind == b"+":
            return rest
        if kind == b"-":
            return Refused(rest.decode(errors="replace"))
        if kind == b"*" and depth < _MOST_DEPTH:
            count = self._number(rest)
            return None if count < 0 else [self.receive(None, deadline, depth + 1) for _ in range(count)]
        raise LostError(f"{self.address} does not speak the protocol of Valkey: {line[:40]!r}")

    # -- inside

    def _number(self, digits: bytes) -> int:
        try:
            return int(digits)
        except ValueError:
            raise LostError(f"{self.address} does not speak the protocol of Valkey: {digits[:40]!r} is no number") from None

    def _bulk(self, size: int, into: memoryview | None, deadline: float) -> Reply:
        if into is None and size <= _MOST_REPLY:
            if self._end - self._start >= size + 2:
                value = bytes(self._buffer[self._start : self._start + size])
                self._start += size + 2
                return value
            whole = bytearray(size)
            self._fill(memoryview(whole), deadline)
            self._skip(2, deadline)
            return bytes(whole)
        if into is not None and len(into) == size:
            self._fill(into, deadline)
            self._skip(2, deadline)
        else:
            self._skip(size + 2, deadline)
            if into is None:
                return Refused(f"a reply of {size} bytes is too long")
        return Landed(size)

    def _line(self, deadline: float) -> bytes:
        """Up to the next line end, without it."""
        while (end := self._held.find(b"\r\n", self._start, self._end)) < 0:
            if self._end - self._start >= _BUFFER // 2:
                raise LostError(f"{self.address} does not speak the protocol of Valkey: a line without end")
            self._more(deadline)
        line = bytes(self._buffer[self._start : end])
        self._start = end + 2
        return line

    def _more(self, deadline: float) -> None:
        """Reads what is there behind what is held; waits for at least one byte."""
        if self._start:
            held = self._end - self._start
            self._buffer[:held] = bytes(self._buffer[self._start : self._end])
            self._start, self._end = 0, held
        self._end += self._read(self._buffer[self._end :], deadline)

    def _read(self, into: memoryview, deadline: float) -> int:
        try:
            self._socket.settimeout(_left(deadline))
            count = self._socket.recv_into(into)
        except OSError as error:
            raise LostError(f"{self.address} does not answer: {_why(error)}") from None
        if not count:
            raise LostError(f"{self.address} has closed the connection")
        return count

    def _fill(self, into: memoryview, deadline: float) -> None:
        held = min(self._end - self._start, len(into))
        into[:held] = self._buffer[self._start : self._start + held]
        self._start += held
        while held < len(into):
            held += self._read(into[held:], deadline)

    def _skip(self, count: int, deadline: float) -> None:
        while count:
            if self._start == self._end:
                self._more(deadline)
            step = min(count, self._end - self._start)
            self._start += step
            count -= step


def _connected(address: Address, tls: ssl.SSLContext | None, timeout: float) -> socket.socket:
    if address.port is None:
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            made.settimeout(timeout)
            made.connect(address.host)
        except BaseException:
            made.close()
            raise
        return made
    made = socket.create_connection((address.host, address.port), timeout)
    try:
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made if tls is None else tls.wrap_socket(made, server_hostname=address.host)
    except BaseException:
        made.close()
        raise


def _left(deadline: float) -> float:
    """Seconds that are left. Raises TimeoutError when none is."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _why(error: OSError) -> str:
    return "too late" if isinstance(error, TimeoutError) else str(error)
