"""Nodes on a pool in this process, and an engine whose KV says under which weights it was computed."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenure import Identity
from tenure.node import Level, Node
from tests.cluster.memory import MemoryPool, Server
from tests.node.making import LAYOUT, SIZE, ArrayDevice, WrongBytesError, host, kv_of

WHO = Identity(model="m", weights="w1", tenant="a")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def node(server: Server, clock: Clock, frames: int = 16, *above: Level, pool_frames: int = 64, **settings: Any) -> Node:
    settings.setdefault("background", False)
    levels = [*above, Level(MemoryPool(server, LAYOUT, pool_frames))]
    return Node(ArrayDevice(frames), levels, SIZE, clock=clock, **settings)


def with_host(server: Server, clock: Clock, **settings: Any) -> Node:
    return node(server, clock, 16, Level(host(64)), **settings)


def serve(kv: Node, tokens: list[int], who: Identity = WHO, label: str = "", **asked: Any) -> int:
    """One request, as an engine serves it that computes `label` into its KV; returns its hit tokens, all of whose bytes were of
    this label."""
    device: Any = kv.device
    made = who.with_(adapter=label)
    with kv.sequence(tokens, who, **asked) as seq:
        table = seq.block_table
        for block in range(len(tokens) // SIZE):
            right = kv_of(made, tokens[: (block + 1) * SIZE])
            if block * SIZE < seq.hit_tokens:
                if not np.array_equal(device.bytes[table[block]], right):
                    raise WrongBytesError(f"block {block} has other bytes")
            else:
                device.bytes[table[block]] = right
        seq.seal()
        return seq.hit_tokens
