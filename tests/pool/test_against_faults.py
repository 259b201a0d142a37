"""Nodes of the product in processes of their own, under faults, and what the history of it proves against them.
`TENURE_JEPSEN`: for how many seconds (600 for the long run)."""

from __future__ import annotations

import itertools
import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.node.making import LAYOUT, SIZE
from tests.pool.checker import Finding, Rules, check, summary
from tests.pool.history import read
from tests.pool.nemesis import Target
from tests.pool.proxied import ProxiedCluster, proxied_cluster
from tests.pool.run import Plan, World, run
from tests.pool.worker import Settings
from tests.pool.world import ClusterWorld

SECONDS = float(os.environ.get("TENURE_JEPSEN", "8"))
SEED = int(os.environ.get("TENURE_JEPSEN_SEED", "1"))
NODES = ["n0", "n1", "n2", "n3"]
TRUST, POLL, WAIT = 3.0, 0.5, 0.25
RULES = Rules(size=SIZE, nbytes=LAYOUT.nbytes, bound=TRUST, allowance=1.0)
DEADLINE = 3.0
"""Seconds: a request may wait for the pool some times, and for room once."""


_runs = itertools.count()


class Nothing:
    """Nothing is shared."""

    def targets(self) -> list[Target]:
        return []

    def healed(self) -> None:
        pass


def found(folder: Path, world: World, own: dict[str, Any], plan: Plan) -> tuple[list[Finding], Counter[str]]:
    settings = Settings(
        seed=SEED,
        nodes=NODES,
        adapter="tests.pool.ours:OwnNode",
        own=dict.fromkeys(NODES, own),
        size=SIZE,
        nbytes=LAYOUT.nbytes,
        deadline=DEADLINE,
    )
    run(folder, settings, world, plan)
    lines = read(folder)
    return check(lines, RULES), summary(lines)


def nothing_in(findings: list[Finding], folder: Path, told: Counter[str]) -> None:
    kept = os.environ.get("TENURE_JEPSEN_KEEP")
    if kept:
        shutil.copytree(folder, kept, dirs_exist_ok=True)
    counts = Counter(finding.kind for finding in findings)
    assert not findings, f"seed {SEED}: {dict(counts)}\n" + "\n".join(map(str, findings[:5])) + f"\n{dict(told)}"


def test_nodes_that_share_nothing(tmp_path: Path) -> None:
    findings, told = found(tmp_path, Nothing(), {}, Plan(min(SECONDS, 5.0), every=0.2, bumps=0.3, lasting=(0.2, 1.0)))
    nothing_in(findings, tmp_path, told)
    assert told["requests"] > 800, told
    assert told["hits from device"] > 100, told
    assert told["hits from host"] > 50, told
    assert told["bumps acknowledged"] > 3, told


@pytest.fixture(scope="module")
def cluster() -> Iterator[ProxiedCluster]:
    with proxied_cluster() as made:
        yield made


def sharing(cluster: ProxiedCluster, **settings: float) -> dict[str, Any]:
    """Of nodes that share a pool that nobody else has."""
    return {"url": cluster.url, "prefix": f"run{next(_runs)}", "replicas": 1, "deadline": WAIT, **settings}


def test_nodes_that_share_a_pool_on_a_cluster(cluster: ProxiedCluster, tmp_path: Path) -> None:
    plan = Plan(SECONDS, every=0.4, bumps=0.5, lasting=(0.5, 4.0), settle=6.0)
    findings, told = found(tmp_path, ClusterWorld(cluster), sharing(cluster, poll=POLL, trust=TRUST), plan)
    nothing_in(findings, tmp_path, told)
    assert told["requests"] > 1000, told
    assert told["hits from pool"] > 100, told
    assert told["bumps confirmed"] > 0, told
    assert {"fault kill", "fault pause"} <= set(told), told


def test_nodes_that_never_hear_of_an_epoch_are_found_out(cluster: ProxiedCluster, tmp_path: Path) -> None:
    own = {**sharing(cluster, poll=POLL, trust=TRUST), "deaf": True}
    findings, told = found(tmp_path, Nothing(), own, Plan(min(SECONDS, 20.0), every=1.0, bumps=0.5, kills=False))
    assert "stale" in {finding.kind for finding in findings}, told
