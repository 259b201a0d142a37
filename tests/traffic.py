"""Random traffic of several tenants against one manager: the same calls for the same seed and clock.
Used by the contract of the policies; it asks for everything a manager offers."""

from __future__ import annotations

import random
from collections.abc import Sequence as SequenceOf

from helpers import Clock, prompt

from tenure import BlockManager, Identity, PriorityRange, Retention, Sequence
from tenure.errors import BudgetError, CapacityError


class Traffic:
    """One call of `step` is one random call of the manager; `asker` is the tenant it was made for."""

    def __init__(
        self,
        kv: BlockManager,
        clock: Clock,
        identities: SequenceOf[Identity],
        seed: int,
        *,
        names: int = 6,
        depth: int = 4,
    ) -> None:
        self.kv = kv
        self.clock = clock
        self.identities = identities
        self.rng = random.Random(seed)
        self.names = names
        self.depth = depth
        self.running: list[tuple[Identity, Sequence]] = []
        self.asker = identities[0].account
        self.refused = 0

    def step(self) -> None:
        rng = self.rng
        act = rng.choice(("admit",) * 4 + ("release",) * 3 + ("append", "fork", "truncate", "lease", "seal"))
        who = rng.choice(self.identities)
        if act == "admit" or not self.running:
            self._try(who, lambda: self.running.append((who, self._admit(who))))
            return
        if act == "lease":
            self._try(who, lambda: self._lease(who))
            return
        at = rng.randrange(len(self.running))
        who, seq = self.running[at]
        if act == "append":
            self._try(who, lambda: seq.append([rng.randrange(3)] * rng.randrange(1, 6)))
        elif act == "fork":
            self._try(who, lambda: self.running.append((who, seq.fork())))
        elif act == "truncate":
            self._try(who, lambda: seq.truncate(rng.randrange(seq.num_tokens + 1)))
        elif act == "seal":
            self._try(who, seq.seal)
        else:
            self.running.pop(at)
            self._try(who, seq.release if rng.random() < 0.9 else seq.abort)

    def acknowledge(self) -> None:
        """Every copy has been made; the next call of a sequence would say so by itself."""
        for _, seq in self.running:
            seq.copied()

    def finish(self) -> None:
        """Releases what still runs."""
        for _, seq in self.running:
            seq.release()
        self.running.clear()

    def _try(self, who: Identity, call: object) -> None:
        self.asker = who.account
        try:
            call()  # type: ignore[operator]
        except (CapacityError, BudgetError):
            self.refused += 1

    def _tokens(self) -> list[int]:
        return prompt(*(self.rng.randrange(self.names) for _ in range(self.rng.randrange(1, self.depth + 1))))

    def _admit(self, who: Identity) -> Sequence:
        rng = self.rng
        priority = None
        if rng.random() < 0.3:
            duration = rng.choice([None, 4.0, 20.0])
            priority = Retention((PriorityRange(0, rng.choice([None, 4]), rng.randrange(101), duration),), rng.randrange(101))
        return self.kv.sequence(
            self._tokens(),
            who,
            session=rng.choice([None, "a", "b"]),
            priority=priority,
            protect_for=rng.choice([None, None, 6.0]),
            expire_after=rng.choice([None, None, 30.0]),
            written=rng.random() < 0.7,
        )

    def _lease(self, who: Identity) -> None:
        rng = self.rng
        if rng.random() < 0.5:
            self.kv.lookup(self._tokens(), who, owner="loader", ttl=rng.random() * 8)
        else:
            self.kv.pin(self._tokens(), who, owner="ops", ttl=rng.random() * 8)
