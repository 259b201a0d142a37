"""Random traffic, what a manager really holds, and a replica that believes KV events alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import test_lower_tiers_at_random as random_tiers

from tenure import BlockManager
from tenure.events import AllBlocksCleared, BlockRemoved, BlockStored, KVEvent

MEDIA = {"t0": "CPU", "t1": "STORAGE", "t2": "STORAGE"}
"""Two tiers of the random machine are one medium."""
ALL_MEDIA = {"device": "GPU", "host": "CPU", "disk": "STORAGE", **MEDIA}
Holding = dict[bytes, set[str]]
PATIENCE = 60.0
"""Seconds after which a test gives up waiting for a thread: no result depends on it."""


class Machine(random_tiers.Machine):
    """The random machine, one step at a time."""

    def step(self) -> None:
        verbs = [self.admit] * 7 + [self.load] * 3 + [self.write, self.finish] * 4 + [self.append] * 2 + [self.release] * 6
        self.random.choice([*verbs, self.fork, self.truncate, self.lose, self.operate])()

    def truth(self) -> Holding:
        return truth(self.kv, self.sizes)


def truth(kv: BlockManager, sizes: Sequence[int], media: Mapping[str, str] = ALL_MEDIA) -> Holding:
    """What can be hit, frame by frame of every tier: digests made from the whole prefix, not link by link."""
    held: Holding = {}
    for tier, size in zip(kv.tiers, sizes, strict=True):
        for frame in range(size):
            info = kv.block(frame, tier)
            if info is None or not info.hittable:
                continue
            path: list[Any] = []
            name: Any = info.handle
            while name is not None:
                path.insert(0, kv.content(name))
                name = path[0].parent
            tokens = [int(token) for content in path for token in content.tokens]
            extra = {depth: content.extra_key for depth, content in enumerate(path) if content.extra_key}
            digest = [*path[0].who.digest_chain(tokens, kv.block_size, extra)][-1]
            held.setdefault(digest, set()).add(media[tier])
    return held


class Replica:
    """strict: events that say nothing new, or name a block that is not known, are wrong."""

    def __init__(self, strict: bool = True) -> None:
        self.strict = strict
        self.held: Holding = {}

    def apply(self, events: Iterable[KVEvent]) -> None:
        for event in events:
            if isinstance(event, AllBlocksCleared):
                self.held.clear()
            elif isinstance(event, BlockStored):
                parent: Any = event.parent_block_hash
                assert len(event.token_ids) == len(event.block_hashes) * event.block_size
                for name in event.block_hashes:
                    assert isinstance(name, bytes)
                    assert not self.strict or parent is None or parent in self.held, "a block before the one it follows"
                    media = self.held.setdefault(name, set())
                    assert not self.strict or event.medium not in media, "stored twice on one medium"
                    media.add(str(event.medium))
                    parent = name
            elif isinstance(event, BlockRemoved):
                for name in event.block_hashes:
                    assert isinstance(name, bytes)
                    media = self.held.get(name, set())
                    assert not self.strict or event.medium in media, "removed from where it was not"
                    media.discard(str(event.medium))
                    if not media:
                        self.held.pop(name, None)


def until(true: Callable[[], bool]) -> None:
    """Waits for another thread, but not for ever."""
    end = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < end, "it never happened"


__all__ = ["ALL_MEDIA", "MEDIA", "Holding", "Machine", "Replica", "truth", "until"]
