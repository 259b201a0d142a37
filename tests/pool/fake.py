"""A product of a hundred lines behind the worker's Adapter: nodes with a cache each and a pool with epochs, right or with a fault
planted. It shows that the harness runs, that a right product passes and that a wrong one does not."""

from __future__ import annotations

import contextlib
import hashlib
import random
import socket
import socketserver
import struct
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import msgspec

from tests.pool.content import Space, links

BUGS = {
    "epochs": ("stale",),  # blocks are named without their epochs
    "deaf": ("stale",),  # an epoch is read once, and its bumps on other nodes never heard of
    "tenants": ("isolation", "stale"),  # blocks are named without their tenant, and without its epoch
    "bytes": ("bytes",),  # now and then a byte is wrong
    "patient": ("deadline",),  # it waits for the pool for ever
    "raises": ("raised",),  # a failure of the pool is the engine's
    "sulks": ("recovery",),  # after a failure it serves no hit again
}
"""Faults that can be planted; what the checker must find, and what else it may."""


class PoolServer:
    """Blocks and epochs in the memory of a thread; commands are framed msgpack lists, answered in order."""

    def __init__(self) -> None:
        self._going = threading.Event()
        self._going.set()
        self._gate = threading.Lock()
        self._server: socketserver.ThreadingTCPServer | None = None
        self._open: set[socket.socket] = set()
        self.port = 0
        self.start()

    def start(self) -> None:
        """Empty, on the same port as before."""
        self._blocks: dict[bytes, bytes] = {}
        self._epochs: dict[str, int] = {}
        outer = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                outer._serve(self.request)

        class Server(socketserver.ThreadingTCPServer):
            allow_reuse_address = True
            daemon_threads = True

        self._server = Server(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def kill(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
        with self._gate:
            for end in self._open:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def pause(self) -> None:
        self._going.clear()

    def resume(self) -> None:
        self._going.set()

    def _serve(self, end: socket.socket) -> None:
        with self._gate:
            self._open.add(end)
        try:
            while True:
                asked = _receive(end)
                self._going.wait()
                with self._gate:
                    answer = self._answer(*asked)
                _send(end, answer)
        except OSError:
            pass
        finally:
            with self._gate:
                self._open.discard(end)

    def _answer(self, what: str, names: list[Any], value: bytes = b"") -> Any:
        match what:
            case "epochs":
                return [self._epochs.setdefault(name, time.time_ns()) for name in names]
            case "get":
                return [self._blocks.get(name) for name in names]
            case "put":
                return self._blocks.setdefault(names[0], value) is value
            case _:
                self._epochs[names[0]] = max(self._epochs.get(names[0], 0) + 1, time.time_ns())
                return self._epochs[names[0]]


class FakeNode:
    """An Adapter. What it knows of epochs counts for `bound` seconds; a call waits for the pool no longer than `timeout`."""

    refusals = (OSError,)

    def __init__(self, port: int, bound: float, timeout: float, frames: int, bug: str = "") -> None:
        self._port, self._bound, self._timeout, self._frames, self._bug = port, bound, timeout, frames, bug
        self._cached: OrderedDict[bytes, bytes] = OrderedDict()
        self._known: dict[str, tuple[int, float]] = {}  # an epoch's value, and when reading it began
        self._gate = threading.Lock()
        self._mine = threading.local()
        self._not_before = 0.0  # after a failure the pool is left alone for a while
        self._failed = False
        self._random = random.Random(port)

    def admit(self, space: Space, tokens: list[int]) -> FakeHeld:
        end = time.monotonic() + self._timeout
        epochs, fresh = self._epochs(space, end)
        if epochs is None or (self._bug == "sulks" and self._failed):
            return FakeHeld(self, [], [])
        named, keyed = space, epochs
        if self._bug == "epochs":
            keyed = ()
        elif self._bug == "tenants":
            named, keyed = space._replace(tenant=""), epochs[1:]
        keys = [hashlib.sha256(link + repr(keyed).encode()).digest() for link in links(named, tokens, SIZE)]
        hits: list[tuple[str, bytes]] = []
        with self._gate:
            for key in keys:
                if key not in self._cached:
                    break
                self._cached.move_to_end(key)
                hits.append(("device", self._cached[key]))
        if (rest := keys[len(hits) :]) and fresh:  # what was superseded is not fetched, however short a time ago
            for key, data in zip(rest, self._ask(end, "get", rest) or [], strict=False):
                if data is None:
                    break
                if self._bug == "bytes" and self._random.random() < 0.05:
                    data = data[:-1] + bytes([data[-1] ^ 1])
                self._keep(key, data)
                hits.append(("pool", data))
        return FakeHeld(self, hits, keys[len(hits) :])

    def bump(self, family: str) -> bool:
        value = self._ask(time.monotonic() + self._timeout, "bump", [family])
        if value is None:
            raise ConnectionError("the pool does not answer")
        self._learn(family, value, self._known.get(family, (0, 0.0))[1])
        return True

    def close(self) -> None:
        pass

    def _epochs(self, space: Space, end: float) -> tuple[tuple[int, ...] | None, bool]:
        """The epochs that are in force as far as this node may believe, None when it may not believe any; whether the pool has
        just said so."""
        deaf = self._bug == "deaf" and all(family in self._known for family in space.families)
        began = time.monotonic()
        values = None if deaf else self._ask(end, "epochs", space.families)
        for family, value in zip(space.families, values or [], strict=False):
            self._learn(family, value, began)
        known = [self._known.get(family, (0, 0.0)) for family in space.families]
        if not deaf and any(time.monotonic() - since > self._bound for _, since in known):
            return None, False
        return tuple(value for value, _ in known), deaf or values is not None

    def _learn(self, family: str, value: int, since: float) -> None:
        with self._gate:
            before = self._known.get(family, (0, 0.0))
            self._known[family] = (max(value, before[0]), max(since, before[1]))

    def _keep(self, key: bytes, data: bytes) -> None:
        with self._gate:
            self._cached[key] = data
            while len(self._cached) > self._frames:
                self._cached.popitem(last=False)

    def _ask(self, end: float, what: str, names: Sequence[Any], value: bytes = b"") -> Any:
        """None when the pool does not answer in time."""
        now = time.monotonic()
        if self._bug != "patient" and (now >= end or now < self._not_before):
            return None
        try:
            link = getattr(self._mine, "link", None)
            if link is None:
                link = self._mine.link = socket.create_connection(("127.0.0.1", self._port), end - now)
            link.settimeout(None if self._bug == "patient" else end - now)
            _send(link, (what, names, value))
            return _receive(link, None if self._bug == "patient" else end)
        except OSError as error:
            if (link := getattr(self._mine, "link", None)) is not None:
                link.close()  # an answer that comes later is nobody's
                self._mine.link = None
            self._not_before = time.monotonic() + self._timeout
            self._failed = True
            if self._bug == "raises":
                raise RuntimeError("the pool has failed") from error
            return None


class FakeHeld:
    """An admitted request: its hits, and what the blocks after them will be called."""

    def __init__(self, node: FakeNode, hits: list[tuple[str, bytes]], keys: list[bytes]) -> None:
        self.hits = hits
        self._node = node
        self._keys = keys
        self._made: list[bytes] = []

    def fill(self, blocks: Sequence[bytes]) -> None:
        self._made = list(blocks)

    def release(self) -> None:
        end = time.monotonic() + self._node._timeout
        for key, data in zip(self._keys, self._made, strict=False):
            self._node._keep(key, data)
            self._node._ask(end, "put", [key], data)


SIZE = 4
"""Tokens a block."""


def _send(end: socket.socket, what: Any) -> None:
    data = msgspec.msgpack.encode(what)
    end.sendall(struct.pack("<I", len(data)) + data)


def _receive(end: socket.socket, until: float | None = None) -> Any:
    (size,) = struct.unpack("<I", _exactly(end, 4, until))
    return msgspec.msgpack.decode(_exactly(end, size, until))


def _exactly(end: socket.socket, size: int, until: float | None) -> bytes:
    data = b""
    while len(data) < size:
        if until is not None:
            end.settimeout(max(until - time.monotonic(), 0.001))
        more = end.recv(size - len(data))
        if not more:
            raise ConnectionError("the other end has gone")
        data += more
    return data
