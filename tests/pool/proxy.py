"""A proxy on loopback between a client and a server that does what networks do: cuts, stalls and trickles, at a given byte.
Used by the pool's fault tests; knows nothing of what it carries."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable

BUFFER = 1 << 16


class Proxy:
    """Carries both ways until `after` bytes from the client (`up`) or the server (`down`) have gone; then does `what`, once:
    "cut" closes both ends, "stall" carries nothing more, "trickle" one byte at a time, "call" calls and carries on."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._fault: tuple[str, int, str, Callable[[], None] | None] | None = None
        self._gate = threading.Lock()
        self._ends: list[socket.socket] = []
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = self._door.getsockname()[1]
        self.url = f"valkey://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def fail(self, way: str, after: int, what: str, call: Callable[[], None] | None = None) -> None:
        """The next connection that carries so much fails so."""
        self._fault = (way, after, what, call)

    def close(self) -> None:
        self._door.close()
        for end in self._ends:
            _close(end)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._door.accept()
                server = socket.create_connection(("127.0.0.1", self._port), 5)
                server.settimeout(None)
            except OSError:
                return
            self._ends += [client, server]
            for way, source, target in (("up", client, server), ("down", server, client)):
                threading.Thread(target=self._carry, args=(way, source, target), daemon=True).start()

    def _carry(self, way: str, source: socket.socket, target: socket.socket) -> None:
        carried = 0
        slow = False
        with contextlib.suppress(OSError):
            while data := source.recv(BUFFER):
                at = self._due(way, carried, len(data))
                if at is None:
                    _send(target, data, slow)
                    carried += len(data)
                    continue
                what, call = at
                _send(target, data[: what[1] - carried], slow)
                if what[2] == "stall":
                    time.sleep(60)
                elif what[2] == "cut":
                    break
                elif call is not None:
                    call()
                slow = what[2] == "trickle"
                _send(target, data[what[1] - carried :], slow)
                carried += len(data)
        _close(source)
        _close(target)

    def _due(
        self, way: str, carried: int, coming: int
    ) -> tuple[tuple[str, int, str, Callable[[], None] | None], Callable[[], None] | None] | None:
        with self._gate:
            fault = self._fault
            if fault is None or fault[0] != way or carried + coming <= fault[1]:
                return None
            self._fault = None
            return fault, fault[3]


def _send(target: socket.socket, data: bytes, slow: bool) -> None:
    if not slow:
        target.sendall(data)
        return
    for byte in data:
        target.sendall(bytes([byte]))
        time.sleep(0.01)


def _close(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
