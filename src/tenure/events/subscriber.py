"""The KV events of one node, whole: what was missed is asked for again, and where that is gone a snapshot takes its place.
Called by routers, one for each node (ours, or vLLM's and SGLang's publishers); it keeps no blocks."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

import msgspec

from tenure.checks import integer, positive, seconds
from tenure.errors import EventError, TenureError
from tenure.events.asking import Message, NoAnswerError, ask, batch_of, connected, origin
from tenure.events.sockets import zmq
from tenure.events.wire import AllBlocksCleared, Batch

__all__ = ["Subscriber", "SubscriberStats"]

_PAST = 16
"""Former boots of a node that are remembered, so that what they sent late does not count."""
_MOST = 256
"""Batches given at once, about."""


@dataclass(slots=True)
class SubscriberStats:
    """What went wrong, and how it was made good, since the start."""

    gaps: int = 0
    boots: int = 0
    replays: int = 0
    snapshots: int = 0
    cleared: int = 0
    """times that what was missed could not be had, and all that was known was given up"""
    malformed: int = 0
    dropped: int = 0
    """messages that came twice, from a former boot, or while what was missed could not be had"""


class Subscriber:
    """endpoint, replay, snapshot: the publisher's addresses (engines have no snapshot, and perhaps no replay). topic: the first
    characters of the topics wanted. node: its name, where topics do not tell it (engines). patience: seconds to wait for an
    answer; after one that did not come nothing is asked for as long. hwm: messages that wait here before some are lost.

    Not to be shared between threads. Use it in a `with` block, or call `close`. Raises ConfigError for what does not fit.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        replay: str | None = None,
        snapshot: str | None = None,
        topic: str = "",
        node: str = "",
        patience: float = 1.0,
        hwm: int = 10_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._patience = positive("patience", patience, 3600)
        self._hwm = integer("hwm", hwm, 1, 1 << 24)
        self._replay, self._snapshot = replay, snapshot
        self._clock = clock
        self.node, self.boot = node, ""
        self.seq = -1
        """The number of the last batch that was given."""
        self.stats = SubscriberStats()
        self._ts = 0.0
        self._past: deque[str] = deque(maxlen=_PAST)
        self._whole = replay is None and snapshot is None  # False: something was missed, and nothing counts until it is there
        self._not_before: float | None = None
        for address in filter(None, (replay, snapshot)):
            connected(zmq.DEALER, address, hwm).close()
        self._live = connected(zmq.SUB, endpoint, hwm)
        self._live.setsockopt_string(zmq.SUBSCRIBE, topic)

    def receive(self, timeout: float = 0.0) -> list[Batch]:
        """What is new, in order; waits up to `timeout` seconds for something. AllBlocksCleared at the start of a batch says that
        what follows is all that is known. Asking for what was missed can take `patience` seconds more, for each address. Raises
        TenureError when it is closed."""
        wait = int(seconds("timeout", timeout) * 1000)
        if self._live.closed:
            raise TenureError("the subscriber is closed")
        given: list[Batch] = []
        if not self._whole:
            self._recover(given)
        while len(given) < _MOST and self._live.poll(0 if given else wait):
            wait = 0
            frames = self._live.recv_multipart()
            if len(frames) == 3 and len(frames[1]) == 8:
                self._take(Message(frames[0], int.from_bytes(frames[1], "big"), frames[2]), given)
            else:
                self.stats.malformed += 1
        return given

    def close(self) -> None:
        """May be called again."""
        self._live.close()

    def __enter__(self) -> Subscriber:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # -- inside

    def _take(self, message: Message, given: list[Batch]) -> None:
        """A live message: the next one, one that is known already, or one that tells that something was missed."""
        node, boot = origin(message.topic, self.node)
        if boot in self._past:
            self.stats.dropped += 1
            return
        try:
            batch = batch_of(message, self.node)
        except EventError:
            self.stats.malformed += 1
            batch = Batch(node, boot, message.seq, self._ts, [AllBlocksCleared()])  # what else it said is not known
            self._whole = False
        if boot != self.boot or (not boot and batch.seq <= self.seq and batch.ts > self._ts):  # an engine's numbers start anew
            self.stats.boots += 1
            self._begin(node, boot)
            self._whole = False
        elif self._whole and batch.seq <= self.seq:
            self.stats.dropped += 1
            return
        elif self._whole and batch.seq > self.seq + 1:
            self.stats.gaps += 1
            self._whole = False
        if self._whole:
            self._give(given, [batch])
        else:
            self._recover(given, batch)

    def _begin(self, node: str, boot: str) -> None:
        """Another life of the node: its numbers start anew."""
        if self.boot and self.boot != boot:
            self._past.append(self.boot)
        self.node, self.boot, self.seq, self._ts = node, boot, -1, 0.0

    def _give(self, given: list[Batch], batches: list[Batch], clear: bool = False) -> None:
        if clear:
            batches = [batches[0]._replace(events=[AllBlocksCleared(), *batches[0].events]), *batches[1:]]
        given += batches
        self.seq, self._ts = batches[-1].seq, batches[-1].ts
        self._whole = True

    def _recover(self, given: list[Batch], cause: Batch | None = None) -> None:
        """Makes whole what is known: by replay, else by a snapshot. Where there is none, what was known is given up for what can
        still be had. A snapshot that does not come is tried again by a later call."""
        if self._not_before is not None and self._clock() < self._not_before:
            self.stats.dropped += cause is not None
            return
        self._not_before = None
        if self.seq >= 0 and (missed := self._replayed(self.seq + 1)) and missed[0].seq == self.seq + 1:
            self.stats.replays += 1
            self._give(given, missed)
        elif self._snapshot is not None:
            if not self._start_over(given):
                self._not_before = self._clock() + self._patience
                self.stats.dropped += cause is not None
        elif known := self._replayed(0) or ([cause] if cause is not None else []):
            self.stats.cleared += 1
            self._give(given, known, clear=True)

    def _replayed(self, start: int) -> list[Batch]:
        """What the publisher still has from this number on; nothing where it does not answer, or not with all."""
        if self._replay is None:
            return []
        try:
            answers, _ = ask(self._replay, start.to_bytes(8, "big"), patience=self._patience, hwm=self._hwm)
            batches = [batch_of(message, self.node) for message in answers]
        except (NoAnswerError, EventError):
            return []
        whole = all(batch.seq == batches[0].seq + i and batch.boot == self.boot for i, batch in enumerate(batches))
        return batches if whole else []

    def _start_over(self, given: list[Batch]) -> bool:
        """A snapshot, whole or not at all."""
        try:
            parts, end = ask(self._snapshot or "", b"", patience=self._patience, hwm=self._hwm)
            seq, count = msgspec.msgpack.decode(end.payload, type=tuple[int, int])
            batches = [batch_of(part, self.node) for part in parts]
        except (NoAnswerError, EventError, msgspec.MsgspecError):
            return False
        node, boot = origin(end.topic, self.node)
        if boot in self._past or len(parts) != count or any(part.seq != seq or part.topic != end.topic for part in parts):
            return False
        if boot != self.boot:
            self._begin(node, boot)
        self.stats.snapshots += 1
        self._give(given, batches or [Batch(node, boot, seq, self._ts, [])], clear=True)
        return True
