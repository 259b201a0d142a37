"""What the reference remembers: blocks, sequences, leases, tenants. Only what happened; whatever can be derived is derived.
Used by the reference and its policies."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

FOR_EVER = math.inf


class DisagreementError(AssertionError):
    """The manager and the reference differ."""


@dataclass(eq=False, slots=True)
class Root:
    """One life of a namespace: an invalidation gives the namespace another one."""

    space: int
    tenant: int
    rebuild: float
    dead: bool = False


@dataclass(slots=True)
class Memory:
    """What a policy remembers of one block."""

    value: float = 0.0
    queue: int = 0
    again: int = 0
    base: tuple[float, float] | None = None
    raised: tuple[float, float] | None = None


@dataclass(eq=False, slots=True)
class Node:
    """A block. `record` and `frame` are the manager's names for it; everything else is the reference's own."""

    record: tuple[int, int]
    frame: int
    root: Root
    tokens: list[int]
    extra: bytes | None = None
    parent: Node | None = None
    depth: int = 0
    chain: int = 0
    sealed: bool = False
    rested: bool = False
    """its last reference went while it could be hit"""
    linked: bool = False
    """in the tree, under `parent`"""
    doomed: bool = False
    """no longer hittable, whatever becomes of its namespace"""
    entered: bool = False
    """known to its tenant's policy"""
    joined: int = 0
    """when it entered the tree, in order"""
    deadline: float = FOR_EVER
    uses: int = 0
    last: float = 0.0
    stamp: int = 0
    memory: Memory = field(default_factory=Memory)

    @property
    def dead(self) -> bool:
        """Nobody may hit it again."""
        return self.doomed or self.root.dead


class Range(NamedTuple):
    """A priority for the blocks whose first token is in [start, end); `duration` None: no end."""

    start: int
    end: float
    priority: int
    duration: float | None


@dataclass(slots=True)
class Wishes:
    """What a request asks for besides its tokens."""

    max_hit: float = math.inf
    written: bool = False
    ranges: tuple[Range, ...] = ()
    decode: tuple[int, float | None] | None = None
    expire_after: float = FOR_EVER
    protect_for: float = 0.0
    anchor_for: float = 0.0
    session: str = ""
    extras: dict[int, bytes] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class Chain:
    """A running sequence: its tokens and its table."""

    space: int
    root: Root
    tokens: list[int]
    wishes: Wishes
    expires: float
    written: int
    matched: int
    prompt: int
    extras: list[bytes | None]
    counts_from: int = 0
    output: int = 0
    table: list[Node] = field(default_factory=list)
    twins: dict[int, Node] = field(default_factory=dict)
    """by position: the tree's block, where an equal block of its own is kept"""
    copies: list[tuple[Node, Node, int]] = field(default_factory=list)

    def in_tree(self, position: int) -> Node:
        """The block that stands for this position in the tree."""
        return self.twins.get(position, self.table[position])


@dataclass(eq=False, slots=True)
class Claim:
    """A lease on a path from the root."""

    kind: str
    path: list[Node]
    root: Root
    tenant: int
    deadline: float
    owner: str


@dataclass(slots=True)
class Tenant:
    """A tenant's settings and what was counted for it."""

    name: str
    floor: float = 0.0
    cap: float = 1.0
    weight: float = 1.0
    pins: float = 1.0
    counts: dict[str, int] = field(default_factory=dict)

    def count(self, what: str, by: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + by


class Use(NamedTuple):
    """What a policy is told when a request gives a block back."""

    now: float
    first: bool
    creator: bool
    priority: int | None
    duration: float | None


class Gone(NamedTuple):
    """What the ledger keeps of a block that went."""

    reason: str
    when: float
    policy: str
    asker: int | None


class Reason(NamedTuple):
    """Why a look-up ended where it did."""

    reason: str
    at: int
    when: float | None = None
    policy: str | None = None
    tenant: str | None = None
    space: int | None = None
