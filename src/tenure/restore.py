"""After a restart: what a tier on disk kept becomes swapped-out blocks again, each after the block before it.
Called once by the node for each such tier, before anything is admitted; it reads no payloads."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tenure.errors import IdentityError
from tenure.identity import Identity
from tenure.lane import Lane
from tenure.tiers.disk import DiskTier
from tenure.tiers.record import NO_PARENT, Record
from tenure.transfers import BlockName

if TYPE_CHECKING:
    from tenure.node import Node

__all__ = ["restore"]

_LOG = logging.getLogger("tenure")


def restore(node: Node, number: int, lane: Lane, tier: DiskTier, wall: Callable[[], float]) -> int:
    """Returns how many blocks came back; what has expired, has lost the blocks before it or belongs to nobody is emptied."""
    found = sorted(tier.scan(), key=lambda entry: entry[1].depth)
    people = _people(tier)
    blocks: dict[tuple[bytes, bytes], BlockName] = {}
    nobodys: list[int] = []
    for frame, record in found:
        name = _put_back(node, number, frame, record, people, blocks, wall)
        if name is None:
            nobodys.append(frame)
        else:
            blocks[record.namespace, record.digest] = name
            lane.digests[name] = record.digest
    node._core.restored(number)
    if nobodys:
        tier.erase(nobodys)
        _LOG.info("tier %s: %d blocks restored, %d frames emptied", lane.name, len(blocks), len(nobodys))
    return len(blocks)


def _people(tier: DiskTier) -> dict[bytes, Identity]:
    people = {}
    for namespace, dumped in tier.namespaces().items():
        try:
            who = Identity.load(dumped)
        except IdentityError as error:
            _LOG.warning("tier %s: a namespace is unreadable and is left out: %s", tier.name, error)
            continue
        if who.namespace == namespace:
            people[namespace] = who
    return people


def _put_back(
    node: Node,
    number: int,
    frame: int,
    record: Record,
    people: dict[bytes, Identity],
    blocks: dict[tuple[bytes, bytes], BlockName],
    wall: Callable[[], float],
) -> BlockName | None:
    who = people.get(record.namespace)
    above = None if record.parent == NO_PARENT else blocks.get((record.namespace, record.parent))
    if who is None or (above is None) != (record.parent == NO_PARENT):
        return None
    now = node._clock()
    left = math.inf if math.isinf(record.expires) else record.expires - wall()
    space, _ = node._enter(who, ())
    tokens = np.frombuffer(record.tokens, dtype="<u4")
    block, generation = node._core.restore(
        space, -1 if above is None else above.block, tokens, record.extra, number, frame, now + left, now
    )
    return None if block < 0 else BlockName(block, generation)
