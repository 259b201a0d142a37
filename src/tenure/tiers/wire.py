"""One connection to a Valkey server: commands go out in one piece, replies come in, bulk straight into the memory it is for.
Used by the client of the pool; every call has a deadline, and after any failure the connection is of no use."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import time
from collections.abc import Iterable

from tenure.tiers.protocol import Address, Command, Landed, Login, Refused, Reply, packed

__all__ = ["LostError", "Wire"]

_BUFFER = 1 << 16
_AT_ONCE = 1 << 18
_MOST_VIEWS = 64
_MOST_REPLY = 64 << 20
"""Bytes that a reply may have that is not read into memory given for it."""
_MOST_DEPTH = 8


class LostError(Exception):
    """The connection cannot be had, has broken or is too late."""


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
        for reply in [self.receive((), deadline) for _ in commands]:
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

    def send(self, pieces: Iterable[bytes | bytearray | memoryview], deadline: float) -> None:
        """Sends all of it; what is made piece by piece is made while what was before it is on its way."""
        views: list[memoryview] = []
        size = 0
        for piece in pieces:
            views.append(memoryview(piece))
            size += len(piece)
            if size >= _AT_ONCE:
                self._send(views, deadline)
                views, size = [], 0
        self._send(views, deadline)

    def _send(self, views: list[memoryview], deadline: float) -> None:
        at = 0
        try:
            while at < len(views):
                self._socket.settimeout(_left(deadline))
                if self._tls:
                    self._socket.sendall(views[at])
                    at += 1
                    continue
                sent = self._socket.sendmsg(views[at : at + _MOST_VIEWS])
                while at < len(views) and sent >= len(views[at]):
                    sent -= len(views[at])
                    at += 1
                if sent:
                    views[at] = views[at][sent:]
        except OSError as error:
            raise LostError(f"{self.address} takes nothing: {_why(error)}") from None

    def receive(self, into: tuple[memoryview, ...], deadline: float, depth: int = 0) -> Reply:
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
            return None if count < 0 else [self.receive((), deadline, depth + 1) for _ in range(count)]
        raise LostError(f"{self.address} does not speak the protocol of Valkey: {line[:40]!r}")

    # -- inside

    def _number(self, digits: bytes) -> int:
        try:
            return int(digits)
        except ValueError:
            raise LostError(f"{self.address} does not speak the protocol of Valkey: {digits[:40]!r} is no number") from None

    def _bulk(self, size: int, into: tuple[memoryview, ...], deadline: float) -> Reply:
        if not into and size <= _MOST_REPLY:
            if self._end - self._start >= size + 2:
                value = bytes(self._buffer[self._start : self._start + size])
                self._start += size + 2
                return value
            whole = bytearray(size)
            self._fill(memoryview(whole), deadline)
            self._skip(2, deadline)
            return bytes(whole)
        if into and sum(map(len, into)) == size:
            for view in into:
                self._fill(view, deadline)
            self._skip(2, deadline)
        else:
            self._skip(size + 2, deadline)
            if not into:
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
