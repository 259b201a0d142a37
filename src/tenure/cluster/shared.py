"""What a node shares with others through a pool: before a request is admitted, what the pool has of its prompt becomes known to
the manager, under the epochs of this moment. Used by the node; the blocks are loaded, and proven, as from any other tier."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tenure._core import as_tokens
from tenure.cluster.epochs import FAMILIES, Epochs, family
from tenure.cluster.member import Member
from tenure.errors import TenureError
from tenure.identity import Identity
from tenure.tiers.record import MOST_EXTRA, NO_PARENT, Record

if TYPE_CHECKING:
    from tenure.lane import Lane
    from tenure.node import Node
    from tenure.tiers.pool import Families, Head, PoolTier

__all__ = ["Shared"]

_LOG = logging.getLogger("tenure")
_POLLS = 3.0
"""How many polls a node may miss before others take it for gone, at least."""
_ROUNDS = 3
"""How often a look-up begins anew since an epoch was raised under it."""


class Shared:
    """trust: see Epochs. poll: how often `refresh` is called, s. name: what the node calls itself. `pool`, `tier`: the pool, and
    its tier's name. `member`: the node's part in rollouts."""

    def __init__(
        self, node: Node, lane: Lane, tier: PoolTier, clock: Callable[[], float], trust: float, poll: float, name: str | None
    ) -> None:
        self._node = node
        self._lane = lane
        self.pool = tier
        self._clock = clock
        self.tier = lane.name
        self.epochs = Epochs(tier, clock, trust, node.supersede)
        self.member = Member(node, tier, self.epochs, name, max(trust, _POLLS * poll), self._in_time)

    def refresh(self) -> bool:
        """Hears what others have changed, and says what this node does. False: the pool did not answer."""
        self._lane.names.forget()  # a node that only reads from the pool has no writer that does
        return self.epochs.refresh() and self.member.refresh()

    def invalidate(self, fields: Mapping[str, Any]) -> int:
        """A new epoch for what has these field values: one for all that have it, wherever they are, when it is one field that has
        a family; else for each namespace that this node knows. Where the pool does not answer, it is told later, and counts here
        at once. Returns how many namespaces of this node they were."""
        matching = self.epochs.matching(fields)
        if len(fields) == 1 and set(fields) <= set(FAMILIES):
            ((name, value),) = fields.items()
            names = [family(name, value)]
        else:
            names = [family("namespace", who.namespace) for who in matching]
        at = self._clock()
        if not names:
            return len(matching)
        values: Families | None = self._in_time(lambda: self.pool.bump(names), even_when_open=True)
        if values is None:
            _LOG.warning("the pool %s could not be told of a new epoch; it is told as soon as it answers", self._lane.name)
            self.epochs.raise_here(names)
        else:
            if not values.confirmed:
                _LOG.warning("the pool %s: a new epoch is on no replica yet; a fail-over now could lose it", self._lane.name)
            self.epochs.saw(names, values, at)
        return len(matching)

    def find(
        self, tokens: Any, who: Identity, extra_keys: Mapping[int, bytes] | None = None, max_hit: int | None = None
    ) -> Identity:
        """The identity to ask the manager with; it knows of what the pool has of this prompt, as far as that could be found out
        within the tier's deadline."""
        started = time.monotonic()
        tokens = as_tokens(tokens)
        families = self.epochs.families(who)
        if not self.epochs.proven(who):
            self._in_time(lambda: self.epochs.ask(families), started)
        for _ in range(_ROUNDS):
            now = self.epochs.of(who)
            if not self.epochs.proven(who) or not self._look(tokens, who, now, families, extra_keys, max_hit, started):
                break
        return self.epochs.of(who)  # asked again: a pool that hangs may have outlasted what was proven

    def keep(self, digests: list[bytes], ttl: float) -> int:
        """How many leading blocks of a chain the pool has, and will have for `ttl` seconds if it has room."""
        there = self._in_time(lambda: self.pool.extend(digests, ttl)) or []
        return next((i for i, found in enumerate(there) if not found), len(there))

    def _look(
        self,
        tokens: Any,
        who: Identity,
        now: Identity,
        families: tuple[bytes, ...],
        extra_keys: Mapping[int, bytes] | None,
        max_hit: int | None,
        started: float,
    ) -> bool:
        """True: an epoch was raised meanwhile, and all is to be done again."""
        full, nearer, here = self._node.reach(tokens, now, self._lane.name, extra_keys=extra_keys, max_hit=max_hit)
        if nearer >= full:
            return False
        first = min(nearer, here)
        size = self._node.block_size
        digests = list(now.digest_chain(tokens[: full * size], size, extra_keys))
        at = self._clock()
        look = self._in_time(lambda: self.pool.look(digests[first:], families), started)
        if look is None:
            return False
        if not self.epochs.saw(families, look.values, at):
            self._in_time(lambda: self.epochs.ask(families), started)
        if self.epochs.of(who) is not now:
            return True
        self._learn(tokens, now, digests, first, look.heads, extra_keys)
        return False

    def _learn(
        self,
        tokens: Any,
        who: Identity,
        digests: list[bytes],
        first: int,
        heads: list[Head],
        extra_keys: Mapping[int, bytes] | None,
    ) -> None:
        keys_of = extra_keys or {}
        heads = heads[: next((i for i in range(len(heads)) if len(keys_of.get(first + i, b"")) > MOST_EXTRA), None)]
        if not heads:
            return
        size, name = self._node.block_size, self._lane.name
        upto = first + len(heads)
        self.pool.learn(digests[first:upto], heads)
        keys = _upto(extra_keys, upto)
        for at, block, frame in self._node.discover(tokens[: upto * size], who, name, upto, first=first, extra_keys=keys):
            parent = digests[at - 1] if at else NO_PARENT
            ids = tokens[at * size : (at + 1) * size].astype("<u4").tobytes()
            record = Record(who.namespace, digests[at], parent, at, ids, self.pool.layout, keys_of.get(at, b""))
            self._lane.names.digests[block] = digests[at]
            self.pool.know(frame, record, heads[at - first])

    def _in_time(self, job: Callable[[], Any], started: float | None = None, *, even_when_open: bool = False) -> Any:
        """The pool's answer; None when there is none, or none in time. started: when (time.monotonic) what the deadline is for
        was begun, None for now. even_when_open: ask also where it has just failed."""
        patience = None
        if started is not None and self._lane.deadline is not None and (patience := self._lane.left(started)) <= 0:
            return None
        if not self._lane.breaker.allows() and not even_when_open:
            return None
        answered: list[Any] = []
        try:
            self._lane.in_time(lambda: answered.append(job()), patience)
        except TenureError as error:
            _LOG.debug("the pool %s did not answer: %s", self._lane.name, error)
            self._lane.went(False)
        except Exception:  # whatever it was, the request goes on without the pool
            _LOG.exception("asking the pool %s failed", self._lane.name)
            self._lane.went(False)
        if not answered:
            return None  # too late: that has been counted
        self._lane.went(True)
        return answered[0]


def _upto(extra_keys: Mapping[int, bytes] | None, blocks: int) -> dict[int, bytes] | None:
    return None if extra_keys is None else {block: key for block, key in extra_keys.items() if block < blocks}
