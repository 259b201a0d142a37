"""The pool on a Valkey server or cluster: whoever claims a block first writes it; what is committed is read by all.
Called by whoever moves blocks; a server that is away, slow, full or empty makes outcomes, never errors, waits or wrong blocks."""

from __future__ import annotations

import itertools
import os
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from typing import Literal

from tenure.checks import integer, positive
from tenure.errors import ConfigError, TierError
from tenure.tiers import valkey_scripts as scripts
from tenure.tiers.base import Outcome
from tenure.tiers.codec import Codec
from tenure.tiers.embedded import Embedded
from tenure.tiers.heads import MOST_CHUNKS, Claim, Get, Head, Keys, Put, parse
from tenure.tiers.layout import BlockLayout
from tenure.tiers.plane import DataPlane
from tenure.tiers.pool import TOGETHER
from tenure.tiers.protocol import Command, Refused, Reply
from tenure.tiers.valkey_chunks import came, committed, reading, writing
from tenure.tiers.valkey_client import Client
from tenure.tiers.valkey_entries import script, trouble
from tenure.tiers.valkey_lookups import ValkeyLookups
from tenure.tiers.valkey_url import parse_url

__all__ = ["ValkeyTier"]


class ValkeyTier(ValkeyLookups):
    """url: "embedded" (a server that this tier starts and ends; of `embedded_bytes` at most), "valkey://user:password@host:port",
    "valkeys://..." (TLS; ca: a file of authorities), "valkey+cluster://host:port,host:port", "unix:///path"; redis in place of
    valkey is the same. user, password: before those of the url. A server that cannot be reached is no error: the tier opens,
    every outcome is `io`, and it connects when it can.

    prefix: of all keys, so that one server can have several pools. ttl: seconds that a block stays when it is not needed before.
    claim: seconds that a writer has from its claim to its commit. chunk_bytes: payloads are cut into values of this size.
    connections: how many for bulk stay open to each server; calls of several threads take one each. timeout: seconds that a
    round trip may take in all, with connecting; one moves 8 MiB or one block. data: where payloads go, None for beside the heads.
    owner: what a claim says who holds it. The rest: see PoolTier.

    Raises ConfigError for a bad setting, and when an embedded server does not start.
    """

    def __init__(
        self,
        layout: BlockLayout,
        url: str = "embedded",
        *,
        frames: int = 65536,
        codec: Codec | None = None,
        key: bytes | None = None,
        prefix: str = "tenure",
        name: str = "pool",
        ttl: float = 86400.0,
        claim: float = 10.0,
        claimed: Literal["compute", "wait"] = "compute",
        claim_wait: float = 2.0,
        chunk_bytes: int = 4 << 20,
        connections: int = 4,
        timeout: float = 1.0,
        user: str | None = None,
        password: str | None = None,
        ca: str | None = None,
        embedded_bytes: int = 1 << 30,
        data: DataPlane | None = None,
        owner: str | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(name, layout, codec, frames, key=key, claimed=claimed, claim_wait=claim_wait, wall=wall)
        self._keys = Keys(prefix, layout, self.codec)
        self._ttl = positive("ttl", ttl, 1e9)
        self._claim_ms = max(1, int(positive("claim", claim, 1e6) * 1000))
        self._chunk = integer("chunk_bytes", chunk_bytes, -(-self._bound // MOST_CHUNKS), 1 << 29)
        self._timeout = positive("timeout", timeout, 3600)
        self._owner = _word(f"{socket.gethostname()}:{os.getpid()}" if owner is None else owner)
        self._data = data
        self._boot = secrets.token_hex(8)
        self._serial = itertools.count()
        keep = integer("connections", connections, 1, 1024)
        most = integer("embedded_bytes", embedded_bytes, 1 << 20, 1 << 62)
        self._embedded = Embedded(most) if url == "embedded" else None
        self.url = url if self._embedded is None else f"unix://{self._embedded.path}"
        """where other nodes find the same pool"""
        place = parse_url(self.url, user, password, ca)
        self._client = Client(name, place.seeds, place.login, cluster=place.cluster, keep=keep)

    # -- blocks

    def _claim(self, digests: Sequence[bytes]) -> list[bytes | Head | TierError]:
        tokens = [b"%b.%x.%x" % (self._boot.encode(), os.getpid(), next(self._serial)) for _ in digests]
        commands = []
        for digest, token in zip(digests, tokens, strict=True):
            key, claim = self._keys.head(digest), Claim(token, self._owner).encode()
            commands.append(Command(key, (b"SET", key, claim, b"NX", b"GET", b"PX", b"%d" % self._claim_ms)))
        trip = self._client.run(commands, self._timeout)
        self._count("trips", trip.trips)
        return [self._claimed(reply, token) for reply, token in zip(trip.replies, tokens, strict=True)]

    def _claimed(self, reply: Reply, token: bytes) -> bytes | Head | TierError:
        if reply is None:
            return token
        if isinstance(reply, Refused):
            return trouble(reply)
        stands = parse(reply) if isinstance(reply, bytes) else None
        if isinstance(stands, Head):
            return stands
        if isinstance(stands, Claim):
            return TierError("claimed", f"{stands.owner.decode(errors='replace')} is writing the block")
        return TierError("foreign", "what stands at the block's head is none of ours")

    def _head(self, token: bytes, envelope: int, payload: int, expires: float) -> Head:
        return Head(token, envelope, payload, 0 if self._data else self._chunk, expires)

    def _store(self, puts: Sequence[Put]) -> list[Outcome]:
        outcomes: list[Outcome] = [None] * len(puts)
        if self._data is not None:
            names = [self._keys.payload(put.digest, put.head.token) for put in puts]
            outcomes = self._data.put(names, [(memoryview(put.seal()), put.payload) for put in puts])
        there = [place for place, outcome in enumerate(outcomes) if outcome is None]
        groups = []
        for put in (puts[place] for place in there):
            left = min(self._ttl, put.head.expires - self._wall())
            groups.append(writing(self._keys, put, self._owner, self._claim_ms, max(1, int(left * 1000))))
        for place, replies in zip(there, self._grouped(groups, sum(len(puts[place].payload) for place in there)), strict=True):
            came_of = committed(replies)
            outcomes[place] = self._too_late(came_of) if isinstance(came_of, bytes) else came_of
        self._drop([(put.digest, put.head.token) for put, outcome in zip(puts, outcomes, strict=True) if outcome is not None])
        return outcomes

    def _too_late(self, stands: bytes) -> TierError:
        self._count("refused", 1)
        self._count("taken_over", stands != b"")
        what = "had run out, and another has taken over" if stands else "had run out"
        return TierError("late", f"the claim {what} when the block was to be committed")

    def _fetch(self, gets: Sequence[Get], proven: Callable[[int], Outcome]) -> list[Outcome]:
        outcomes: dict[int, Outcome] = {}
        here = [place for place, get in enumerate(gets) if get.head.chunk]
        elsewhere = [place for place, get in enumerate(gets) if not get.head.chunk]
        groups = [reading(self._keys, gets[place]) for place in here]
        whose = [number for number, group in enumerate(groups) for _ in group]
        missing = [len(group) for group in groups]

        def arrived(place: int) -> None:
            number = whose[place]
            missing[number] -= 1
            if not missing[number]:
                outcomes[here[number]] = proven(here[number])

        replies = self._grouped(groups, sum(len(gets[place].payload) for place in here), arrived)
        for place, group, parts in zip(here, groups, replies, strict=True):
            if (wrong := came(group, parts)) is not None:
                outcomes[place] = wrong
        if elsewhere and self._data is not None:
            names = [self._keys.payload(gets[place].digest, gets[place].head.token) for place in elsewhere]
            into = [(gets[place].envelope, gets[place].payload) for place in elsewhere]
            for place, wrong in zip(elsewhere, self._data.get(names, into), strict=True):
                outcomes[place] = wrong or proven(place)
        elif elsewhere:
            for place in elsewhere:
                outcomes[place] = TierError("foreign", f"the block's bytes are in a data plane that {self.name} does not have")
        return [outcomes[place] for place in range(len(gets))]

    def _grouped(
        self, groups: list[list[Command]], moved: int, arrived: Callable[[int], None] | None = None
    ) -> list[list[Reply]]:
        """One trip over bulk connections; the replies of each group."""
        time_for = self._timeout * max(1, -(-moved // TOGETHER))
        trip = self._client.run(list(itertools.chain(*groups)), time_for, bulk=True, arrived=arrived)
        self._count("trips", trip.trips)
        replies = iter(trip.replies)
        return [list(itertools.islice(replies, len(group))) for group in groups]

    def _discard(self, blocks: Sequence[tuple[bytes, bytes]]) -> None:
        commands = [script(scripts.DISCARD, [self._keys.head(digest)], token) for digest, token in blocks]
        self._count("trips", self._client.run(commands, self._timeout).trips)
        self._drop(blocks)

    def _drop(self, blocks: Sequence[tuple[bytes, bytes]]) -> None:
        if blocks and self._data is not None:
            self._data.drop([self._keys.payload(digest, token) for digest, token in blocks])

    def _close(self) -> None:
        super()._close()
        self._client.close()
        if self._data is not None:
            self._data.close()
        if self._embedded is not None:
            self._embedded.close()


def _word(owner: str) -> bytes:
    if not isinstance(owner, str) or not owner.isprintable() or not owner.strip() or " " in owner:
        raise ConfigError(f"owner is {owner!r}: printable text without blanks is needed")
    return owner.encode()
