"""One lower tier as the mover runs it: the bytes' tier, its breaker, its deadline, and the records that name blocks in it.
Made by the node, used by the mover; it takes no decision about what is kept."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol

import numpy as np

from tenure.breaker import Breaker
from tenure.errors import RecordError, StoreError
from tenure.identity import Identity
from tenure.readers import Readers
from tenure.tiers.base import Outcome, Tier
from tenure.tiers.record import NO_PARENT, Record
from tenure.transfers import BlockName, Content

__all__ = ["Lane", "LaneStats", "Lasting"]

_LOG = logging.getLogger("tenure")
_CHUNK = 8 << 20
"""Bytes to read from a slow tier at a time, so that copying to the device goes on beside it."""


class LaneStats(NamedTuple):
    """How a lower tier does: its breaker ("closed", "open", "half-open") and how often that opened, reads that came too late,
    and refusals of its medium by kind (tenure.tiers.KINDS)."""

    breaker: str
    opened: int
    late: int
    refused: dict[str, int]


class Lasting(Protocol):
    """A tier that outlives its process, and has a table of namespaces."""

    def put_namespace(self, namespace: bytes, value: bytes) -> None: ...  # noqa: D102
    def drop_namespace(self, namespace: bytes) -> bool: ...  # noqa: D102


class Lane:
    """`deadline`: seconds that a request waits for its loads from this tier; None for a tier that cannot hang."""

    def __init__(self, tier: Tier, deadline: float | None, breaker: Breaker, lasting: Lasting | None) -> None:
        self.tier = tier
        self.name = tier.name
        self.layout = tier.layout
        self.deadline = deadline
        self.breaker = breaker
        self.lasting = lasting
        self.writing = threading.Lock()  # one writer at a time: a frame that is nobody's is emptied before it is given out again
        self.naming = threading.Lock()  # no namespace is dropped while a block's content is looked up to be written
        self.late = 0
        self.digests: dict[BlockName, bytes] = {}  # of the blocks that a lasting tier has
        self._known: set[bytes] = set()
        self._readers: Readers[list[Outcome]] | None = None if deadline is None else Readers(f"tenure-{self.name}")

    # -- what names a block here

    def record(
        self, name: BlockName, content: Content, content_of: Callable[[BlockName], Content], wall: Callable[[float], float]
    ) -> Record:
        """The record of a block. In a tier that ends with the process its name is proof enough; one that lasts has digests.
        Raises StaleHandleError when a block before it is gone."""
        if self.lasting is None:
            digest, parent = np.array(name, dtype="<u4").tobytes().ljust(32, b"\0"), NO_PARENT
        else:
            parent = NO_PARENT if content.parent is None else self.digest(content.parent, content_of)
            digest = self.digest(name, content_of)
        return Record(
            content.who.namespace,
            digest,
            parent,
            content.depth,
            _plain(content.tokens),
            self.layout,
            content.extra_key,
            wall(content.expires),
        )

    def digest(self, name: BlockName, content_of: Callable[[BlockName], Content]) -> bytes:
        """The block's link of its digest chain; the links before it are worked out where they are not known."""
        missing: list[tuple[BlockName, Content]] = []
        at: BlockName | None = name
        while at is not None and at not in self.digests:
            missing.append((at, content_of(at)))
            at = missing[-1][1].parent
        link = b"" if at is None else self.digests[at]
        for block, what in reversed(missing):
            link = self.digests[block] = what.who.link(link, what.extra_key, _plain(what.tokens))
        return link

    def make_known(self, who: Identity) -> None:
        """Before the first block of a namespace. Raises StoreError where it cannot be written down."""
        if self.lasting is not None and who.namespace not in self._known:
            self.lasting.put_namespace(who.namespace, who.dump())
            self._known.add(who.namespace)

    def drop(self, namespace: bytes) -> None:
        """Nothing of a namespace counts here any more, nor after a restart."""
        self._known.discard(namespace)
        if self.lasting is not None:
            try:
                self.lasting.drop_namespace(namespace)
            except StoreError as error:
                _LOG.warning("tier %s: a namespace could not be dropped, and may come back after a restart: %s", self.name, error)

    # -- its state

    def went(self, well: bool) -> None:
        """How the last call went; a tier that has just been given up is said once."""
        if well:
            self.breaker.succeeded()
        elif self.breaker.failed():
            _LOG.warning("tier %s fails and is left alone for a while; requests go on without it", self.name)

    def stats(self) -> LaneStats:
        """How it does."""
        return LaneStats(self.breaker.state, self.breaker.opened, self.late, dict(self.tier.counters.refused))

    def close(self) -> None:
        """Its tier is closed; late reads are not waited for."""
        if self._readers is not None:
            self._readers.close()
        self.tier.close()

    # -- reading

    def read(self, frames: list[int], records: list[Record], into: list[Any]) -> list[Outcome]:
        """Reads at once, in this thread: for a tier that cannot hang."""
        return self.tier.read(frames, records, into)

    def chunks(self, count: int) -> list[range]:
        """Consecutive parts of `count` blocks, to be read one after the other."""
        step = max(1, _CHUNK // self.tier.block_bytes)
        return [range(start, min(start + step, count)) for start in range(0, count, step)]

    def begin(self, frames: list[int], records: list[Record], into: list[Any]) -> Future[list[Outcome]]:
        """Begins to read in another thread, into memory that the caller may leave to it."""
        if self._readers is None:
            raise RecordError(f"tier {self.name} is read at once")
        return self._readers.submit(lambda: self.tier.read(frames, records, into))

    def left(self, started: float) -> float:
        """Seconds until the deadline of what was started then (time.monotonic)."""
        return max(0.0, (self.deadline or 0.0) - (time.monotonic() - started))


def _plain(tokens: Any) -> bytes:
    return np.ascontiguousarray(tokens, dtype="<u4").tobytes()
