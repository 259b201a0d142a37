"""What a policy is, and every policy that is a formula: which of a tenant's evictable leaves goes first. One small class each.
Used by the reference, which tells a policy what happens to blocks and asks it who may go."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from .records import Node, Use


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a policy may ask about: its tenant's blocks that entered the tree, those that may go, and prefill costs."""

    frames: int
    members: Callable[[], list[Node]]
    leaves: Callable[[], list[Node]]
    cost: Callable[[Node], float]
    made: float
    """when the policy was made"""


class Policy:
    """The least (key, stamp) goes first."""

    definite = True
    """its order is known before anything has to go"""

    def __init__(self, around: Surroundings, params: Mapping[str, float]) -> None:
        self.around = around
        self.params = dict(params)

    def enter(self, node: Node, key: int) -> None:
        """A sealed block has joined the tree; `key` is the same in the next life of its content."""

    def touch(self, node: Node, use: Use) -> None:
        """A request has given the block back."""

    def key(self, node: Node, now: float) -> float:
        raise NotImplementedError

    def chosen(self, node: Node, key: int) -> None:
        """The block goes, and this policy chose it."""

    def forget(self, node: Node) -> None:
        """The block goes, for another reason. Nothing is learned from that."""

    def order(self, leaves: Iterable[Node], now: float) -> list[Node]:
        """The next to go first."""
        return sorted(leaves, key=lambda node: (self.key(node, now), node.stamp))

    def candidates(self, leaves: list[Node], now: float) -> list[Node]:
        """Which of these, of which one must go, may go next: one, or several where the definition leaves it open."""
        return [min(leaves, key=lambda node: (self.key(node, now), node.stamp))]


class Lru(Policy):
    """The longest unused; `newest_first` turns it round."""

    def key(self, node: Node, now: float) -> float:
        return -node.stamp if self.params["newest_first"] else node.stamp


class Lfu(Policy):
    """The least used; a newcomer starts at `ageing` times the key of the last victim."""

    def __init__(self, around: Surroundings, params: Mapping[str, float]) -> None:
        super().__init__(around, params)
        self.age = 0.0

    def touch(self, node: Node, use: Use) -> None:
        node.memory.value = self.params["ageing"] * self.age + node.uses

    def key(self, node: Node, now: float) -> float:
        return node.memory.value

    def chosen(self, node: Node, key: int) -> None:
        self.age = max(self.age, node.memory.value)


class Fifo(Policy):
    """The one that entered the tree first; `newest_first` turns it round."""

    def __init__(self, around: Surroundings, params: Mapping[str, float]) -> None:
        super().__init__(around, params)
        self.entered = 0

    def enter(self, node: Node, key: int) -> None:
        self.entered += 1
        node.memory.value = self.entered

    def key(self, node: Node, now: float) -> float:
        return -node.memory.value if self.params["newest_first"] else node.memory.value


class Gdsf(Lfu):
    """L + uses x prefill cost, L the key of the last victim."""

    def touch(self, node: Node, use: Use) -> None:
        node.memory.value = self.age + node.uses * self.around.cost(node)


class Cost(Policy):
    """recency x last use + rebuild x log2 cost + hits x log2(1 + hits per horizon)."""

    def touch(self, node: Node, use: Use) -> None:
        if use.first:
            node.memory.value = use.now

    def key(self, node: Node, now: float) -> float:
        p = self.params
        horizon = p["horizon"]
        rate = max(0.0, node.uses - 1.0) * horizon / max(horizon, node.last - node.memory.value)
        dear = p["rebuild"] * math.log2(self.around.cost(node))
        return p["recency"] * node.last / horizon + dear + p["hits"] * math.log2(1 + rate)


class Priority(Policy):
    """The lowest priority, the longest unused of them. The request that computes a block gives it its base; a raise by a later
    one lasts for its duration after release, or, if `sticky`, for ever."""

    def touch(self, node: Node, use: Use) -> None:
        if use.priority is None:
            return
        memory = node.memory
        until = math.inf if use.duration is None else use.now + use.duration
        claim = (float(use.priority), until)
        lasts = use.duration is not None or bool(self.params["sticky"])
        if use.creator and memory.base is None:
            memory.base = claim
        elif lasts and (memory.raised is None or memory.raised[1] <= use.now or claim > memory.raised):
            memory.raised = claim

    def key(self, node: Node, now: float) -> float:
        base, raised = node.memory.base, node.memory.raised
        lasting = base[0] if base is not None and base[1] > now else self.params["default"]
        return max(lasting, raised[0]) if raised is not None and raised[1] > now else lasting


class Hazard(Policy):
    """The oldest of some class of blocks. Which class is learned from the traffic, and left open here; before any time has passed
    nothing can have been learned, and it is the order of lru."""

    definite = False

    def candidates(self, leaves: list[Node], now: float) -> list[Node]:
        return leaves if now > self.around.made else [min(leaves, key=lambda node: node.stamp)]


class View(NamedTuple):
    """What a user's policy is told of a block."""

    depth: int
    uses: int
    stamp: int
    last_used: float
    cost: float
    tenant: int


class Custom(Policy):
    """A user's policy: its own `priority(block)`, the least first."""

    def __init__(self, around: Surroundings, users: Any) -> None:
        super().__init__(around, {})
        self.users = users

    def key(self, node: Node, now: float) -> float:
        cost = self.around.cost(node)
        return float(self.users.priority(View(node.depth, node.uses, node.stamp, node.last, cost, node.root.tenant)))
