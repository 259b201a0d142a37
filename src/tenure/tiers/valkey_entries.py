"""What a pool on Valkey has beside blocks: the values of epoch families, and small entries by name.
The part of the Valkey tier that asks one server at a time and moves no bulk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenure.checks import encodable, integer, positive
from tenure.errors import ConfigError, TierError
from tenure.tiers import valkey_scripts as scripts
from tenure.tiers.heads import Keys
from tenure.tiers.pool import Families, PoolTier
from tenure.tiers.protocol import Command, Refused, Reply
from tenure.tiers.valkey_client import Client, Trip

__all__ = ["ValkeyEntries", "script", "trouble", "value"]

_MOST_VALUE = (1 << 53) - 1
_FOR_REPLICAS = 0.5
"""Of a call's time, what is waited for replicas."""


def script(text: bytes, keys: Sequence[bytes], *arguments: bytes | int) -> Command:
    """A script's call."""
    words = [argument if isinstance(argument, bytes) else b"%d" % argument for argument in arguments]
    return Command(keys[0], (b"EVAL", text, b"%d" % len(keys), *keys, *words))


def trouble(reply: Refused) -> TierError:
    """What a server's refusal is as an outcome."""
    if reply.text.startswith("OOM"):
        return TierError("full", f"the pool is full: {reply.text}")
    if reply.text.startswith("WRONGTYPE"):
        return TierError("foreign", f"what stands there is none of ours: {reply.text}")
    return TierError("io", reply.text)


def value(reply: Reply) -> int | None:
    """A family's value; None for anything that is none."""
    if isinstance(reply, bytes) and reply.isdigit() and len(reply) <= len(str(_MOST_VALUE)):
        reply = int(reply)
    return reply if isinstance(reply, int) and reply <= _MOST_VALUE else None


class ValkeyEntries(PoolTier):
    """Families and entries of a PoolTier. The tier sets `_client`, `_keys` and `_timeout` (seconds a trip)."""

    _client: Client
    _keys: Keys
    _timeout: float

    def _run(self, commands: Sequence[Command]) -> list[Reply]:
        """A trip whose replies all count. Raises TierError for the first that is none."""
        return self._trip(commands).replies

    def _trip(self, commands: Sequence[Command]) -> Trip:
        trip = self._client.run(commands, self._timeout)
        self._count("trips", trip.trips)
        for reply in trip.replies:
            if isinstance(reply, Refused):
                raise trouble(reply)
        return trip

    # -- families

    def bump(self, families: Sequence[bytes], replicas: int | None = None) -> Families:
        """See PoolTier.bump."""
        keys = self._family_keys(families)
        wanted = None if replicas is None else integer("replicas", replicas, 0, 1000)
        return self._asked(lambda: self._changed(scripts.BUMP, keys, (), wanted))

    def ensure(self, families: Sequence[bytes]) -> Families:
        """See PoolTier.ensure."""
        keys = self._family_keys(families)
        return self._asked(lambda: self._changed(scripts.ENSURE, keys, (), 0))

    def read_families(self, families: Sequence[bytes]) -> list[int | None]:
        """See PoolTier.read_families."""
        keys = self._family_keys(families)
        return self._asked(lambda: self._values(self._run([self._asking(keys)])[0] if keys else []))

    def raise_families(self, values: Mapping[bytes, int]) -> Families:
        """See PoolTier.raise_families."""
        keys = self._family_keys(list(values))
        wanted = [integer("a family's value", number, 0, _MOST_VALUE) for number in values.values()]
        return self._asked(lambda: self._changed(scripts.RAISE, keys, wanted, None))

    def _asking(self, keys: Sequence[bytes]) -> Command:
        return Command(keys[0], (b"MGET", *keys))

    def _values(self, reply: Reply) -> list[int | None]:
        return [value(each) for each in reply] if isinstance(reply, list) else []

    def _changed(self, text: bytes, keys: list[bytes], arguments: Sequence[int], replicas: int | None) -> Families:
        """Runs a script that changes families, and waits for so many replicas (None: one in a cluster, or where there is one)."""
        if not keys:
            return Families([], True)
        there = 0
        if replicas != 0:
            role = self._run([Command(keys[0], (b"ROLE",))])[0]
            there = len(role[2]) if isinstance(role, list) and len(role) > 2 and isinstance(role[2], list) else 0
        if replicas is None:
            replicas = 1 if self._client.cluster else min(1, there)
        commands = [script(text, keys, *arguments)]
        if waited := min(replicas, there):
            patience = max(1, int(self._timeout * _FOR_REPLICAS * 1000))
            commands.append(Command(keys[0], (b"WAIT", b"%d" % waited, b"%d" % patience)))
        trip = self._trip(commands)
        if trip.moved and waited:  # a former owner of the keys has said what its replicas have; to raise them again does no harm
            trip = self._trip(commands)
        reply, *have = trip.replies
        values = [each for each in self._values(reply) if each is not None]
        if len(values) != len(keys):
            raise TierError("io", f"{self.name} gave {len(values)} values for {len(keys)} families")
        confirmed = have[0] if have and isinstance(have[0], int) and not trip.moved else 0
        return Families(values, confirmed >= replicas)

    def _family_keys(self, families: Sequence[bytes]) -> list[bytes]:
        for family in families:
            if not isinstance(family, bytes):
                raise ConfigError(f"a family is {family!r}: bytes are needed")
        return [self._keys.family(family) for family in families]

    # -- small entries

    def get(self, name: str) -> bytes | None:
        """See PoolTier.get."""
        key = self._entry_key(name)
        return self._asked(lambda: _bytes(self._run([Command(key, (b"GET", key))])[0]))

    def put(self, name: str, value: bytes, ttl: float | None = None) -> None:
        """See PoolTier.put."""
        self._set(name, value, ttl, b"any")

    def swap(self, name: str, old: bytes | None, new: bytes, ttl: float | None = None) -> bool:
        """See PoolTier.swap."""
        return self._set(name, new, ttl, *([b"none"] if old is None else [b"is", old]))

    def delete(self, name: str) -> bool:
        """See PoolTier.delete."""
        command = script(scripts.DELETE, [self._entry_key(name), self._keys.names], name.encode())
        return self._asked(lambda: self._run([command])[0] == 1)

    def entries(self, prefix: str = "") -> dict[str, bytes]:
        """See PoolTier.entries."""
        if not isinstance(prefix, str) or not encodable(prefix):
            raise ConfigError(f"prefix is {prefix!r}: text is needed")
        reply = self._asked(lambda: self._run([script(scripts.ENTRIES, [self._keys.names], prefix.encode())])[0])
        words = [word for word in reply if isinstance(word, bytes)] if isinstance(reply, list) else []
        return dict(sorted(zip((name.decode(errors="replace") for name in words[::2]), words[1::2], strict=False)))

    def _set(self, name: str, value: bytes, ttl: float | None, *condition: bytes) -> bool:
        for each in (value, *condition):
            if not isinstance(each, bytes):
                raise ConfigError(f"an entry's value is {each!r}: bytes are needed")
        ms = 0 if ttl is None else max(1, int(positive("ttl", ttl) * 1000))
        command = script(scripts.SET, [self._entry_key(name), self._keys.names], name.encode(), value, ms, *condition)
        return self._asked(lambda: self._run([command])[0] == 1)

    def _entry_key(self, name: str) -> bytes:
        if not isinstance(name, str) or not name or not encodable(name):
            raise ConfigError(f"name is {name!r}: a non-empty text is needed")
        return self._keys.name(name)


def _bytes(reply: Reply) -> bytes | None:
    return reply if isinstance(reply, bytes) else None
