"""A pool's load before there is one: every request of every node through the queues of the shards, at costs measured elsewhere.
Called by whoever plans a pool; it moves no bytes, asks no server, and gives the same figures for the same seed."""

from __future__ import annotations

import itertools
from collections import Counter, OrderedDict
from collections.abc import Generator, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from tenure.breaker import Breaker
from tenure.checks import integer, positive, seconds
from tenure.errors import ConfigError
from tenure.lab.fleet import Costs, Found, Incident, Load
from tenure.lab.queues import Floats, Process, Shards, Time
from tenure.probing import first_asked

__all__ = ["simulate"]

_FAMILIES = 0
"""The shard that has all epoch families."""
_STEP = 0.5
_CLAIMED, _COMMITTED = 1, 2

Places = npt.NDArray[np.intp]
"""The shard of each head."""


def simulate(
    nodes: int,
    shards: int,
    load: Load,
    costs: Costs,
    duration: float,
    *,
    settle: float = 0.0,
    seed: int = 0,
    incidents: Sequence[Incident] = (),
) -> Found:
    """`duration` seconds of so many nodes on a pool of so many shards that begins with every prefix committed, each node with the
    prefixes asked for most; what happens in the first `settle` of them is counted in lines only. Raises ConfigError for what does
    not fit."""
    integer("nodes", nodes, 1, 1 << 20)
    if seconds("settle", settle) >= positive("duration", duration):
        raise ConfigError(f"settle is {settle:g} s of {duration:g}: less is needed, so that something is counted")
    for incident in incidents:
        integer("incident.shard", incident.shard, 0, shards - 1)
    return _Simulation(nodes, Shards(shards), load, costs, duration, settle, seed, incidents).run()


class _Node:
    """near: the prefixes that it has, the one used last at the end. epoch: that it knows of."""

    def __init__(self, breaker: Breaker, near: Iterator[int], epoch: int) -> None:
        self.breaker = breaker
        self.near: OrderedDict[int, None] = OrderedDict.fromkeys(near)
        self.epoch = epoch

    def knows(self, epoch: int) -> None:
        if self.epoch != epoch:
            self.epoch = epoch
            self.near.clear()


class _Simulation:
    def __init__(
        self,
        nodes: int,
        shards: Shards,
        load: Load,
        costs: Costs,
        duration: float,
        settle: float,
        seed: int,
        incidents: Sequence[Incident],
    ) -> None:
        self.load, self.costs, self.duration, self.settle, self.shards = load, costs, duration, settle, shards
        self.random = np.random.default_rng(seed)
        self.time = Time(shards, costs.rtt, max((one.timeout for one in incidents), default=0.0))
        weights = 1.0 / np.arange(1, load.prefixes + 1) ** load.skew
        self.popular = np.cumsum(weights / weights.sum())
        self.part = max(1, load.together // (load.block_bytes * load.run))  # heads of a trip that moves payload
        self.places: dict[int, Places] = {}  # of a prefix
        self.stands: dict[int, npt.NDArray[np.uint8]] = {}  # what stands at its heads
        self.epoch = 0
        self.count: Counter[str] = Counter()
        self.latency: list[float] = []
        steps = int(duration / _STEP) + 1
        self.lines = {name: np.zeros(steps) for name in ("requests", "failed", "blocks", "reused", "busiest")}
        for _ in range(nodes):
            self._enter(min(load.held, load.prefixes))
        for incident in incidents:
            self.time.begin(self._happens(incident), incident.at)
        self.time.begin(self._watch(), _STEP)
        self.before = np.zeros_like(shards.busy)
        self.time.begin(self._settled(), settle)

    def run(self) -> Found:
        self.time.run(self.duration)
        self.count.update(trips=self.time.trips, batches=self.time.batches)
        with np.errstate(invalid="ignore"):
            reused, failed = self.lines["reused"] / self.lines["blocks"], self.lines["failed"] / self.lines["requests"]
        return Found(
            busy=(self.shards.busy - self.before) / (self.duration - self.settle),
            latency=np.array(self.latency),
            step=_STEP,
            line_reused=reused,
            line_failed=failed,
            line_busiest=self.lines["busiest"],
            **{name: self.count[name] for name in Found.__dataclass_fields__ if Found.__dataclass_fields__[name].type == "int"},
        )

    # -- what is counted, and what happens

    def _line(self, name: str, value: float) -> None:
        self.lines[name][int(self.time.now / _STEP)] += value

    def _watch(self) -> Process:
        before = np.zeros_like(self.shards.busy)
        for step in itertools.count():
            self.lines["busiest"][step] = (self.shards.busy - before).max() / _STEP
            before = self.shards.busy.copy()
            yield _STEP

    def _settled(self) -> Process:
        self.count.clear()
        self.latency.clear()
        self.time.trips = self.time.batches = 0
        self.before = self.shards.busy.copy()
        yield from ()

    def _happens(self, incident: Incident) -> Process:
        if incident.kind == "down":
            self.shards.down[incident.shard] = (self.time.now, self.time.now + incident.lasts)
        elif incident.kind == "cold":
            for _ in range(incident.nodes):
                self._enter(0)
        else:
            self.epoch += 1
            self.stands = {}
            yield self._families(self.costs.bump)

    # -- what nodes do

    def _enter(self, held: int) -> None:
        node = _Node(Breaker(lambda: self.time.now), iter(range(held)), self.epoch)
        self.time.begin(self._asks(node))
        self.time.begin(self._polls(node), self.random.uniform(0, self.load.poll))

    def _asks(self, node: _Node) -> Process:
        while True:
            yield float(self.random.exponential(1 / self.load.rate))
            self.time.begin(self._request(node))

    def _polls(self, node: _Node) -> Process:
        while True:
            if (yield self._families(self.costs.families)):
                node.knows(self.epoch)
            yield self.load.poll

    def _request(self, node: _Node) -> Process:
        load = self.load
        prefix = int(np.searchsorted(self.popular, self.random.random()))
        if load.asked:
            node.knows(self.epoch)
        near = load.shared if prefix in node.near else 0
        stands = self._stands(prefix)[near // load.run :]
        tail = self.random.integers(len(self.shards.free), size=(load.blocks - load.shared) // load.run)
        places = np.concatenate((self._places(prefix)[near // load.run :], tail))
        heads = yield from self._look(node, places, stands)
        if heads and load.beside:
            heads = yield from self._move(node, places[:heads], self.costs.fetch, self.costs.get_byte)
        hit = heads * load.run
        self.count.update(requests=1, near=near, hit=hit, computed=load.blocks - near - hit)
        self._line("requests", 1)
        self._line("blocks", load.blocks)
        self._line("reused", near + hit)
        yield (load.blocks - near - hit) * load.prefill
        node.near[prefix] = None
        node.near.move_to_end(prefix)
        if len(node.near) > load.held:
            node.near.popitem(last=False)
        yield from self._write(node, places[heads:], stands[heads:])

    def _look(self, node: _Node, places: Places, stands: npt.NDArray[np.uint8]) -> Generator[Floats | float, bool, int]:
        """How many heads of the chain were found."""
        if not node.breaker.allows():
            self.count["failed"] += 1
            self._line("failed", 1)
            return 0
        yield len(places) * self.load.run * self.costs.digest
        began = self.time.now
        there = _leading(stands)
        ask = first_asked(len(places))
        families = self._families(self.costs.families) if self.load.asked else 0.0
        work = self._work(places[ask], self.costs.get)
        if self.load.asked and work[_FAMILIES]:
            work[_FAMILIES] -= self.costs.trip  # in the same batch
        well = yield work + families
        end = next((number for number in ask if number >= there), len(places))
        rest = np.setdiff1d(np.arange(end), ask)
        if well and len(rest):
            well = yield self._work(places[rest], self.costs.get)
        self._went(node, well)
        if not well:
            self.count["failed"] += 1
            self._line("failed", 1)
            return 0
        self.latency.append(self.time.now - began)
        return there

    def _move(self, node: _Node, places: Places, each: float, byte: float) -> Generator[Floats | float, bool, int]:
        """How many heads' payloads came."""
        for at in range(0, len(places), self.part):
            now = places[at : at + self.part]
            if not (yield self._work(now, each + byte * self.load.block_bytes * self.load.run)):
                self._went(node, False)
                return at
            self.count["moved_bytes"] += len(now) * self.load.block_bytes * self.load.run
        return len(places)

    def _write(self, node: _Node, places: Places, stands: npt.NDArray[np.uint8]) -> Process:
        """Claims and commits what was computed; `stands` are those of the heads that others want too, the first ones."""
        load, costs = self.load, self.costs
        size = load.block_bytes * load.run if load.beside else 0
        commit = costs.commit + (costs.put + costs.put_byte * size if load.beside else 0.0)
        for at in range(0, len(places), self.part):
            if not node.breaker.allows():
                return
            now = places[at : at + self.part]
            shared = stands[at : at + self.part]
            if not (yield self._work(now, costs.claim)):
                self._went(node, False)
                return
            free = np.concatenate((shared == 0, np.ones(len(now) - len(shared), bool)))
            already, claimed = int((shared == _COMMITTED).sum()), int((shared == _CLAIMED).sum())
            self.count.update(won=int(free.sum()), already=already, claimed=claimed, wasted=(already + claimed) * load.run)
            mine = free[: len(shared)]
            shared[mine] = _CLAIMED
            well = True
            if free.any():
                well = yield self._work(now[free], commit)
                shared[mine] = _COMMITTED if well else 0
                self.count["moved_bytes"] += int(free.sum()) * size if well else 0
            self._went(node, well)
            if not well:
                return

    # -- inside

    def _went(self, node: _Node, well: bool) -> None:
        if well:
            node.breaker.succeeded()
        else:
            node.breaker.failed()

    def _work(self, places: Places, each: float) -> Floats:
        """Of every shard, for a command on each of these heads."""
        commands = np.bincount(places, minlength=len(self.shards.free))
        return np.where(commands > 0, self.costs.trip + commands * each, 0.0)

    def _families(self, cost: float) -> Floats:
        work = np.zeros_like(self.shards.free)
        work[_FAMILIES] = self.costs.trip + cost
        return work

    def _places(self, prefix: int) -> Places:
        if prefix not in self.places:
            count = self.load.shared // self.load.run
            self.places[prefix] = np.random.default_rng(prefix).integers(len(self.shards.free), size=count)
        return self.places[prefix]

    def _stands(self, prefix: int) -> npt.NDArray[np.uint8]:
        if prefix not in self.stands:
            count = self.load.shared // self.load.run
            self.stands[prefix] = np.full(count, 0 if self.epoch else _COMMITTED, np.uint8)
        return self.stands[prefix]


def _leading(stands: npt.NDArray[np.uint8]) -> int:
    """How many heads from the first on are committed."""
    other = np.flatnonzero(stands != _COMMITTED)
    return int(other[0]) if len(other) else len(stands)
