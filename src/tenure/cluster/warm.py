"""Warming a new version: the prefixes that are used most under the old one, computed under the new one before anybody asks.
Called by an engine that serves the new version; the engine computes, this only says what."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from tenure.checks import integer
from tenure.cluster.rollout import Phase
from tenure.errors import ConfigError, IdentityError, StaleHandleError
from tenure.identity import Identity
from tenure.transfers import BlockName, Content

if TYPE_CHECKING:
    from tenure.node import Node

__all__ = ["Prefix", "hottest", "warm"]


class Prefix(NamedTuple):
    """The tokens (int32) of whole blocks from the first on, how many requests have used all of them, and what else belongs to
    their content, by block."""

    tokens: npt.NDArray[np.int32]
    uses: int
    extra_keys: dict[int, bytes]


def hottest(node: Node, who: Identity, n: int) -> list[Prefix]:
    """The `n` prefixes on the device that most requests have used under an identity, the most used first, each as long as that
    many have used it. Looks at every frame: for now and then. Raises ConfigError or IdentityError."""
    integer("n", n, 0, 1 << 20)
    if not isinstance(who, Identity):
        raise IdentityError(f"who is {who!r}: an Identity is needed")
    found: dict[BlockName, tuple[int, Content]] = {}
    for block in node.blocks():
        if not block.hittable:
            continue
        try:
            content = node.content(BlockName(*block.handle))
        except StaleHandleError:  # gone since
            continue
        if set(who.differs(content.who)) <= {"epoch"}:  # the manager knows it by the epochs of this moment
            found[BlockName(*block.handle)] = block.uses, content
    covered: set[BlockName] = set()
    prefixes: list[Prefix] = []
    for name in sorted(found, key=lambda name: (-found[name][0], -found[name][1].depth, name)):
        if len(prefixes) == n:
            break
        path = _path(found, name)
        if name in covered or path is None:
            continue
        covered.update(path)
        contents = [found[step][1] for step in path]
        extra = {content.depth: content.extra_key for content in contents if content.extra_key}
        prefixes.append(Prefix(np.concatenate([content.tokens for content in contents]), found[name][0], extra))
    return prefixes


def warm(node: Node, model: str, who: Identity, prefill: Callable[[Prefix, Identity], object]) -> int:
    """While the operator warms a model: has `prefill(prefix, identity)` compute what is hottest under the old version, for the
    new one's identity, where neither this node nor the pool has it yet, and says so to the operator. who: whose requests, without
    a version. Returns how many were computed, 0 in any other phase. Raises ConfigError for a node without a pool."""
    if node.shared is None:
        raise ConfigError("the node has no pool, so that there is no rollout to warm for")
    member = node.shared.member
    rollout = member.rollout(model)
    if rollout is None or rollout.phase is not Phase.WARMING:
        return 0
    old, new = (who.with_(**rollout.fields(version)) for version in (rollout.old, rollout.new))
    computed = 0
    for number, prefix in enumerate(hottest(node, old, rollout.warm), 1):
        found = node.match(prefix.tokens, new, extra_keys=prefix.extra_keys or None)
        if found.hit_tokens + len(found.lower) * node.block_size < len(prefix.tokens):
            prefill(prefix, new)
            computed += 1
        member.warmed(rollout, number)
    return computed


def _path(found: dict[BlockName, tuple[int, Content]], name: BlockName) -> list[BlockName] | None:
    """A block and all before it, the first first; None: one of them is gone."""
    path = [name]
    while (parent := found[path[-1]][1].parent) is not None:
        if parent not in found:
            return None
        path.append(parent)
    return path[::-1]
