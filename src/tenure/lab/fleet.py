"""The words of a plan for a pool: what work costs, what nodes ask, what goes wrong, and what came of it.
Used by the simulation and by whoever plans; nothing here knows what a request does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from tenure.checks import integer, positive, seconds
from tenure.errors import ConfigError
from tenure.lab.queues import Floats

__all__ = ["Costs", "Found", "Incident", "Load"]


@dataclass(frozen=True)
class Costs:
    """Seconds of one shard's thread: `trip` for a batch of commands on a connection, whatever is in it, and the others for each
    in it: `get` and `claim` a head; `commit` a block whose payload lies elsewhere; `put` and `fetch` the envelope and payload of
    one that lies beside its head, without their bytes; `families` all that a look-up asks for; `bump` a new epoch. `rtt`: seconds
    on the network, there and back; `digest`: of a node's own processor, for a block's name.

    Raises ConfigError for what is no duration.
    """

    trip: float
    get: float
    families: float
    bump: float
    claim: float
    commit: float
    put: float = 0.0
    fetch: float = 0.0
    put_byte: float = 0.0
    get_byte: float = 0.0
    rtt: float = 0.0
    digest: float = 0.0

    def __post_init__(self) -> None:
        for one in fields(self):
            object.__setattr__(self, one.name, seconds(f"costs.{one.name}", getattr(self, one.name)))

    @classmethod
    def of(cls, measured: Mapping[str, Mapping[str, object]], **others: float) -> Costs:
        """From what `benchmarks/costs.py` has saved: names to {"value": ...}. Raises ConfigError when one is missing."""
        named = {one.name: measured[one.name]["value"] for one in fields(cls) if one.name in measured} | others
        try:
            return cls(**named)  # type: ignore[arg-type]
        except TypeError as error:
            raise ConfigError(f"these costs are not whole: {error}") from None


@dataclass(frozen=True)
class Load:
    """What each node is asked: `rate` requests a second at random times, of `blocks` blocks, of which the first `shared` are one
    of `prefixes` that all nodes are asked for (by Zipf's law, exponent `skew`), the rest nobody else's.

    A node has the `held` prefixes that it used last, and computes a block in `prefill` seconds, as many at once as it is asked
    for. A block has `block_bytes` of payload, `beside` its head in the shards or elsewhere; a trip moves `together` bytes of it.
    `run`: blocks that one head stands for. Families are read with each look-up (`asked`) and every `poll` seconds.

    Raises ConfigError for what does not fit.
    """

    rate: float = 4.0
    blocks: int = 256
    shared: int = 192
    prefixes: int = 2000
    skew: float = 1.0
    held: int = 200
    prefill: float = 0.0016
    block_bytes: int = 2 << 20
    beside: bool = False
    together: int = 8 << 20
    run: int = 1
    asked: bool = True
    poll: float = 1.0

    def __post_init__(self) -> None:
        for name in ("rate", "poll"):
            object.__setattr__(self, name, positive(f"load.{name}", getattr(self, name)))
        for name in ("prefill", "skew"):
            object.__setattr__(self, name, seconds(f"load.{name}", getattr(self, name)))
        for name, least in (("blocks", 1), ("prefixes", 1), ("held", 0), ("run", 1), ("block_bytes", 1), ("together", 1)):
            integer(f"load.{name}", getattr(self, name), least, 1 << 40)
        integer("load.shared", self.shared, 0, self.blocks)
        if self.shared % self.run or self.blocks % self.run:
            raise ConfigError(f"{self.shared} shared blocks of {self.blocks} are not both whole runs of {self.run}")


@dataclass(frozen=True)
class Incident:
    """What happens `at` a second: "down": `shard` answers nothing for `lasts` seconds, a round trip to it fails after `timeout`;
    "bump": everything is of an old epoch; "cold": `nodes` more nodes begin, that have nothing. Raises ConfigError for others."""

    kind: str
    at: float
    shard: int = 0
    lasts: float = 0.0
    timeout: float = 1.0
    nodes: int = 0

    def __post_init__(self) -> None:
        if self.kind not in ("down", "bump", "cold"):
            raise ConfigError(f"an incident is {self.kind!r}: 'down', 'bump' or 'cold' is needed")
        for name in ("at", "lasts", "timeout"):
            seconds(f"incident.{name}", getattr(self, name))
        integer("incident.nodes", self.nodes, 0, 1 << 20)


@dataclass(frozen=True)
class Found:
    """What came of it. `busy`: of each shard, seconds of work a second (1 and more: it fell behind); `batches`: of commands that
    shards were given; `trips`: of nodes, each to several shards at once. `latency`: seconds of each look-up that was answered;
    `failed`: requests that had nothing of the pool because it did not answer.

    Blocks: `near` were on the node, `hit` in the pool, `computed` were not; `wasted`: of those, what others had or were at.
    Heads: claims `won`, `already` committed, `claimed` by others. Lines, a figure for each step of `step` seconds: blocks that
    were not computed, requests that failed (both as a share; NaN where there was none), and the busiest shard's work.
    """

    busy: Floats
    latency: Floats
    requests: int
    trips: int
    batches: int
    failed: int
    near: int
    hit: int
    computed: int
    wasted: int
    won: int
    already: int
    claimed: int
    moved_bytes: int
    step: float
    line_reused: Floats
    line_failed: Floats
    line_busiest: Floats
