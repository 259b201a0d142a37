"""KV events as vLLM and SGLang put them on the wire: msgpack, an event a map tagged "type" (until 2026: an array, its tag first).
Called by what publishes and what subscribes; it keeps nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from tenure.errors import EventError

__all__ = ["AllBlocksCleared", "Batch", "BlockHash", "BlockRemoved", "BlockStored", "KVEvent", "decode", "encode"]

BlockHash = bytes | int
"""The name of a block: ours is its link of the digest chain, 32 bytes; engines have bytes or 64-bit numbers."""


class BlockStored(msgspec.Struct, tag=True):
    """Blocks that a medium has from now on, one after the other: `token_ids` are theirs, `block_size` for each.

    What is unset is left out on the wire. `extra_keys`: what else is in each block's hash. `cache_salt`: SGLang's.
    """

    block_hashes: list[BlockHash]
    parent_block_hash: BlockHash | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None = None
    medium: str | None = None
    lora_name: str | None = None
    extra_keys: list[tuple[Any, ...] | None] | UnsetType | None = UNSET
    group_idx: int | UnsetType | None = UNSET
    kv_cache_spec_kind: str | UnsetType | None = UNSET
    cache_salt: str | UnsetType | None = UNSET


class BlockRemoved(msgspec.Struct, tag=True):
    """Blocks that a medium has no longer."""

    block_hashes: list[BlockHash]
    medium: str | None = None
    group_idx: int | UnsetType | None = UNSET


class AllBlocksCleared(msgspec.Struct, tag=True):
    """No medium has anything."""


KVEvent = BlockStored | BlockRemoved | AllBlocksCleared
_POSITIONAL = 10
"""Fields that the arrays of the older generation have in this order."""
_KINDS: dict[str, type[KVEvent]] = {kind.__name__: kind for kind in (BlockStored, BlockRemoved, AllBlocksCleared)}


class Batch(NamedTuple):
    """What one message said. `boot`: which life of the node's process; empty where its topic does not tell (engines)."""

    node: str
    boot: str
    seq: int
    ts: float
    """seconds, the publisher's wall clock"""
    events: list[KVEvent]
    rank: int | None = None
    """the data-parallel rank, of engines that have several"""


def encode(ts: float, events: Iterable[KVEvent], rank: int | None = None) -> bytes:
    """One message's payload."""
    return msgspec.msgpack.encode((ts, list(events), rank))


def decode(payload: bytes) -> tuple[float, list[KVEvent], int | None]:
    """Time, events and rank of a payload of either generation. Events of a kind that is not known here are left out, and fields
    that are not. Raises EventError for anything else."""
    try:
        ts, events, *rest = msgspec.msgpack.decode(payload, type=list[Any])
        if not isinstance(events, list):
            raise ValueError("its events are no list")
        known = [event for event in map(_event, events) if event is not None]
        return msgspec.convert(ts, float), known, msgspec.convert(rest[0] if rest else None, int | None)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
        raise EventError(f"{len(payload)} bytes are no batch of KV events: {error}", bytes=len(payload)) from None


def _event(given: Any) -> KVEvent | None:
    if isinstance(given, list):
        tag, values = given[0] if given else None, given[1:]
    elif isinstance(given, dict):
        tag, values = given.get("type"), None
    else:
        raise ValueError(f"an event is a {type(given).__name__}: a map or an array is needed")
    if not isinstance(tag, str):
        raise ValueError("an event has no type")
    kind = _KINDS.get(tag)
    if kind is None:
        return None
    if values is not None:
        given = dict(zip(kind.__struct_fields__[:_POSITIONAL], values, strict=False))
        given["type"] = tag
    return msgspec.convert(given, kind)
