"""Every policy by name, and how one takes over from another. Used by the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from .policies import Cost, Fifo, Gdsf, Hazard, Lfu, Lru, Policy, Priority
from .queues import Arc, S3Fifo, Slru
from .records import Memory, Node, Use

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
    known = sorted(nodes, key=lambda node: (node.stamp, node.record))
    for node in known:
        node.memory = Memory()
    for node in known:
        policy.enter(node, key_of(node))
        if node.stamp:
            policy.touch(node, Use(node.last, True, True, None, None))
