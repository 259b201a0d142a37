"""A node's part in what its pool has agreed on: which version of a model a session gets, what of a retired one goes, who it is.
Run by the node at every poll; where the pool does not answer it keeps to what it has last heard."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tenure.checks import encodable, integer
from tenure.cluster.registry import Amount, NodeInfo, Part, Registry, serving
from tenure.cluster.rollout import Board, Rollout, Version
from tenure.errors import ConfigError, RecordError, TierError
from tenure.ledger import Held

if TYPE_CHECKING:
    from tenure.cluster.epochs import Epochs
    from tenure.node import Node
    from tenure.tiers.pool import PoolTier

__all__ = ["BOARD", "Member"]

BOARD = "rollouts"
"""The pool's entry with all rollouts."""
_LOG = logging.getLogger("tenure")


class Member:
    """name: what the node calls itself, None: its host and process. ttl: for how many seconds it counts as there. in_time: runs a
    call that asks the pool, None when it does not answer."""

    def __init__(
        self,
        node: Node,
        pool: PoolTier,
        epochs: Epochs,
        name: str | None,
        ttl: float,
        in_time: Callable[[Callable[[], Any]], Any],
    ) -> None:
        self.boot = os.urandom(8).hex()
        self.name = _checked_name(f"{socket.gethostname()}-{os.getpid()}-{self.boot[:4]}" if name is None else name)
        self._node = node
        self._pool = pool
        self._epochs = epochs
        self._ttl = ttl
        self._in_time = in_time
        self._registry = Registry(pool)
        self._lock = threading.Lock()
        self._board: Board | None = None  # None: nothing was ever heard
        self._raised: set[tuple[str, int, bool]] = set()
        self._warmed: dict[tuple[str, int], int] = {}

    def rollout(self, model: str) -> Rollout | None:
        """The rollout of a model as this node has last heard of it; it asks the pool only where it has never heard of any."""
        if self._board is None:
            self._in_time(self._hear)
        return None if self._board is None else self._board.rollouts.get(model)

    def version(self, model: str, session: str) -> Version:
        """See Node.version."""
        rollout = self.rollout(model)
        return {} if rollout is None else dict(rollout.version(session))

    def warmed(self, rollout: Rollout, count: int) -> None:
        """So many prefixes are there under the new version. The next poll tells it."""
        self._warmed[rollout.model, rollout.begun] = integer("count", count, 0, 1 << 30)

    def refresh(self) -> bool:
        """Hears what has changed, drops what is retired, says what there is. False: the pool did not answer."""
        try:
            self.read()
            board = self._board or Board()
            self._retire(board)
            told = self._registry.announce(self._info(board), self._ttl)
            self.name = told.name
        except TierError:
            return False
        except RecordError as error:
            _LOG.warning("the pool has what this node cannot read, and goes on as before: %s", error)
            return False
        return True

    def leave(self) -> None:
        """Says that this node is not there any more, if the pool answers."""
        if self._registry.announced:
            self._in_time(self._registry.leave)

    def read(self) -> None:
        """Hears what has changed. What the pool has lost, it is told again. Raises TierError or RecordError."""
        found = self._pool.get(BOARD)
        board = Board.decode(found)
        with self._lock:
            merged = self._board = board if self._board is None else board.merged(self._board)
        if merged != board:
            self._pool.swap(BOARD, found, merged.encode())  # if it was changed just now, the next poll sees to it

    # -- inside

    def _hear(self) -> None:
        """For the first time. What cannot be read is no failure of the pool."""
        try:
            self.read()
        except (RecordError, TierError) as error:
            if isinstance(error, TierError) and error.kind != "foreign":
                raise
            _LOG.warning("the pool has rollouts that this node cannot read: %s", error)
            self._board = self._board or Board()

    def _retire(self, board: Board) -> None:
        """Nobody hits these any more; what is idle of them goes now, what runs when it ends. Also what came after the last time,
        from requests that had asked for their version before."""
        held = self._node.held()
        for rollout in board.rollouts.values():
            if not rollout.retiring:
                continue
            key = rollout.model, rollout.begun, rollout.back
            fields = rollout.fields(rollout.retired)
            left = [one for one in held if rollout.is_of(one.who, rollout.retired)]
            if rollout.family is None and key not in self._raised:
                self._node.invalidate(**fields)  # of its namespaces this node knows: for all other nodes too
            elif any(one.valid for one in left):
                self._node.invalidate_here(**fields)
            self._raised.add(key)
            if left:
                self._node.sweep()

    def _info(self, board: Board) -> NodeInfo:
        held = self._node.held()
        parts = {}
        for rollout in board.rollouts.values():
            warmed = self._warmed.get((rollout.model, rollout.begun), 0)
            old, new = (_amount(held, rollout, version) for version in (rollout.old, rollout.new))
            parts[rollout.model] = Part(old, new, warmed)
        return NodeInfo(self.name, self.boot, board.generation, self._epochs.age(), serving(held), parts)


def _amount(held: list[Held], rollout: Rollout, version: Version) -> Amount:
    these = [one for one in held if rollout.is_of(one.who, version)]
    return Amount(sum(one.sequences for one in these), sum(one.blocks for one in these))


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= 255 or not encodable(name):
        raise ConfigError(f"the node's name is {name!r}: a text of 1 to 255 characters is needed")
    return name
