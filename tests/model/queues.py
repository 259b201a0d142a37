"""The policies that keep blocks in several queues: slru, s3fifo, arc. A queue's size is counted anew from the blocks there are.
Used by the registry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .ghosts import Ghosts
from .policies import Policy, Surroundings
from .records import Node, Use


class Slru(Policy):
    """Probation before protected, the longest unused of each. A block used `threshold` times is protected while at most `share`
    of the frames are; beyond that the longest unused that may go is demoted, to the end of probation."""

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

    def candidates(self, leaves: list[Node], now: float) -> list[Node]:
        return self.order(leaves, now)[:1]


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

    def candidates(self, leaves: list[Node], now: float) -> list[Node]:
        while True:
            in_small = sum(member.memory.queue == 0 for member in self.around.members())
            small = [leaf for leaf in leaves if leaf.memory.queue == 0]
            main = [leaf for leaf in leaves if leaf.memory.queue == 1]
            from_small = bool(small) and (not main or in_small > self.params["small"] * self.around.frames)
            node = min(small if from_small else main, key=lambda leaf: (leaf.memory.value, leaf.stamp))
            if node.memory.again < (self.params["promote"] if from_small else 1):
                return [node]
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

    def candidates(self, leaves: list[Node], now: float) -> list[Node]:
        once = [leaf for leaf in leaves if leaf.memory.queue == 0]
        often = [leaf for leaf in leaves if leaf.memory.queue == 1]
        in_once = sum(member.memory.queue == 0 for member in self.around.members())
        from_once = bool(once) and (not often or in_once > self.target)
        return [min(once if from_once else often, key=lambda leaf: leaf.stamp)]

    def chosen(self, node: Node, key: int) -> None:
        self.ghosts.put(key, node.memory.queue)
