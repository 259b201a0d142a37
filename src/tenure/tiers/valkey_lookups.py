"""What a pool on Valkey has of a chain of blocks, and how long it stays: the heads, asked for in few round trips.
The part of the Valkey tier that finds blocks and moves none."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tenure.checks import seconds
from tenure.errors import ConfigError
from tenure.probing import first_asked
from tenure.tiers import valkey_scripts as scripts
from tenure.tiers.heads import Claim, Head, Look, parse
from tenure.tiers.protocol import Command, Refused, Reply
from tenure.tiers.valkey_entries import ValkeyEntries, script, trouble

__all__ = ["ValkeyLookups"]

_PAUSE = (0.005, 0.1)
"""Seconds between two questions for a block that is being written: at first, and at most."""


class ValkeyLookups(ValkeyEntries):
    """Lookups and leases of a PoolTier."""

    def look(self, digests: Sequence[bytes], families: Sequence[bytes], wait: float | None = None) -> Look:
        """See PoolTier.look."""
        patience = self._claim_wait if wait is None else seconds("wait", wait)
        keys, asked = self._head_keys(digests), self._family_keys(families)
        return self._asked(lambda: self._look(keys, asked, patience))

    def _look(self, keys: list[bytes], families: list[bytes], patience: float) -> Look:
        heads, values, trips, claimed = self._prefix(keys, families)
        end = time.monotonic() + patience
        pause, longest = _PAUSE
        while claimed and (left := end - time.monotonic()) > 0:
            time.sleep(min(pause, left))
            pause = min(2 * pause, longest)
            more, _, again, claimed = self._prefix(keys[len(heads) :], [])
            heads += more
            trips += again
        return Look(heads, values, trips)

    def _prefix(self, keys: list[bytes], families: list[bytes]) -> tuple[list[Head], list[int | None], int, bool]:
        """The committed blocks from the first on, the families' values, the trips, and whether the next block is claimed."""
        count = len(keys)
        found: dict[int, Head | Claim | None] = {}
        values: list[int | None] = []
        trips = 0
        ask = first_asked(count)
        while ask or (families and not trips):
            commands = [Command(keys[number], (b"GET", keys[number])) for number in ask]
            extra = [self._asking(families)] if families and not trips else []
            trip = self._client.run(extra + commands, self._timeout)
            trips += trip.trips
            self._count("trips", trip.trips)
            replies = trip.replies
            if extra:
                values = self._values(_good(replies[0]))
                replies = replies[1:]
            found |= {number: self._stands(reply) for number, reply in zip(ask, replies, strict=True)}
            end = next((number for number in sorted(found) if not isinstance(found[number], Head)), count)
            ask = [number for number in range(end) if number not in found]
        heads: list[Head] = []
        while isinstance(head := found.get(len(heads)), Head):
            heads.append(head)
        return heads, values, trips, isinstance(head, Claim)

    def _stands(self, reply: Reply) -> Head | Claim | None:
        """What a block's head says; None for nothing, or nothing that counts. Raises TierError when it could not be read."""
        if isinstance(reply, Refused) and trouble(reply).kind == "foreign":
            return None
        stands = parse(good) if isinstance(good := _good(reply), bytes) else None
        return None if isinstance(stands, Head) and stands.expires <= self._wall() else stands

    def extend(self, digests: Sequence[bytes], duration: float) -> list[bool]:
        """See PoolTier.extend."""
        ms = min(int(seconds("duration", duration) * 1000), 1 << 50)
        commands = [script(scripts.EXTEND, [key], ms) for key in self._head_keys(digests)]
        return self._asked(lambda: [reply == 1 for reply in self._run(commands)])

    def _head_keys(self, digests: Sequence[bytes]) -> list[bytes]:
        for digest in digests:
            if not isinstance(digest, bytes) or len(digest) != 32:
                raise ConfigError(f"a digest is {digest!r}: 32 bytes are needed")
        return [self._keys.head(digest) for digest in digests]


def _good(reply: Reply) -> Reply:
    """The reply, if it is one. Raises TierError."""
    if isinstance(reply, Refused):
        raise trouble(reply)
    return reply
