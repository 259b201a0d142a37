"""After a restart: what a tier on disk kept becomes swapped-out blocks again, each after the block before it.
Called once by the node for each such tier, before anything is admitted; it reads no payloads."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from tenure.errors import IdentityError, StoreError, TenureError
from tenure.identity import Identity
from tenure.lane import Lane
from tenure.tiers.disk import DiskTier
from tenure.tiers.record import NO_PARENT, Record
from tenure.transfers import BlockName

if TYPE_CHECKING:
    from tenure.node import Node

__all__ = ["restore"]

_LOG = logging.getLogger("tenure")
Blocks = dict[tuple[bytes, bytes], tuple[BlockName, int]]
"""By namespace and digest: a block, and how many there are before the next one."""


def restore(node: Node, number: int, lane: Lane, tier: DiskTier, wall: Callable[[], float]) -> int:
    """Returns how many blocks came back; what has expired, has lost the blocks before it or belongs to nobody is emptied."""
    people = _people(tier)
    found = sorted(tier.scan(), key=lambda entry: (entry[1].depth, entry[1].expires))  # of two equal ones the first to expire
    blocks: Blocks = {}
    nobodys: list[int] = []
    for frame, record in found:
        try:
            name = _put_back(node, number, lane, frame, record, people, blocks, wall)
        except TenureError as error:
            _LOG.warning("tier %s: frame %d cannot be restored: %s", lane.name, frame, error)
            name = None
        if name is None:
            nobodys.append(frame)
        else:
            blocks[record.namespace, record.digest] = name, record.depth + 1
            lane.names.digests[name] = record.digest
    node._core.restored(number)
    _keep(node, tier, people, {namespace for namespace, _ in blocks})
    if nobodys:
        tier.erase(nobodys)
        _LOG.info("tier %s: %d blocks restored, %d frames emptied", lane.name, len(blocks), len(nobodys))
    return len(blocks)


def _keep(node: Node, tier: DiskTier, people: dict[bytes, Identity], used: set[bytes]) -> None:
    """Namespaces without a block go, since every epoch leaves some behind and the table has a bound."""
    try:
        tier.keep_namespaces(used)
    except StoreError as error:
        _LOG.warning("tier %s: namespaces without blocks stay: %s", tier.name, error)
        for who in people.values():
            node._enter(who, ())  # an invalidation must reach them


def _people(tier: DiskTier) -> dict[bytes, Identity]:
    people = {}
    for namespace, dumped in tier.namespaces().items():
        try:
            who = Identity.load(dumped)
            if who.namespace != namespace:
                raise IdentityError("it is the identity of another namespace")
        except IdentityError as error:
            _LOG.warning("tier %s: a namespace is unreadable and is dropped: %s", tier.name, error)
            try:
                tier.drop_namespace(namespace)
            except StoreError:
                _LOG.warning("tier %s: and it could not be", tier.name)
        else:
            people[namespace] = who
    return people


def _put_back(
    node: Node,
    number: int,
    lane: Lane,
    frame: int,
    record: Record,
    people: dict[bytes, Identity],
    blocks: Blocks,
    wall: Callable[[], float],
) -> BlockName | None:
    who = people.get(record.namespace)
    first = record.parent == NO_PARENT
    above, depth = (None, 0) if first else blocks.get((record.namespace, record.parent), (None, -1))
    if who is None or depth != record.depth or not node.levels[lane.name].may_hold(who):
        return None
    if who.link(b"" if first else record.parent, record.extra, record.tokens) != record.digest:
        return None
    now = node._clock()
    left = math.inf if math.isinf(record.expires) else record.expires - wall()
    space, _ = node._enter(who, ())
    block, generation = node._core.restore(
        space, -1 if above is None else above.block, record.token_ids, record.extra, number, frame, now + left, now
    )
    return None if block < 0 else BlockName(block, generation)
