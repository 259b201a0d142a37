"""Hand-over: one node has computed a prompt's KV, another goes on with it, through the pool that both share.
Used by engines that prefill and decode in different places; it moves bytes only by way of the node."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt

from tenure.checks import blocks_and_keys, positive, seconds
from tenure.errors import ConfigError, RecordError
from tenure.identity import Identity

if TYPE_CHECKING:
    from tenure.node import Node
    from tenure.sequence import Sequence

__all__ = ["Handover", "adopt", "publish"]

_VERSION = 1
_WIRE = tuple[int, bytes, bytes, int, dict[int, bytes]]
_BATCH = 64


@dataclass(frozen=True)
class Handover:
    """What the other node needs to go on: whose KV, of which tokens (int32), and how many leading tokens the pool had when it was
    made. It holds no bytes, and no secret but the tokens."""

    who: Identity
    tokens: npt.NDArray[np.int32]
    published: int
    extra_keys: dict[int, bytes]

    def encode(self) -> bytes:
        """As bytes, for whatever carries it."""
        tokens = np.ascontiguousarray(self.tokens, "<i4").tobytes()
        return msgspec.msgpack.encode((_VERSION, self.who.dump(), tokens, self.published, self.extra_keys))

    @classmethod
    def decode(cls, data: bytes) -> Handover:
        """Raises RecordError for anything that `encode` did not make."""
        try:
            version, who, tokens, published, extra = msgspec.msgpack.decode(data, type=_WIRE)
            if version != _VERSION:
                raise RecordError(f"a hand-over of version {version}: this reads version {_VERSION}", found=version)
            return cls(Identity.load(who), np.frombuffer(tokens, "<i4").astype(np.int32), published, extra)
        except (msgspec.MsgspecError, ValueError, TypeError) as error:  # IdentityError is a ValueError
            raise RecordError(f"these bytes are no hand-over: {error}") from None


def publish(
    node: Node, seq: Sequence, *, ttl: float = 60.0, patience: float = 10.0, extra_keys: Mapping[int, bytes] | None = None
) -> Handover:
    """Puts what a running sequence has computed into the pool, where its blocks stay for `ttl` seconds at least as far as the
    pool has room. All its tokens count as computed. What could not be written within `patience` seconds, and the part of a block
    at the end, is computed again by whoever adopts it: `published` says how far it got.

    extra_keys: as they were given to `sequence`. Raises ConfigError for a node without a pool, StaleHandleError for a sequence
    that has ended.
    """
    seconds("ttl", ttl)
    until = time.monotonic() + positive("patience", patience)
    shared = node.shared
    if shared is None:
        raise ConfigError("the node has no pool to publish to: give it a Level with a PoolTier")
    if seq.who is None:
        raise ConfigError("a resumed sequence does not know whose it is: publish the one that `sequence` returned")
    keys = dict(blocks_and_keys(extra_keys))
    tokens, effective, size = seq.tokens, seq.effective, node.block_size
    seq.seal()
    blocks = seq.offer(shared.tier)
    upto = {block: key for block, key in keys.items() if block < blocks}
    there, written = -1, 0
    while time.monotonic() < until:
        here = node.reach(tokens[: blocks * size], effective, shared.tier, extra_keys=upto).here
        if here >= blocks or (here == there and not written):
            break
        there = here
        written = node.write_some(shared.tier, _BATCH, until)  # also waits for what the node's own thread is writing
    digests = list(effective.digest_chain(tokens[: blocks * size], size, upto))
    return Handover(seq.who, tokens, shared.keep(digests, ttl) * size, keys)


def adopt(node: Node, handover: Handover | bytes, **asked: Any) -> Sequence:
    """The sequence of a hand-over, on this node: what the pool has of it is a hit, the rest is to be computed. asked: as for
    `Node.sequence`. Raises RecordError for bytes that are no hand-over, and what `sequence` raises."""
    if not isinstance(handover, Handover):
        handover = Handover.decode(handover)
    return node.sequence(handover.tokens, handover.who, extra_keys=handover.extra_keys or None, **asked)
