"""Nodes that roll out versions, operators on their pool, and an engine whose KV says of which version it is."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenure import Identity, content_digest
from tenure.cluster.rollouts import Rollouts
from tenure.node import Level, Node
from tests.cluster import making
from tests.cluster.making import Clock
from tests.cluster.memory import MemoryPool, Server
from tests.node.making import LAYOUT, SIZE, WrongBytesError, host, kv_of

W1, W2, W3, A1, A2 = (content_digest(name) for name in (b"w1", b"w2", b"w3", b"a1", b"a2"))
OLD: dict[str, str | bytes] = {"weights": W1}
NEW: dict[str, str | bytes] = {"weights": W2}
BASE = Identity(model="m", weights=W1, tenant="a")


class Fleet:
    """So many nodes on one pool, and an operator, at a time that the test sets."""

    def __init__(self, count: int, *, frames: int = 96, **settings: Any) -> None:
        self.frames = frames
        self.clock = Clock()
        self.server = Server(self.clock)
        self.settings = settings
        self.nodes = [self.node(f"n{number}") for number in range(count)]
        self.operator = self.another_operator()

    def node(self, name: str) -> Node:
        return making.node(self.server, self.clock, self.frames, Level(host(64)), name=name, **self.settings)

    def another_operator(self) -> Rollouts:
        return Rollouts(MemoryPool(self.server, LAYOUT), wall=self.clock)

    def poll(self, *nodes: Node) -> None:
        """A second later all nodes, or these, have polled."""
        self.clock.now += 1
        for node in nodes or self.nodes:
            assert node.refresh() is not self.server.down

    def reclaim(self, model: str = "m") -> None:
        """Goes on with it until it is done."""
        for _ in range(5):
            self.poll()
            if self.operator.reclaim(model).phase.value == "done":
                return
        raise AssertionError(f"not done: {self.operator.progress(model).holding}")

    def close(self) -> None:
        for node in self.nodes:
            node.close()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Request:
    """One request: it keeps to the version that it got at first, and finds no bytes of any other in its blocks."""

    def __init__(self, kv: Node, session: str, tokens: list[int], base: Identity = BASE, model: str = "m") -> None:
        self.device: Any = kv.device
        self.who = base.with_(**kv.version(model, session))
        self.tokens = list(tokens)
        self.seq = kv.sequence(tokens, self.who)
        self.hit = self.seq.hit_tokens
        self._verify(0, self.hit // SIZE)
        self._write(self.hit // SIZE)

    def step(self, tokens: list[int]) -> None:
        """It generates these."""
        first = len(self.tokens) // SIZE
        self.seq.append(tokens, written=False)
        self.tokens += tokens
        self._write(first)
        self.seq.seal()

    def finish(self) -> Identity:
        """All its KV is of its version; returns whose it is."""
        self._verify(0, len(self.tokens) // SIZE)
        self.seq.release()
        return self.who

    def _write(self, first: int) -> None:
        table = self.seq.block_table
        for block in range(first, len(self.tokens) // SIZE):
            self.device.bytes[table[block]] = kv_of(self.who, self.tokens[: (block + 1) * SIZE])

    def _verify(self, first: int, last: int) -> None:
        table = self.seq.block_table
        for block in range(first, last):
            if not np.array_equal(self.device.bytes[table[block]], kv_of(self.who, self.tokens[: (block + 1) * SIZE])):
                raise WrongBytesError(f"block {block} has bytes of another version than {self.who}")


def ask(kv: Node, session: str, tokens: list[int], base: Identity = BASE, model: str = "m") -> Request:
    """A whole request."""
    request = Request(kv, session, tokens, base, model)
    request.finish()
    return request


def amount(kv: Node, **fields: str | bytes) -> tuple[int, int]:
    """Open sequences and blocks that a node has with these identity fields."""
    found = [one for one in kv.held() if all(getattr(one.who, name) == value for name, value in fields.items())]
    return sum(one.sequences for one in found), sum(one.blocks for one in found)
