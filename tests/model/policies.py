"""Every policy from its definition: which of a tenant's evictable leaves goes first. One small class each, state recomputed.
Used by the reference, which tells a policy what happens to blocks and asks it for an order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from .ghosts import Ghosts
from .records import Memory, Node, Use


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a policy may ask about: its tenant's blocks that entered the tree, those that may go, and prefill costs."""

    frames: int
    members: Callable[[], list[Node]]
    leaves: Callable[[], list[Node]]
    cost: Callable[[Node], float]


class Policy:
    """The least (key, stamp) goes first."""

    definite = True
    """its order is known before it is asked for a victim"""

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

    def victim(self, leaves: list[Node], now: float) -> Node:
        return min(leaves, key=lambda node: (self.key(node, now), node.stamp))


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
    """The one that came first; `newest_first` turns it round."""

    def touch(self, node: Node, use: Use) -> None:
        if use.first:
            node.memory.value = node.stamp

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
    """The lowest priority, the longest unused of them. The request that computes a block gives it its base; a raise by a later one
    lasts as long as its duration after release."""

    def touch(self, node: Node, use: Use) -> None:
        if use.priority is None:
            return
        memory = node.memory
        until = math.inf if use.duration is None else use.now + use.duration
        claim = (float(use.priority), until)
        if use.creator and memory.base is None:
            memory.base = claim
        elif use.duration is not None and (memory.raised is None or memory.raised[1] <= use.now or claim > memory.raised):
            memory.raised = claim

    def key(self, node: Node, now: float) -> float:
        base, raised = node.memory.base, node.memory.raised
        lasting = base[0] if base is not None and base[1] > now else self.params["default"]
        return max(lasting, raised[0]) if raised is not None and raised[1] > now else lasting


class Hazard(Lru):
    """A place for the class-wise estimator: until it lands, the order of lru without parameters."""

    def key(self, node: Node, now: float) -> float:
        return node.stamp


class Slru(Policy):
    """Probation before protected, the longest unused of each. A block used `threshold` times is protected while at most `share` of
    the frames are; beyond that the longest unused that may go is demoted, to the end of probation."""

    def __init__(self, around: Surroundings, params: Mapping[str, float]) -> None:
        super().__init__(around, params)
        self.newest = 0.0

    def touch(self, node: Node, use: Use) -> None:
        self.newest = max(self.newest, node.stamp)
        node.memory.value = node.stamp
        if node.uses >= self.params["threshold"]:
            node.memory.queue = 1
        while sum(member.memory.queue for member in self.around.members()) > self.params["share"] * self.around.frames:
            guarded = [leaf for leaf in self.around.leaves() if leaf.memory.queue == 1]
            if not guarded:
                return
            demoted = min(guarded, key=lambda leaf: (leaf.memory.value, leaf.stamp))
            demoted.memory.queue = 0
            demoted.memory.value = self.newest

    def order(self, leaves: Iterable[Node], now: float) -> list[Node]:
        return sorted(leaves, key=lambda node: (node.memory.queue, node.memory.value, node.stamp))

    def victim(self, leaves: list[Node], now: float) -> Node:
        return self.order(leaves, now)[0]


class S3Fifo(Policy):
    """Blocks enter `small`; one used again `promote` times by its turn moves to `main`, where each further use buys a round. One
    that goes from small leaves a ghost, and comes back to main."""

    definite = False

    def __init__(self, around: Surroundings, params: Mapping[str, float]) -> None:
        super().__init__(around, params)
        self.ghosts: Ghosts[bool] = Ghosts(around.frames)
        self.newest = 0.0

    def enter(self, node: Node, key: int) -> None:
        node.memory.queue = 1 if self.ghosts.get(key) else 0
        if node.memory.queue:
            self.ghosts.drop(key)

    def touch(self, node: Node, use: Use) -> None:
        self.newest = max(self.newest, node.stamp)
        if use.first:
            node.memory.value = node.stamp
        else:
            node.memory.again = min(3, node.memory.again + 1)

    def victim(self, leaves: list[Node], now: float) -> Node:
        while True:
            in_small = sum(member.memory.queue == 0 for member in self.around.members())
            small = [leaf for leaf in leaves if leaf.memory.queue == 0]
            main = [leaf for leaf in leaves if leaf.memory.queue == 1]
            from_small = bool(small) and (not main or in_small > self.params["small"] * self.around.frames)
            node = min(small if from_small else main, key=lambda leaf: (leaf.memory.value, leaf.stamp))
            if node.memory.again < (self.params["promote"] if from_small else 1):
                return node
            node.memory.again = 0 if from_small else node.memory.again - 1
            node.memory.queue = 1
            node.memory.value = self.newest

    def chosen(self, node: Node, key: int) -> None:
        if node.memory.queue == 0:
            self.ghosts.put(key, True)


class Arc(Policy):
    """T1: used once; T2: again. The ghosts of what each has lost move the target size of T1."""

    definite = False

    def __init__(self, around: Surroundings, params: Mapping[str, float]) -> None:
        super().__init__(around, params)
        self.ghosts: Ghosts[int] = Ghosts(around.frames)
        self.target = 0.0

    def enter(self, node: Node, key: int) -> None:
        lost_by = self.ghosts.get(key)
        node.memory.queue = 0 if lost_by is None else 1
        if lost_by is None:
            return
        once, often = self.ghosts.count(0), self.ghosts.count(1)
        if lost_by == 0:
            self.target = min(float(self.around.frames), self.target + max(1.0, often / once))
        else:
            self.target = max(0.0, self.target - max(1.0, once / often))
        self.ghosts.drop(key)

    def touch(self, node: Node, use: Use) -> None:
        if not use.first:
            node.memory.queue = 1

    def victim(self, leaves: list[Node], now: float) -> Node:
        once = [leaf for leaf in leaves if leaf.memory.queue == 0]
        often = [leaf for leaf in leaves if leaf.memory.queue == 1]
        in_once = sum(member.memory.queue == 0 for member in self.around.members())
        from_once = bool(once) and (not often or in_once > self.target)
        return min(once if from_once else often, key=lambda leaf: leaf.stamp)

    def chosen(self, node: Node, key: int) -> None:
        self.ghosts.put(key, node.memory.queue)


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


BUILT_IN: dict[str, type[Policy]] = {
    "lru": Lru,
    "lfu": Lfu,
    "fifo": Fifo,
    "slru": Slru,
    "s3fifo": S3Fifo,
    "arc": Arc,
    "gdsf": Gdsf,
    "cost": Cost,
    "priority": Priority,
    "hazard": Hazard,
}


def adopt(policy: Policy, nodes: Iterable[Node], key_of: Callable[[Node], int]) -> None:
    """The policy takes over blocks that are there, in the order of their last use; what another remembered is lost."""
    known = sorted(nodes, key=lambda node: node.stamp)
    for node in known:
        node.memory = Memory()
    for node in known:
        policy.enter(node, key_of(node))
        if node.stamp:
            policy.touch(node, Use(node.last, True, True, None, None))
