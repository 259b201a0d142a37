"""What an operator does with rollouts: starts one, moves sessions over, drains, reclaims, goes back, and sees how far it is.
Works on a pool from anywhere; every step is one compare-and-set, so that two operators cannot fork a rollout."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tenure.cluster.member import BOARD
from tenure.cluster.registry import Amount, NodeInfo, Part, Registry
from tenure.cluster.rollout import Board, Phase, Rollout, checked_version
from tenure.errors import ConfigError, StateError, TierError

if TYPE_CHECKING:
    from tenure.tiers.pool import PoolTier

__all__ = ["Progress", "Rollouts"]

_ROUNDS = 16
"""How often a change is tried again that others' changes of other rollouts have come before."""
_NOTHING = Part(Amount(), Amount(), 0)


@dataclass(frozen=True)
class Progress:
    """How far a rollout is. nodes: all that are there."""

    rollout: Rollout
    nodes: tuple[NodeInfo, ...]

    def part(self, node: NodeInfo) -> Part:
        """What a node has of it."""
        return node.parts.get(self.rollout.model, _NOTHING)

    def left(self, node: NodeInfo) -> Amount:
        """What a node has of the retired version."""
        part = self.part(node)
        return part.new if self.rollout.back else part.old

    @property
    def behind(self) -> list[str]:
        """The nodes that have not heard yet of the last change."""
        return [node.name for node in self.nodes if node.generation < self.rollout.generation]

    @property
    def holding(self) -> list[str]:
        """The nodes that have something of the retired version."""
        return [node.name for node in self.nodes if self.left(node) != Amount()]


class Rollouts:
    """pool: any tier on it. wall: seconds since the epoch, from which generations are made.

    Every call may raise TierError: then it is not known whether it took effect, and it may be made again. Where another operator
    has changed the same rollout meanwhile, a call raises StateError and has changed nothing.
    """

    def __init__(self, pool: PoolTier, *, wall: Callable[[], float] = time.time) -> None:
        self._pool = pool
        self._wall = wall
        self._registry = Registry(pool)

    def all(self) -> list[Rollout]:
        """Every rollout, by model; those that are done too, as long as no other of the same model has begun."""
        return [rollout for _, rollout in sorted(Board.decode(self._pool.get(BOARD)).rollouts.items())]

    def get(self, model: str) -> Rollout:
        """The rollout of a model. Raises ConfigError where there is none."""
        return self._of(Board.decode(self._pool.get(BOARD)), model)

    def progress(self, model: str) -> Progress:
        """How far it is, by node."""
        rollout = self.get(model)
        return Progress(rollout, tuple(self._registry.nodes()))

    def announce(self, model: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Rollout:
        """There is a new version of a model; nobody gets it yet.

        model: as requests name it; where identities have another one, give it among the fields. old, new: the same fields, of
        tenure.cluster.rollout.FIELDS, with other values; what an earlier rollout has settled stays, and need not be named again.
        Raises IdentityError or ConfigError for versions that are none, StateError while another rollout of the model goes on, or
        when `old` is not what the last one left.
        """
        if not isinstance(model, str) or not model:
            raise ConfigError(f"model is {model!r}: the name that requests ask for is needed")
        before, after = checked_version("old", model, old), checked_version("new", model, new)

        def begin(found: Rollout | None) -> Rollout:
            settled = {} if found is None else found.kept
            begun = Rollout(model, settled | before, settled | after)
            if found is None:
                return begun
            if found.phase is Phase.ANNOUNCED and found.old | before == found.old and found.new | after == found.new:
                return found
            if found.phase is not Phase.DONE:
                raise StateError(f"a rollout of {model!r} is {found.phase.value}: end it or roll it back first")
            if any(settled.get(name, value) != value for name, value in before.items()):
                raise StateError(f"{model!r} is served as {settled} since its last rollout, not as {before}")
            return begun

        return self._change(model, begin)

    def warm(self, model: str, prefixes: int = 64) -> Rollout:
        """Each node is to compute its hottest prefixes under the new version too. Raises StateError, as every step does that may
        not follow."""
        return self._step(model, lambda rollout: rollout.to_warm(prefixes))

    def shift(self, model: str, share: float) -> Rollout:
        """This part of the sessions gets the new version: within a poll, on every node. It may be less than before."""
        return self._step(model, lambda rollout: rollout.to_shift(share))

    def drain(self, model: str) -> Rollout:
        """Nobody gets the old version any more; what runs on it goes on."""
        return self._step(model, Rollout.to_drain)

    def roll_back(self, model: str) -> Rollout:
        """Nobody gets the new version any more; `reclaim` then ends it, as it would have ended the old one."""
        return self._step(model, Rollout.to_back)

    def reclaim(self, model: str) -> Rollout:
        """Goes on with ending the retired version as far as that can be done now; call it until it is DONE. First its epoch is
        raised, as soon as every node knows that it is drained (else StateError); it is done when no node has a sequence or a
        block of it. Nodes that have fallen silent do not count: they drop it when they are back."""
        rollout = self.get(model)
        if rollout.phase is Phase.DRAINING:
            behind = self.progress(model).behind
            if behind:
                raise StateError(
                    f"{', '.join(behind)} may still give out the version of {model!r} that goes: wait for a poll", nodes=behind
                )
            rollout = self._step(model, Rollout.to_reclaim, rollout)
        if rollout.phase is Phase.RECLAIMING and not rollout.raised:
            if rollout.family is not None:  # else each node raises those of its namespaces
                self._pool.bump([rollout.family])
            rollout = self._step(model, Rollout.to_raised, rollout)
        if rollout.phase is Phase.RECLAIMING:
            progress = self.progress(model)
            if progress.rollout == rollout and not progress.behind and not progress.holding:
                rollout = self._step(model, Rollout.to_done, rollout)
        elif rollout.phase is not Phase.DONE:
            rollout.to_reclaim()  # says what is wrong
        return rollout

    # -- inside

    def _of(self, board: Board, model: str) -> Rollout:
        try:
            return board.rollouts[model]
        except KeyError:
            there = ", ".join(sorted(board.rollouts)) or "none"
            raise ConfigError(f"there is no rollout of {model!r}: there are {there}") from None

    def _step(self, model: str, step: Callable[[Rollout], Rollout], expected: Rollout | None = None) -> Rollout:
        def take(found: Rollout | None) -> Rollout:
            if found is None:
                raise ConfigError(f"there is no rollout of {model!r}")
            if expected is not None and found != expected:
                raise self._overtaken(found)
            return step(found)

        return self._change(model, take)

    def _change(self, model: str, step: Callable[[Rollout | None], Rollout]) -> Rollout:
        first: Rollout | None = None
        for turn in range(_ROUNDS):
            entry = self._pool.get(BOARD)
            board = Board.decode(entry)
            found = board.rollouts.get(model)
            if turn and found != first and found is not None:
                raise self._overtaken(found)
            first = found
            changed = step(found)
            if changed == found:
                return found
            generation = max(board.generation + 1, int(self._wall() * 1e6))  # what no lost board can have had
            changed = replace(changed, generation=generation, begun=changed.begun or generation)
            after = Board(generation, board.rollouts | {model: changed})
            if self._pool.swap(BOARD, entry, after.encode()):
                return changed
        raise TierError("io", f"{_ROUNDS} changes of other rollouts came before this one: try again", rounds=_ROUNDS)

    def _overtaken(self, found: Rollout) -> StateError:
        return StateError(
            f"somebody else has changed the rollout of {found.model!r} just now: it is {found.phase.value}, at a share of "
            f"{found.share:g}{', going back' if found.back else ''}",
            phase=found.phase.value,
        )
