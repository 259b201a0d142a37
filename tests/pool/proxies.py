"""A TCP proxy on loopback whose connections can be held, delayed, cut or half cut while they run.
Put by the tests between nodes and servers, and between servers; it never looks at what passes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

_CHUNK = 1 << 16
_AHEAD = 4 << 20
"""Bytes a direction that the proxy takes before the sender has to wait."""
T = TypeVar("T")


@dataclass(frozen=True)
class Way:
    """How connections are treated.

    up: bytes from the client pass. down: bytes from the server pass. What does not pass waits, as with TCP over a line that is
    down: it is delivered when it passes again. delay: seconds that each byte takes, each way. cut: connections are reset.
    """

    up: bool = True
    down: bool = True
    delay: float = 0.0
    cut: bool = False


PASS = Way()
DROP = Way(up=False, down=False)
CUT = Way(cut=True)
NO_ANSWERS = Way(down=False)
"""Half a cut: what the client asks for is done, and it never hears of it."""
NO_QUESTIONS = Way(up=False)


def delayed(seconds: float) -> Way:
    return Way(delay=seconds)


class Proxy:
    """Listens on a free port of 127.0.0.1 and passes on to `target`. Its calls return when what they ask for is in force."""

    def __init__(self, target: tuple[str, int] | None = None) -> None:
        self.target = target
        """where connections go that are made from now on; None: they are reset"""
        self._ways: dict[str | None, Way] = {None: PASS}
        self._links: dict[int, _Link] = {}
        self._made = 0
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=256)
        self._listening.setblocking(False)
        self.port: int = self._listening.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"proxy-{self.port}", daemon=True)
        self._thread.start()
        self._run(self._begin())

    def set(self, way: Way, *, source: str | None = None) -> None:
        """For all connections, and those to come; source: only for those from this address, until it is given PASS again."""
        self._run(self._set(way, source))

    def set_one(self, connection: int, way: Way) -> None:
        """For one connection; no longer for all others. Raises KeyError when it has ended."""
        self._run(self._set_one(connection, way))

    @property
    def connections(self) -> list[int]:
        """The numbers of the connections that are open, in the order in which they were made."""
        return sorted(self._run(self._open()))

    def close(self) -> None:
        """Ends every connection. May be called again."""
        if self._loop.is_closed():
            return
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # -- in the proxy's own thread

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _begin(self) -> None:
        self._loop.add_reader(self._listening, self._accept)

    async def _set(self, way: Way, source: str | None) -> None:
        if source is not None and way == PASS:
            self._ways.pop(source, None)
        else:
            self._ways[source] = way
        for link in list(self._links.values()):
            if source is None or link.source == source:
                link.set(self._way(link.source))

    async def _set_one(self, connection: int, way: Way) -> None:
        self._links[connection].set(way)

    async def _open(self) -> list[int]:
        return list(self._links)

    def _way(self, source: str) -> Way:
        return self._ways.get(source, self._ways[None])

    def _accept(self) -> None:
        try:
            client, (source, _) = self._listening.accept()
        except OSError:
            return  # it has gone already
        client.setblocking(False)
        self._made += 1
        link = self._links[self._made] = _Link(client, source, self._way(source))
        link.task = self._loop.create_task(link.run(self.target))
        link.task.add_done_callback(lambda _, number=self._made: self._links.pop(number).close())

    async def _end(self) -> None:
        self._loop.remove_reader(self._listening)
        tasks = [link.task for link in self._links.values() if link.task is not None]
        for link in list(self._links.values()):
            link.set(CUT)
        await asyncio.gather(*tasks, return_exceptions=True)
        self._listening.close()


class _Link:
    """One connection: two sockets, and a pump each way."""

    def __init__(self, client: socket.socket, source: str, way: Way) -> None:
        self.source = source
        self.way = way
        self.task: asyncio.Task[None] | None = None
        self._client = client
        self._server: socket.socket | None = None
        self._whole = False
        self._changed = asyncio.Event()

    def set(self, way: Way) -> None:
        self.way = way
        if way.cut and self.task is not None:
            self.task.cancel()
        else:
            self._changed.set()
            self._changed = asyncio.Event()

    async def run(self, target: tuple[str, int] | None) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError, asyncio.CancelledError):  # one end has gone, or it is cut
            while not self.way.up and not self.way.cut:  # the connection itself has to get through
                await self._changed.wait()
            if self.way.cut or target is None:
                return
            self._server = server = socket.socket()
            server.setblocking(False)
            await loop.sock_connect(server, target)
            for end in (self._client, server):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await _together(self._pump(self._client, server, "up"), self._pump(server, self._client, "down"))
            self._whole = True

    def close(self) -> None:
        """A connection that both ends have ended is closed; any other is reset."""
        for end in (self._client, self._server):
            if end is not None:
                with contextlib.suppress(OSError):
                    if not self._whole:
                        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.close()

    async def _pump(self, source: socket.socket, target: socket.socket, direction: str) -> None:
        loop = asyncio.get_running_loop()
        waiting: deque[tuple[float, bytes]] = deque()
        room, filled = asyncio.Event(), asyncio.Event()

        async def take() -> None:
            while True:
                while sum(len(data) for _, data in waiting) >= _AHEAD:
                    room.clear()
                    await room.wait()
                data = await loop.sock_recv(source, _CHUNK)
                waiting.append((loop.time(), data))
                filled.set()
                if not data:
                    return

        async def give() -> None:
            while True:
                while not waiting:
                    filled.clear()
                    await filled.wait()
                await self._until_due(waiting[0][0], direction)
                _, data = waiting.popleft()
                room.set()
                if not data:  # the end of one direction
                    with contextlib.suppress(OSError):
                        target.shutdown(socket.SHUT_WR)
                    return
                await loop.sock_sendall(target, data)

        await _together(take(), give())

    async def _until_due(self, arrived: float, direction: str) -> None:
        """Until what has arrived then may be passed on, by whatever way is in force meanwhile."""
        loop = asyncio.get_running_loop()
        while True:
            changed, way = self._changed, self.way
            left = arrived + way.delay - loop.time() if getattr(way, direction) else None
            if left is not None and left <= 0:
                return
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(changed.wait(), left)


async def _together(*work: Coroutine[Any, Any, None]) -> None:
    """All of it, or none: when one fails the others end too."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
