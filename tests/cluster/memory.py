"""A pool in this process, whose server can be told to fail: for what nodes do with a pool, at a time that the test sets."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

from tenure.errors import TierError
from tenure.tiers.base import Outcome
from tenure.tiers.layout import BlockLayout
from tenure.tiers.pool import Families, Get, Head, Look, PoolTier, Put

_TOKENS = itertools.count(1)


class Server:
    """What all tiers on it share. `down`: it does not answer. `micros`: its clock, of which it reads more at every bump. clock:
    seconds, by which small entries end."""

    def __init__(self, clock: Callable[[], float] = lambda: 0.0) -> None:
        self.clock = clock
        self.heads: dict[bytes, Head] = {}
        self.bytes: dict[tuple[bytes, bytes], tuple[bytes, bytes]] = {}
        self.families: dict[bytes, int] = {}
        self.names: dict[str, bytes] = {}
        self.ends: dict[str, float] = {}
        self.down = False
        self.micros = 1_000
        self.asked = 0
        self.before_answer: Callable[[], None] = lambda: None

    def forget(self) -> None:
        """It has been started anew, empty."""
        for kept in (self.heads, self.bytes, self.families, self.names):
            kept.clear()

    def entry(self, name: str) -> bytes | None:
        if self.ends.get(name, math.inf) <= self.clock():
            self.names.pop(name, None)
        return self.names.get(name)

    def set(self, name: str, value: bytes, ttl: float | None) -> None:
        self.names[name] = value
        self.ends[name] = math.inf if ttl is None else self.clock() + ttl

    def now(self) -> int:
        self.micros += 10
        return self.micros


class MemoryPool(PoolTier):
    """One node's tier on a Server."""

    def __init__(self, server: Server, layout: BlockLayout, frames: int = 64, name: str = "pool") -> None:
        super().__init__(name, layout, None, frames)
        self.server = server

    def _ask(self) -> Server:
        if self.server.down:
            raise TierError("io", "the server does not answer")
        self.server.asked += 1
        return self.server

    def look(self, digests: Sequence[bytes], families: Sequence[bytes], wait: float | None = None) -> Look:
        server = self._ask()
        values = [server.families.get(name) for name in families]
        heads = list(itertools.takewhile(lambda head: head is not None, map(server.heads.get, digests)))
        server.before_answer()
        return Look([head for head in heads if head], values, 1)

    def extend(self, digests: Sequence[bytes], duration: float) -> list[bool]:
        return [digest in self._ask().heads for digest in digests]

    def bump(self, families: Sequence[bytes], replicas: int | None = None) -> Families:
        server = self._ask()
        for name in families:
            server.families[name] = max(server.families.get(name, 0) + 1, server.now())
        return Families([server.families[name] for name in families], True)

    def ensure(self, families: Sequence[bytes]) -> Families:
        server = self._ask()
        return Families([server.families.setdefault(name, server.now()) for name in families], True)

    def read_families(self, families: Sequence[bytes]) -> list[int | None]:
        server = self._ask()
        return [server.families.get(name) for name in families]

    def raise_families(self, values: Mapping[bytes, int]) -> Families:
        server = self._ask()
        for name, value in values.items():
            server.families[name] = max(server.families.get(name, 0), value)
        return Families([server.families[name] for name in values], True)

    def get(self, name: str) -> bytes | None:
        return self._ask().entry(name)

    def put(self, name: str, value: bytes, ttl: float | None = None) -> None:
        self._ask().set(name, value, ttl)

    def swap(self, name: str, old: bytes | None, new: bytes, ttl: float | None = None) -> bool:
        server = self._ask()
        if server.entry(name) != old:
            return False
        server.set(name, new, ttl)
        return True

    def delete(self, name: str) -> bool:
        there = self._ask().entry(name) is not None
        self.server.names.pop(name, None)
        return there

    def entries(self, prefix: str = "") -> dict[str, bytes]:
        server = self._ask()
        found = {name: server.entry(name) for name in sorted(server.names) if name.startswith(prefix)}
        return {name: value for name, value in found.items() if value is not None}

    def _claim(self, digests: Sequence[bytes]) -> list[bytes | Head | TierError]:
        try:
            server = self._ask()
        except TierError as error:
            return [error] * len(digests)
        return [server.heads.get(digest, b"%d" % next(_TOKENS)) for digest in digests]

    def _head(self, token: bytes, envelope: int, payload: int, expires: float) -> Head:
        return Head(token, envelope, payload, payload, expires)

    def _store(self, puts: Sequence[Put]) -> list[Outcome]:
        for put in puts:
            self.server.bytes[put.digest, put.head.token] = put.seal(), bytes(put.payload)
            self.server.heads.setdefault(put.digest, put.head)
        return [None] * len(puts)

    def _fetch(self, gets: Sequence[Get], proven: Callable[[int], Outcome]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for place, get in enumerate(gets):
            found = self.server.bytes.get((get.digest, get.head.token))
            if self.server.down or found is None:
                outcomes.append(TierError("io" if self.server.down else "empty", "it is not there"))
                continue
            get.envelope[:], get.payload[:] = found
            outcomes.append(proven(place))
        return outcomes

    def _discard(self, blocks: Sequence[tuple[bytes, bytes]]) -> None:
        for digest, token in blocks:
            if (head := self.server.heads.get(digest)) is not None and head.token == token:
                del self.server.heads[digest]
