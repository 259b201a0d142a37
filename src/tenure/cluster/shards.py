"""One decision for all ranks of a tensor-parallel group: a block is a hit only where every rank has its shard.
Called by each rank with the same request; the ranks talk through a function of the engine's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tenure.errors import CapacityError
from tenure.identity import Identity

if TYPE_CHECKING:
    from tenure.manager import BlockManager
    from tenure.sequence import Sequence

__all__ = ["sequence_of_all"]

_ROUNDS = 8
"""How often the ranks try again before they all compute everything."""
_REFUSED = -1


def sequence_of_all(kv: BlockManager, tokens: Any, who: Identity, least: Callable[[int], int], **asked: Any) -> Sequence:
    """As `kv.sequence`, by every rank of a group at once; `hit_tokens` is the same on all of them.

    who: this rank's own (its layout names its shard). least: the smallest of the numbers that the ranks pass to it, the same for
    all: an all-reduce with MIN. It is called equally often by every rank, also by one whose request is refused: where one rank
    raises CapacityError all do. What one rank lacks, or cannot load, all compute.
    """
    most = asked.pop("max_hit", None)
    limit = len(tokens) if most is None else most
    for turn in range(_ROUNDS + 1):
        seq, refused = None, None
        try:
            seq = kv.sequence(tokens, who, max_hit=limit if turn < _ROUNDS else 0, **asked)
        except CapacityError as error:
            refused = error
        except BaseException:
            least(_REFUSED)  # the others must not wait for this rank
            least(0)
            raise
        hit = _REFUSED if seq is None else seq.hit_tokens
        try:
            low = least(hit)
            high = -least(-hit)
        except BaseException:  # a rank is gone, as the engine's own function says
            if seq is not None:
                seq.abort()
            raise
        if low == high and seq is not None:
            return seq
        if seq is not None:
            seq.abort()
        if low == _REFUSED:
            raise refused or CapacityError("another rank of the group cannot admit the request: it has no room for its shard")
        limit = low
    raise CapacityError("the ranks of the group could not agree on a request that hits nothing")
