"""The manager under test with the clock in hand: each call is made on it and on the reference, and what comes back is compared.
Used by the runner, which decides what is called; the comparison of all state is in comparison.py."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tenure import BlockManager, Identity, Lease, PrefillCost, Sequence
from tenure.errors import TenureError

from .program import Setting
from .records import Chain, Claim, DisagreementError
from .reference import Reference
from .witness import Witness

Mine = TypeVar("Mine")
Theirs = TypeVar("Theirs")


@dataclass(eq=False, slots=True)
class Running:
    """One sequence, as both know it."""

    theirs: Sequence
    mine: Chain


@dataclass(eq=False, slots=True)
class Leased:
    """One lease, as both know it."""

    theirs: Lease
    mine: Claim


class UsersPolicy:
    """A policy of a user's own: what is used often and lies deep stays."""

    def priority(self, block: Any) -> float:
        return float(block.uses * 3 + block.cost * 2 - block.depth + block.last_used / 16)


def policy_of(name: str) -> str | object:
    """By name; "custom" is the user's own."""
    return UsersPolicy() if name == "custom" else name


@dataclass(eq=False)
class Subject:
    """Both managers, the clock, and the handles that the program has."""

    setting: Setting
    kv: BlockManager
    clock: list[float]
    mine: Reference
    running: list[Running] = field(default_factory=list)
    released: list[Running] = field(default_factory=list)
    leased: list[Leased] = field(default_factory=list)
    spaces: dict[bytes, int] = field(default_factory=dict)
    identities: list[Identity] = field(default_factory=list)
    endings: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    seen: int = 0
    story: list[str] = field(default_factory=list)

    def both(self, theirs: Callable[[], Theirs], mine: Callable[[], Mine]) -> tuple[Theirs, Mine] | None:
        """Makes a call on each. None when both refuse it alike."""
        refused: type[BaseException] | None = None
        their_answer: Theirs
        try:
            their_answer = theirs()
            said = ""
        except TenureError as error:
            refused, said = type(error), f": {error}"
        now = self.clock[0]
        core = self.kv._core
        core.leases(now)  # time passes even if the call was refused before it looked at the clock
        first, rows = core.events(self.seen)
        if first != self.seen:
            raise DisagreementError("the event log is too short for one step")
        self.seen += len(rows)
        self.mine.witness = Witness(rows)
        self.mine.events = []
        self.mine.tick(now)
        try:
            my_answer = mine()
        except TenureError as error:
            if refused is not type(error):
                got = refused.__name__ if refused else "no error"
                raise DisagreementError(f"{type(error).__name__} should have been raised, not {got}{said}") from None
            self.finish(now)
            return None
        except DisagreementError as error:
            raise DisagreementError(f"{refused.__name__} was raised{said}; {error}" if refused else str(error)) from None
        if refused is not None:
            raise DisagreementError(f"{refused.__name__} should not have been raised{said}")
        self.finish(now)
        return their_answer, my_answer

    def finish(self, now: float) -> None:
        """What the call has left already due goes; and then nothing else has happened."""
        self.mine.tick(now)
        self.mine.witness.finish(self.mine.events)
        self.close_unopened()

    def space(self, who: Identity) -> int:
        """The reference's number of a namespace; opened at its first use."""
        if who.namespace not in self.spaces:
            self.spaces[who.namespace] = self.mine.open_space(self.tenant(who.account), who.rebuild)
            self.identities.append(who.with_(tenant=who.account))
        return self.spaces[who.namespace]

    def close_unopened(self) -> None:
        """A call that was refused, or only looked, need not have opened its namespace and its tenant."""
        while len(self.identities) > len(self.kv._spaces):
            del self.spaces[self.identities.pop().namespace]
            self.mine.close_space()
        while len(self.mine.tenants) > len(self.kv.tenants.names):
            self.mine.close_tenant()

    def tenant(self, name: str) -> int:
        """The reference's number of a tenant; opened at its first use."""
        names = [tenant.name for tenant in self.mine.tenants]
        return names.index(name) if name in names else self.mine.open_tenant(name)


PARAMS: dict[str, tuple[dict[str, float], ...]] = {
    "lru": ({}, {"newest_first": 1}),
    "lfu": ({}, {"ageing": 0}, {"ageing": 0.5}),
    "fifo": ({}, {"newest_first": 1}),
    "slru": ({}, {"share": 0.3}, {"threshold": 3, "share": 0.5}),
    "s3fifo": ({}, {"small": 0.4}, {"promote": 2}),
    "cost": ({}, {"hits": 0, "horizon": 4}, {"recency": 0, "rebuild": 2, "hits": 1}),
    "priority": ({}, {"default": 60}, {"sticky": 1}),
}


def params_of(policy: str, choice: int) -> dict[str, float]:
    """One of a few sets of parameters."""
    sets = PARAMS.get(policy, ({},))
    return sets[choice % len(sets)]


def subject_of(setting: Setting, policy: str, build: Callable[..., BlockManager] = BlockManager) -> Subject:
    """Both managers, made alike. `build` makes the one under test."""
    clock = [1000.0]
    o = setting.options
    kv = build(
        o.frames,
        o.block_size,
        policy=policy_of(policy),
        params=params_of(policy, setting.params),
        clock=lambda: clock[0],
        seed=o.seed,
        pin_budget=o.pin_budget,
        partial_reuse=o.partial_reuse,
        on_duplicate="rewrite" if o.rewrite else "keep",
        recompute_last=setting.recompute_last,
        evict_batch=o.evict_batch,
        prefill=PrefillCost(parameters=8.0, layers=1, hidden=int(o.slope * 4)),
    )
    mine = Reference(o, policy_of(policy), kv.params)
    mine.now = clock[0]
    return Subject(setting, kv, clock, mine, identities=[])
