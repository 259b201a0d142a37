"""Histories of a right product that was never run: a seeded model of nodes, a pool, epochs and faults in a time of its own.
Used by the checker's tests, which plant faults in them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from tests.pool.content import Space, links, looks_like
from tests.pool.history import Bump, Call, Done, Fault, Hit, Life, Line, Over, Phase, Record, Request

SIZE, NBYTES = 2, 160
BOUND = 5.0
DEADLINE = 0.5
NODES = ("a", "b", "c")
SPACES = [Space(tenant, model, "w") for tenant in ("acme", "umbrella") for model in ("m", "n")]
FAMILIES = sorted({family for space in SPACES for family in space.families})
PHASES = [("before", 10.0, 60.0), ("faults", 60.0, 160.0), ("after", 170.0, 220.0)]
END = 225.0
Key: TypeAlias = tuple[tuple[int, ...], bytes]
"""A block under its epochs."""


@dataclass
class ModelNode:
    """What one life of a node has cached, and knows of the epochs."""

    name: str
    kill: Fault
    pause: Fault
    boot: int = 1
    ops: int = 0
    cached: dict[Key, tuple[int, ...]] = field(default_factory=dict)
    known: dict[str, tuple[int, float]] = field(default_factory=dict)  # an epoch, and when it was read
    owed: dict[str, int] = field(default_factory=dict)  # epochs that the pool may have lost

    def begin_again(self) -> None:
        self.boot += 1
        self.ops = 0
        for forgotten in (self.cached, self.known, self.owed):
            forgotten.clear()

    def away(self, when: float) -> bool:
        return any(fault.start <= when < fault.end for fault in (self.kill, self.pause))


class Model:
    """Runs once; `records` is what its processes would have written. Blocks are under the epochs that a node knows; it reads them
    again after `BOUND` at the latest. A bump that is not confirmed is known to its node alone, until that node asks the pool."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.records: list[Record] = []
        self.nodes: dict[str, ModelNode] = {}
        self.pool: dict[Key, tuple[int, ...]] = {}  # the labels that each block was stamped with
        self.labels = dict.fromkeys(FAMILIES, 0)
        self.epochs = dict.fromkeys(FAMILIES, 0)
        self.newest = 0
        self._todo: list[tuple[float, int, Callable[[], None]]] = []
        self._run()

    def _at(self, when: float, what: Callable[..., None], *details: object) -> None:
        self._todo.append((when, len(self._todo), lambda: what(when, *details)))

    def _run(self) -> None:
        r = self.random
        for name in NODES:
            kill, pause = r.uniform(70, 100), r.uniform(110, 140)
            node = ModelNode(name, Fault(name, "kill", kill, kill + 1), Fault(name, "pause", pause, pause + 3))
            self.nodes[name] = node
            self.records += [Life(name, 1, 0.0), node.kill, node.pause]
            self._at(kill, self._kill, node)
            for _ in range(100):
                self._at(r.uniform(1, END - 2), self._request, node)
        for _ in range(12):
            self._plan_bump(r.uniform(60, 150))
        for _, _, do in sorted(self._todo, key=lambda step: step[:2]):
            do()
        self.records += [Over(node.name, node.boot, END) for node in self.nodes.values()]
        self.records += [Phase(*phase) for phase in PHASES]

    # -- bumps

    def _plan_bump(self, start: float) -> None:
        r = self.random
        node, family = self.nodes[r.choice(NODES)], r.choice(FAMILIES)
        fate = r.choice(["confirmed", "confirmed", "unconfirmed", "failed", "lost"])
        counts, ends = start + r.uniform(0, 0.2), start + r.uniform(0.2, 0.4)
        label = [0]
        self._at(start, self._bump_begins, family, label)
        if fate in ("confirmed", "failed"):  # one that fails may have counted
            self._at(counts, self._bump_counts, family)
        self._at(ends, self._bump_ends, node, family, fate, start, label)

    def _bump_begins(self, when: float, family: str, label: list[int]) -> None:
        self.labels[family] += 1
        label[0] = self.labels[family]

    def _bump_counts(self, when: float, family: str) -> None:
        self.newest += 1
        self.epochs[family] = self.newest

    def _bump_ends(self, when: float, node: ModelNode, family: str, fate: str, start: float, label: list[int]) -> None:
        if node.away(start) or node.away(when):
            return  # it tells nobody
        if fate == "unconfirmed":
            self.newest += 1
            node.owed[family] = self.newest
        if fate in ("confirmed", "unconfirmed"):
            node.known[family] = (max(self.epochs[family], node.owed.get(family, 0)), when)
        told = when if fate in ("confirmed", "unconfirmed") else None
        self.records.append(Bump(node.name, node.boot, family, label[0], start, told, fate == "confirmed"))

    # -- the rest

    def _kill(self, when: float, node: ModelNode) -> None:
        node.ops += 1
        self.records.append(Call(node.name, node.boot, node.ops, "admit", when - 0.1, DEADLINE))  # it never comes back
        node.begin_again()
        self.records.append(Life(node.name, node.boot, node.kill.end))

    def _request(self, when: float, node: ModelNode) -> None:
        r = self.random
        space, path = r.choice(SPACES), [r.randint(1, 2) for _ in range(r.randint(1, 3))]
        if node.away(when):
            return
        old = any(when - node.known.get(family, (0, -BOUND - 1))[1] > BOUND for family in space.families)
        asks = old or r.random() < 0.5
        for family in space.families if asks else ():
            self.epochs[family] = max(self.epochs[family], node.owed.pop(family, 0))
            node.known[family] = (self.epochs[family], when)
        epochs = tuple(node.known[family][0] for family in space.families)
        labels = tuple(self.labels[family] for family in space.families)
        tokens = [10 * block + i for block in path for i in range(SIZE)]
        hits: list[Hit] = []
        for depth, link in enumerate(links(space, tokens, SIZE)):
            key = (epochs, link)
            tier = "device" if key in node.cached else "pool" if asks and key in self.pool else None
            stamped = node.cached.get(key) or self.pool.get(key) or labels  # the first writer wins
            if tier and len(hits) == depth:
                hits.append((tier, *looks_like(space, stamped, depth, link, NBYTES)))
            node.cached[key] = self.pool.setdefault(key, stamped)
        took = r.uniform(0.001, DEADLINE)
        if when < node.pause.start < when + took:
            took += node.pause.end - node.pause.start
        node.ops += 1
        self.records.append(Call(node.name, node.boot, node.ops, "admit", when, DEADLINE))
        if not when < node.kill.start < when + took:
            self.records.append(Done(node.name, node.boot, node.ops, when + took))
            self.records.append(Request(node.name, node.boot, when, when + took, space, tokens, labels, hits))


def history(seed: int) -> list[Line]:
    """As `read` would give it."""
    return [Line(f"made up:{number}", record) for number, record in enumerate(Model(seed).records, 1)]
