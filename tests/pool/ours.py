"""Nodes of the product behind the worker's Adapter: a device and a host tier of their own, and a pool to share when it has a url.
Started in the node processes of runs against faults; it tells where each hit came from, and whether a bump is sure to last."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from tenure import CapacityError, Identity
from tenure import Sequence as Blocks
from tenure.node import Level, Node
from tenure.tiers.heads import Look
from tenure.tiers.valkey import ValkeyTier
from tests.node.making import LAYOUT, SIZE, ArrayDevice, host
from tests.pool.content import Space

UNASKED = "pool, unasked"
"""The tier of a block that was read from the pool for a request whose own look-up got no answer: it was known from before."""


class OwnNode:
    """An Adapter. deadline: seconds that one call to the pool may take. replicas: how many must have a bump that is confirmed.
    deaf: what the pool first said of an epoch is all that the node ever hears of it (a control)."""

    refusals = (CapacityError,)

    def __init__(
        self,
        url: str = "",
        prefix: str = "",
        replicas: int = 0,
        poll: float = 0.5,
        trust: float = 3.0,
        deadline: float = 0.25,
        deaf: bool = False,
    ) -> None:
        levels = [Level(host(96))]
        if url:
            levels.append(Level(ValkeyTier(LAYOUT, url, prefix=prefix, frames=512, timeout=deadline), deadline=deadline))
        self.kv = Node(ArrayDevice(64), levels, SIZE, poll=poll, trust=trust)
        self._mine = threading.local()
        self._bumping = threading.Lock()
        self._lasting: list[bool] = []
        self._listen(replicas)
        if deaf:
            self._deafen()

    def admit(self, space: Space, tokens: list[int]) -> OwnHeld:
        self._mine.asked = False
        seq = self.kv.sequence(tokens, Identity(model=space.model, weights=space.weights, tenant=space.tenant))
        return OwnHeld(self.kv, seq, self._mine.near, self._mine.tiers)

    def bump(self, family: str) -> bool:
        name, value = family.split("=")
        with self._bumping:
            self._lasting = lasting = []
            self.kv.invalidate(**{name: value})
            return any(lasting)

    def close(self) -> None:
        self.kv.close(flush=False)

    def _listen(self, replicas: int) -> None:
        """Takes note of what the parts of the node say to each other."""
        load = self.kv._mover.load

        def loading(seq: Blocks) -> None:
            tiers = [each.tier for each in seq.loads]
            self._mine.tiers = tiers if self._mine.asked else [UNASKED if tier == "pool" else tier for tier in tiers]
            self._mine.near = seq.hit_tokens // SIZE
            load(seq)

        self.kv._mover.load = loading  # type: ignore[method-assign]
        shared = self.kv.shared
        if shared is None:
            return
        ask, bump = shared._in_time, shared.pool.bump

        def asking(*job: Any, **settings: Any) -> Any:
            answer = ask(*job, **settings)
            if isinstance(answer, Look):
                self._mine.asked = True
            return answer

        def bumping(families: Sequence[bytes]) -> Any:
            lasting = self._lasting  # of this very bump: one that comes too late is not taken for a later one
            values = bump(families, replicas)
            lasting.append(values.confirmed)
            return values

        shared._in_time = asking  # type: ignore[method-assign]
        shared.pool.bump = bumping  # type: ignore[method-assign]

    def _deafen(self) -> None:
        shared = self.kv.shared
        assert shared is not None
        saw, first = shared.epochs.saw, {}

        def seeing(families: Sequence[bytes], values: Sequence[int | None], at: float) -> bool:
            return saw(families, [first.setdefault(f, v) if v else v for f, v in zip(families, values, strict=True)], at)

        shared.epochs.saw = seeing  # type: ignore[method-assign]


class OwnHeld:
    """An admitted request; `near` of its hits were on the device, the others were loaded from `tiers`."""

    def __init__(self, kv: Node, seq: Blocks, near: int, tiers: list[str]) -> None:
        self._seq = seq
        self._bytes: Any = kv.device.bytes  # type: ignore[attr-defined]
        self._table = seq.block_table
        self._first = seq.hit_tokens // SIZE
        self.hits = [
            (tier, self._bytes[frame]) for frame, tier in zip(self._table[: self._first], ["device"] * near + tiers, strict=False)
        ]

    def fill(self, blocks: Sequence[bytes]) -> None:
        for frame, data in zip(self._table[self._first :], blocks, strict=True):
            self._bytes[frame] = np.frombuffer(data, np.uint8)

    def release(self) -> None:
        self._seq.release()
