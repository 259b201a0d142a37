"""Who is there: nodes announce themselves in the pool, with what they run, and are gone when they no longer do.
Written by each node as it polls, read by whoever runs a rollout; it decides nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from tenure.errors import RecordError
from tenure.ledger import Held

if TYPE_CHECKING:
    from tenure.tiers.pool import PoolTier

__all__ = ["Amount", "NodeInfo", "Part", "Registry", "Serving", "serving"]

_PREFIX = "node:"
_MOST = 64
"""Versions that a node tells of, those with the most blocks."""
_LOG = logging.getLogger("tenure")


class Amount(NamedTuple):
    """Open sequences, and blocks in whatever tier of the node."""

    sequences: int = 0
    blocks: int = 0


class Serving(NamedTuple):
    """What a node has of one version, under all its tenants and epochs; the digests as its identities have them."""

    model: str
    weights: Any
    adapter: Any
    tokenizer: Any
    quantisation: str
    sequences: int
    blocks: int


class Part(NamedTuple):
    """A node's part in one rollout: what it has of either version, and how many prefixes it has computed ahead."""

    old: Amount
    new: Amount
    warmed: int


@dataclass(frozen=True)
class NodeInfo:
    """A node as it announced itself. boot: another one after a restart. generation: of the rollouts that it has heard of and
    acts on. age: seconds since it read the epochs that it relies on, None: it could not. versions: what it serves. parts: by the
    model of a rollout."""

    name: str
    boot: str
    generation: int = 0
    age: float | None = None
    versions: tuple[Serving, ...] = ()
    parts: dict[str, Part] = field(default_factory=dict)


class Registry:
    """The nodes of a pool. Every call may raise TierError."""

    def __init__(self, pool: PoolTier) -> None:
        self._pool = pool
        self._name = ""
        self._mine: bytes | None = None  # what this node last said of itself

    def nodes(self) -> list[NodeInfo]:
        """Those that have announced themselves and have not been silent since for longer than they said, by name. Raises
        RecordError for one that cannot be read: it is there, and nobody knows what it does."""
        return [_decoded(name, entry) for name, entry in self._pool.entries(_PREFIX).items()]

    def announce(self, info: NodeInfo, ttl: float) -> NodeInfo:
        """Says for `ttl` seconds that this node is there. Where another one has meanwhile taken its name it gives itself another:
        returns what it is called."""
        name, entry = _PREFIX + info.name, msgspec.msgpack.encode(info)
        if self._mine is None or not self._pool.swap(name, self._mine, entry, ttl):
            if self._mine is not None and self._taken(name, info.boot):
                other = replace(info, name=f"{info.name}-{info.boot[:8]}")
                _LOG.warning("another node is called %s too: this one calls itself %s from now on", info.name, other.name)
                info, name, entry = other, _PREFIX + other.name, msgspec.msgpack.encode(other)
            self._pool.put(name, entry, ttl)
        self._name, self._mine = name, entry
        return info

    @property
    def announced(self) -> bool:
        """Whether this node has said that it is there."""
        return self._mine is not None

    def leave(self) -> None:
        """This node is not there any more."""
        if self._mine is not None and self._pool.get(self._name) == self._mine:
            self._pool.delete(self._name)
        self._mine = None

    def _taken(self, name: str, boot: str) -> bool:
        entry = self._pool.get(name)
        try:
            return entry is not None and _decoded(name, entry).boot != boot
        except RecordError:
            return False  # of no use to anybody


def serving(held: Iterable[Held]) -> tuple[Serving, ...]:
    """What there is of each version, of those with the most blocks."""
    found: dict[tuple[Any, ...], Serving] = {}
    for who, sequences, blocks, _ in held:
        version = (who.model, who.weights, who.adapter, who.tokenizer, who.quantisation)
        before = found.get(version) or Serving(*version, 0, 0)
        found[version] = before._replace(sequences=before.sequences + sequences, blocks=before.blocks + blocks)
    return tuple(sorted(found.values(), key=lambda one: one.blocks, reverse=True)[:_MOST])


def _decoded(name: str, entry: bytes) -> NodeInfo:
    try:
        return msgspec.msgpack.decode(entry, type=NodeInfo)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise RecordError(f"what {name} says of itself in the pool cannot be read: {error}") from None
