"""Which node holds how much of a prefix, on which medium: built from the KV events of many nodes.
Called by routers for each request; advice only: a node that is asked may have lost it meanwhile, and computes it again."""

from __future__ import annotations

import math
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np

from tenure._core import as_tokens
from tenure.checks import blocks_and_keys, positive
from tenure.errors import ConfigError, IdentityError
from tenure.events.wire import AllBlocksCleared, Batch, BlockHash, BlockStored, KVEvent
from tenure.identity import Identity

__all__ = ["Holder", "Index"]

_SPEED = ("GPU", "CPU", "CPU_PINNED", "STORAGE", "DISK", "SHARED", "EXTERNAL")
"""Media, the fastest first; others come after them."""
_WHOLE = ("full_attention", "mla_attention", "sink_full_attention")
"""Kinds of cache that hold every token of a prefix: of a model that has several kinds, only these groups count."""
_MOST_MEDIA = 30
_UNKNOWN_MEDIUM = "GPU"
"""Events without a medium are of engines that have only one."""


class Holder(NamedTuple):
    """A node that has the first `tokens` tokens; `media`: how many of them on which medium, each block by its fastest."""

    node: str
    tokens: int
    media: dict[str, int]


class _Source:
    """One node: its blocks by our digest, a bit for each medium. An engine's own names lead to the digests."""

    def __init__(self, model: str | None, silent_after: float, boot: str = "") -> None:
        self.model = model  # of an engine; None: ours, whose names are the digests
        self.silent_after = silent_after
        self.boot = boot
        self.heard = -math.inf
        self.block_size = 0
        self.media: dict[bytes, int] = {}
        self.named: dict[BlockHash, bytes] = {}  # an engine's
        self.partial: set[int] = set()  # an engine's groups that do not count

    def clear(self) -> None:
        self.media, self.named, self.block_size = {}, {}, 0


class Index:
    """silent_after: what a node of ours has does not count after so many seconds without a word of it (it sends a heartbeat each
    second), until it is heard of again.

    May be called from several threads: one that applies what subscribers give, others that ask. Raises ConfigError.
    """

    def __init__(self, *, silent_after: float = 10.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._silent_after = positive("silent_after", silent_after)
        self._clock = clock
        self._sources: dict[str, _Source] = {}
        self._media: list[str] = list(_SPEED)
        self._lock = threading.Lock()
        self.unplaced = 0
        """blocks that cannot be told from what was heard: those after one that is missing, or of an impossible size"""

    def engine(self, node: str, model: str, *, silent_after: float | None = None) -> None:
        """A node that is an engine with names of its own (vLLM, SGLang): what it has is KV of `model` (as in Identity.model), of
        the adapter whose name its events give (Identity.adapter), for every tenant. silent_after: None, since engines send
        nothing while nothing changes."""
        after = math.inf if silent_after is None else positive("silent_after", silent_after)
        Identity(model=model)
        with self._lock:
            self._sources[node] = _Source(model, after)

    def forget(self, node: str) -> None:
        """A node that is gone: its entries' memory is free. Harmless when it is not known; an engine stays one."""
        with self._lock:
            source = self._sources.get(node)
            if source is not None and source.model is not None:
                source.clear()
            else:
                self._sources.pop(node, None)

    def apply(self, batch: Batch) -> None:
        """Takes in what a subscriber gave, in its order. Raises ConfigError for an engine that was not announced by `engine`."""
        with self._lock:
            source = self._sources.get(batch.node)
            if source is None or (source.model is None and source.boot != batch.boot):
                if not batch.boot:
                    raise ConfigError(f"node {batch.node!r} is no Tenure node: say first index.engine({batch.node!r}, model)")
                source = self._sources[batch.node] = _Source(None, self._silent_after, batch.boot)
            source.heard = self._clock()
            for event in batch.events:
                self._one(source, event)

    def holders(self, tokens: Any, who: Identity, *, extra_keys: Mapping[int, bytes] | None = None) -> list[Holder]:
        """The nodes that have some of these tokens, the most first; of equal ones that with more on faster media. Raises
        TokenError for bad tokens, IdentityError."""
        if not isinstance(who, Identity):
            raise IdentityError(f"who is {who!r}: an Identity is needed")
        ids = np.ascontiguousarray(as_tokens(tokens), dtype="<u4")
        keys = dict(blocks_and_keys(extra_keys))
        chains: dict[tuple[bytes, int], _Chain] = {}
        found = []
        engines = _family(who.model, who.adapter)
        with self._lock:
            for node, source in self._heard_of():
                if not source.media or source.model not in (None, who.model):
                    continue
                family = who if source.model is None else engines
                chain = chains.setdefault((family.namespace, source.block_size), _Chain(family, ids, source.block_size, keys))
                held = list(self._held(source, chain))
                if held:
                    media: dict[str, int] = {}
                    for medium in held:
                        media[medium] = media.get(medium, 0) + source.block_size
                    found.append(Holder(node, len(held) * source.block_size, media))
        return sorted(found, key=self._rank)

    def nodes(self) -> dict[str, int]:
        """How many blocks each node has on some medium; not those that are silent."""
        with self._lock:
            return {node: len(source.media) for node, source in self._heard_of()}

    # -- inside

    def _rank(self, holder: Holder) -> tuple[Any, ...]:
        return -holder.tokens, *(-holder.media.get(medium, 0) for medium in self._media), holder.node

    def _held(self, source: _Source, chain: _Chain) -> Iterator[str]:
        """The fastest medium of each leading block that the node has."""
        at = 0
        while (digest := chain.link(at)) is not None and (media := source.media.get(digest)):
            yield self._media[(media & -media).bit_length() - 1]
            at += 1

    def _heard_of(self) -> Iterator[tuple[str, _Source]]:
        now = self._clock()
        for node, source in self._sources.items():
            if source.silent_after == math.inf or now - source.heard <= source.silent_after:
                yield node, source

    def _one(self, source: _Source, event: KVEvent) -> None:
        if isinstance(event, AllBlocksCleared):
            source.clear()
            return
        bit = self._bit(event.medium or _UNKNOWN_MEDIUM)
        group = event.group_idx if isinstance(event.group_idx, int) else 0
        if isinstance(event, BlockStored):
            if isinstance(event.kv_cache_spec_kind, str) and event.kv_cache_spec_kind not in _WHOLE:
                source.partial.add(group)
            if group not in source.partial:
                self._store(source, event, bit)
        elif group not in source.partial:
            for name in event.block_hashes:
                digest = source.named.get(name) if source.model is not None else name
                if isinstance(digest, bytes):
                    left = source.media.pop(digest, 0) & ~bit
                    if left:
                        source.media[digest] = left
                    else:
                        source.named.pop(name, None)

    def _store(self, source: _Source, event: BlockStored, bit: int) -> None:
        if not 0 < event.block_size < 1 << 16:
            self.unplaced += len(event.block_hashes)  # no request can be cut into such blocks
            return
        source.block_size = source.block_size or event.block_size
        digests = event.block_hashes if source.model is None else _places(source, event)
        for name, digest in zip(event.block_hashes, digests, strict=True):
            if not isinstance(digest, bytes):
                self.unplaced += 1
                continue
            source.media[digest] = source.media.get(digest, 0) | bit
            if source.model is not None:
                source.named[name] = digest

    def _bit(self, medium: str) -> int:
        if medium not in self._media:
            if len(self._media) == _MOST_MEDIA:
                medium = self._media[-1]  # all further ones count as this
            else:
                self._media.append(medium)
        return 1 << self._media.index(medium)


class _Chain:
    """The digest chain of a request, worked out as far as somebody asks."""

    def __init__(self, who: Identity, ids: Any, block_size: int, keys: Mapping[int, bytes]) -> None:
        self._links: list[bytes] = []
        self._rest = iter(()) if block_size < 1 else who.digest_chain(ids, block_size, keys)

    def link(self, at: int) -> bytes | None:
        """The digest of this block, None beyond the last full one. Asked for in order."""
        while len(self._links) <= at:
            digest = next(self._rest, None)
            if digest is None:
                return None
            self._links.append(digest)
        return self._links[at]


def _family(model: str, adapter: str | bytes | None) -> Identity:
    """What an engine's KV is of, as far as its events tell."""
    return Identity(model=model, adapter=(adapter.hex() if isinstance(adapter, bytes) else adapter) or "")


def _places(source: _Source, event: BlockStored) -> list[bytes | None]:
    """The digests of an engine's blocks: each after the one before it. None for those that cannot be told."""
    known: list[bytes | None] = [source.named.get(name) for name in event.block_hashes]
    size, count = event.block_size, len(event.block_hashes)
    parent = b"" if event.parent_block_hash is None else source.named.get(event.parent_block_hash)
    if parent is None or not size or size != source.block_size or len(event.token_ids) != size * count:
        return known
    try:
        plain = array("I", event.token_ids)
    except (OverflowError, TypeError):
        return known
    family = _family(source.model or "", event.lora_name)
    extras = event.extra_keys if isinstance(event.extra_keys, list) and len(event.extra_keys) == count else [None] * count
    for at, extra in enumerate(extras):
        key = _extra(extra, event.lora_name, event.cache_salt if isinstance(event.cache_salt, str) else None)
        parent = known[at] = family.link(parent, key, plain[at * size : (at + 1) * size].tobytes())
    return known


def _extra(extra: tuple[Any, ...] | None, lora: str | None, salt: str | None) -> bytes:
    """What tells an engine's block apart beside its tokens and adapter; empty: nothing does. A request finds only the latter."""
    parts = [part for part in extra or () if part != lora]
    if salt is not None:
        parts.append(salt)
    return msgspec.msgpack.encode(parts) if parts else b""
