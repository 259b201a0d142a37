"""A manager's KV events on ZMQ sockets: live, past ones again, and a snapshot for whoever comes late; in a thread of its own.
Called by whoever runs a manager or node; the engine never waits for it."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from types import TracebackType

import msgspec

from tenure.checks import integer, positive
from tenure.errors import ConfigError, TenureError
from tenure.events.asking import END
from tenure.events.mirror import Mirror
from tenure.events.sockets import zmq
from tenure.events.wire import AllBlocksCleared, BlockRemoved, BlockStored, KVEvent, encode
from tenure.manager import BlockManager

__all__ = ["Publisher"]

_LOG = logging.getLogger("tenure")
_END = END.to_bytes(8, "big", signed=True)
_MOST = 1024
"""Blocks of one message, about: one event has at most a quarter of that."""
_REQUESTS = 8
"""Requests served between two looks at the manager."""
_WAIT = 5.0
"""Seconds that closing waits for the thread."""

_ANSWER = 10_000
"""Messages that wait for whoever asked for them, at least: more than a snapshot of ten million blocks has."""
_LINGER = 200
"""Milliseconds that the last messages have to get out."""


class Publisher:
    """Publishes what a manager (or node) holds, as vLLM does.

    endpoint, replay, snapshot: where it binds (None: not offered); port 0 takes a free one: the attributes of these names tell
    which. Every message's topic is "topic@node@boot", where `boot` is new each time; sequence numbers start at 0. media: which
    medium a tier is, beside tenure.events.MEDIA. interval: seconds between two looks at the manager. heartbeat: after so many
    seconds of silence an empty batch is sent. keep: batches that can be asked for again, of at most `keep_bytes` in all. hwm:
    messages that wait for one slow subscriber; what is beyond them is lost to it, and it asks again.

    Use it in a `with` block, or call `close`. Raises ConfigError for what does not fit, or an address that cannot be bound.
    """

    def __init__(
        self,
        kv: BlockManager,
        endpoint: str = "tcp://127.0.0.1:0",
        *,
        replay: str | None = "tcp://127.0.0.1:0",
        snapshot: str | None = "tcp://127.0.0.1:0",
        topic: str = "kv",
        node: str = "node",
        media: Mapping[str, str] | None = None,
        interval: float = 0.01,
        heartbeat: float = 1.0,
        keep: int = 10_000,
        keep_bytes: int = 64 << 20,
        hwm: int = 1000,
        wall: Callable[[], float] = time.time,
    ) -> None:
        for name, value in (("topic", topic), ("node", node)):
            if not isinstance(value, str) or "@" in value or not value.isprintable() or not (value or name == "topic"):
                raise ConfigError(f"{name} is {value!r}: a printable name without '@' is needed")
        self._interval = positive("interval", interval, 60)
        self._heartbeat = positive("heartbeat", heartbeat, 3600)
        self._keep_bytes = integer("keep_bytes", keep_bytes, 0, 1 << 40)
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=integer("keep", keep, 1, 1 << 24))
        self._kept_bytes = 0
        integer("hwm", hwm, 1, 1 << 24)
        self._mirror = Mirror(kv, media)
        self._wall = wall
        self.node = node
        self.boot = secrets.token_hex(8)
        self._topic = "@".join((topic, node, self.boot)).encode()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()  # its own: once it has ended, the addresses are free
        try:
            self._live, self.endpoint = self._bind(zmq.PUB, endpoint, hwm)
            self._replay, self.replay = self._offer(replay)
            self._snapshot, self.snapshot = self._offer(snapshot)
        except (zmq.ZMQError, TypeError) as error:
            self._context.destroy(linger=0)
            raise ConfigError(f"an address of the publisher cannot be bound: {error}") from None
        self.seq = -1
        """The number of the last batch."""
        self._sent_at = time.monotonic()
        self._asked = threading.Condition()
        self._flushes = [0, 0]  # asked for, done
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"tenure-events-{node}", daemon=True)
        self._thread.start()

    @property
    def overruns(self) -> int:
        """How often the manager's log had moved on before it was read. Nothing is lost by it: all is looked at instead."""
        return self._mirror.overruns

    def flush(self, timeout: float = 5.0) -> int:
        """Waits until all that has happened up to now is published; returns the number of the last batch. Raises TenureError
        after `timeout` seconds, or when it is closed."""
        with self._asked:
            self._flushes[0] += 1
            mine = self._flushes[0]
            if not self._asked.wait_for(lambda: self._flushes[1] >= mine or self._closing.is_set(), timeout):
                raise TenureError(f"nothing was published for {timeout:g} s")
            if self._flushes[1] < mine:
                raise TenureError("the publisher is closed")
            return self.seq

    def close(self) -> None:
        """Publishes what is left, and ends. May be called again."""
        self._closing.set()
        self._thread.join(_WAIT)

    def __enter__(self) -> Publisher:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # -- inside

    def _bind(self, kind: int, address: str, hwm: int) -> tuple[zmq.Socket[bytes], str]:
        socket = self._context.socket(kind)
        socket.set_hwm(hwm)
        socket.bind(address)
        return socket, socket.getsockopt_string(zmq.LAST_ENDPOINT)

    def _offer(self, address: str | None) -> tuple[zmq.Socket[bytes] | None, str | None]:
        if address is None:
            return None, None
        return self._bind(zmq.ROUTER, address, max(self._kept.maxlen or 0, _ANSWER) + 1)

    def _run(self) -> None:
        try:
            self._publish([AllBlocksCleared()])
            poller = zmq.Poller()
            for socket in (self._replay, self._snapshot):
                if socket is not None:
                    poller.register(socket, zmq.POLLIN)
            while not self._closing.is_set():
                self._step()
                self._serve(dict(poller.poll(max(1, int(self._interval * 1000)))))
            self._step()
        except Exception:
            _LOG.exception("the events of node %s end here", self.node)
        finally:
            self._closing.set()
            with self._asked:
                self._asked.notify_all()
            self._context.destroy(linger=_LINGER)

    def _step(self) -> None:
        asked = self._flushes[0]
        try:
            events = self._mirror.step()
        except Exception:
            _LOG.exception("a look at the blocks of node %s failed and is repeated", self.node)
            self._mirror.distrust()
            self._closing.wait(self._interval)
            return
        for part in _parts(events):
            self._publish(part)
        if time.monotonic() - self._sent_at >= self._heartbeat:
            self._publish([])
        if asked > self._flushes[1]:
            with self._asked:
                self._flushes[1] = asked
                self._asked.notify_all()

    def _publish(self, events: list[KVEvent]) -> None:
        payload = encode(self._wall(), events)
        self.seq += 1
        self._live.send_multipart((self._topic, _number(self.seq), payload))
        self._sent_at = time.monotonic()
        if len(self._kept) == self._kept.maxlen:
            self._kept_bytes -= len(self._kept.popleft()[1])
        self._kept.append((self.seq, payload))
        self._kept_bytes += len(payload)
        while self._kept_bytes > self._keep_bytes:
            self._kept_bytes -= len(self._kept.popleft()[1])

    def _serve(self, ready: dict[zmq.Socket[bytes], int]) -> None:
        for socket in ready:
            for _ in range(_REQUESTS):
                try:
                    client, *request = socket.recv_multipart(zmq.NOBLOCK)
                except zmq.Again:
                    break
                if socket is self._snapshot:
                    batches = [(self.seq, encode(self._wall(), part)) for part in _parts(self._mirror.snapshot())]
                    end = self._topic, _END, msgspec.msgpack.encode((self.seq, len(batches)))
                    self._answer(socket, client, batches, end)
                    break
                if len(request) == 2 and len(request[1]) == 8:
                    start = int.from_bytes(request[1], "big")
                    self._answer(socket, client, [kept for kept in self._kept if kept[0] >= start], (b"", _END, b""))

    def _answer(
        self, socket: zmq.Socket[bytes], client: bytes, batches: list[tuple[int, bytes]], end: tuple[bytes, bytes, bytes]
    ) -> None:
        """A socket whose peer reads too slowly drops what is beyond its bound; the peer sees it by the numbers."""
        for seq, payload in batches:
            socket.send_multipart((client, b"", self._topic, _number(seq), payload))
        socket.send_multipart((client, b"", *end))


def _parts(events: list[KVEvent]) -> list[list[KVEvent]]:
    """Messages of a bounded size."""
    parts: list[list[KVEvent]] = []
    room = 0
    for event in events:
        blocks = len(event.block_hashes) if isinstance(event, BlockStored | BlockRemoved) else 1
        if room < blocks:
            parts.append([])
            room = _MOST
        parts[-1].append(event)
        room -= blocks
    return parts


def _number(seq: int) -> bytes:
    return seq.to_bytes(8, "big")
