"""Whose frames they are: two nodes on the same device or tier would each write over what the other believes to have.
Asked by nodes when they open and close; it owns nothing itself."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from weakref import WeakSet

from tenure.errors import ConfigError

if TYPE_CHECKING:
    from tenure.node import Node

__all__ = ["give_up", "take_over"]

_OPEN: WeakSet[Node] = WeakSet()
_OPENING = threading.Lock()


def take_over(node: Node) -> None:
    """The node's device and tiers are its own from now on. Raises ConfigError when another node has one of them."""
    tiers = {id(level.tier) for level in node.levels.values()}
    with _OPENING:
        for other in _OPEN:
            shared = next((level.tier.name for level in other.levels.values() if id(level.tier) in tiers), None)
            if other.device is node.device or shared is not None:
                what = "the device" if shared is None else f"the tier {shared!r}"
                raise ConfigError(f"{what} is in use by another node: close it first")
        _OPEN.add(node)


def give_up(node: Node) -> None:
    """Others may have them now."""
    _OPEN.discard(node)
