"""How far a pool goes: 10 to 1,000 nodes and 10^6 to 10^9 blocks at the costs of `benchmarks.costs`, simulated or reckoned.
Run as `python -m benchmarks.scale`; writes its JSON, and the tables of docs/scale.md from that."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from benchmarks.report import RESULTS
from benchmarks.scale_tables import write_page
from tenure.lab.cluster import simulate
from tenure.lab.fleet import Costs, Found, Incident, Load

COSTS = RESULTS / "plan" / "costs.json"
SAVED = RESULTS / "plan" / "scale.json"
FLEETS = (10, 100, 1000)
BLOCKS = (10**6, 10**7, 10**8, 10**9)
RTT = 200e-6
SHARD_BYTES = 32 << 30
"""Memory of one shard."""
HALF = 0.5
"""A shard is not to work more than this part of the time, or queues grow."""
SETTLE = 1.0
COUNTED = {10: 10.0, 100: 3.0, 1000: 1.0}
"""Seconds that are counted after SETTLE."""
LOAD = Load()
VARIANTS = {
    "as it is": LOAD,
    "claims and commits of a request in one trip each": Load(together=1 << 40),
    "a head for 16 blocks": Load(run=16),
    "both": Load(run=16, together=1 << 40),
    "both, and families by polling only": Load(run=16, together=1 << 40, asked=False),
}
DOWN, AT, LASTING = 5.0, 5.0, 30.0

Row = dict[str, Any]


def ran(nodes: int, shards: int, load: Load, costs: Costs) -> Found:
    return simulate(nodes, shards, load, costs, SETTLE + COUNTED[nodes], settle=SETTLE, seed=nodes)


def enough(nodes: int, load: Load, costs: Costs) -> Found:
    """What is found with the fewest shards, in steps of about a quarter, of which none works more than HALF of the time."""
    shards = max(1, int(ran(10, 1, load, costs).busy.sum() * nodes / 10 / HALF))
    while (found := ran(nodes, shards, load, costs)).busy.max() > HALF:
        shards += max(1, shards // 4)
    return found


def memory_rows(units: Row) -> list[Row]:
    return [
        {
            "blocks": blocks,
            "heads": blocks * units["head_bytes"],
            "shards": int(np.ceil(blocks * units["head_bytes"] / SHARD_BYTES)),
            "beside": blocks * units["block_bytes"],
            "payload": blocks * LOAD.block_bytes,
            "index": blocks * units["index_bytes"],
            "expiry": blocks / 86400 * units["expiry"],
        }
        for blocks in BLOCKS
    ]


def load_rows(costs: Costs) -> list[Row]:
    rows: list[Row] = []
    for nodes in FLEETS:
        for name, load in VARIANTS.items():
            found = enough(nodes, load, costs)
            rows.append({"nodes": nodes, "variant": name} | figures(found, COUNTED[nodes]))
    return rows


def figures(found: Found, counted: float) -> Row:
    """Of one run, a second and a request."""
    per = {name: getattr(found, name) / counted for name in ("requests", "trips", "batches", "won", "computed")}
    middle, late = np.percentile(found.latency, [50, 99])
    others = found.busy[1:].mean() if len(found.busy) > 1 else found.busy[0]
    return per | {
        "shards": len(found.busy),
        "busiest": found.busy.max(),
        "mean": found.busy.mean(),
        "families": found.busy[0] / others,
        "work": found.busy.sum() / per["requests"],
        "p50": middle,
        "p99": late,
    }


def spread_rows(costs: Costs) -> list[Row]:
    """The same work on more and more shards, and then ten times the requests."""
    rows: list[Row] = []
    for name in ("as it is", "both"):
        for shards in (1, 8, 64):
            found = ran(100, shards, VARIANTS[name], costs)
            rows.append({"variant": name, "rate": VARIANTS[name].rate} | figures(found, COUNTED[100]))
    busy = replace(VARIANTS["both"], rate=10 * LOAD.rate)
    for shards in (8, 64):
        found = simulate(1000, shards, busy, costs, 0.75, settle=0.5, seed=2)
        rows.append({"variant": "both", "rate": busy.rate} | figures(found, 0.25))
    return rows


def beside_rows(costs: Costs) -> list[Row]:
    """Payload beside the heads: what is written and read, and the shards that this takes."""
    rows: list[Row] = []
    for nodes in FLEETS[:2]:
        found = enough(nodes, replace(LOAD, beside=True), costs)
        rows.append({"nodes": nodes, "bytes": found.moved_bytes / COUNTED[nodes]} | figures(found, COUNTED[nodes]))
    return rows


def limits(units: Row, costs: Costs) -> Row:
    """What no further shard helps: closed forms."""
    return {
        "families": HALF / (costs.trip + costs.families),
        "polls": HALF / (costs.trip + costs.families) * LOAD.poll,
        "every_shard": HALF / (2 * costs.trip),
        "bump": costs.trip + costs.bump,
        "digests": LOAD.blocks * costs.digest,
    }


def event_rows(units: Row, rows: list[Row]) -> list[Row]:
    made: list[Row] = []
    for nodes in FLEETS:
        load = next(row for row in rows if row["nodes"] == nodes and row["variant"] == "as it is")
        new = load["requests"] * LOAD.blocks * (1 - NEAR * LOAD.shared / LOAD.blocks)
        both = units["event_bytes"] + units["removed_bytes"]
        made.append(
            {
                "nodes": nodes,
                "events": 2 * new,
                "bytes": new * both,
                "apply": 2 * new * units["apply"],
                "mirror": 2 * new / nodes * units["mirror"],
                "index": nodes * 100_000 * units["index_bytes"],
                "decide": nodes * (units["holder"] + NEAR * LOAD.shared * units["held"]),
                "threads": load["requests"] * nodes * (units["holder"] + NEAR * LOAD.shared * units["held"]),
            }
        )
    return made


def near_share() -> float:
    """Of requests, those whose prefix is among the `held` most asked for."""
    weights = 1 / np.arange(1, LOAD.prefixes + 1) ** LOAD.skew
    return float(weights[: LOAD.held].sum() / weights.sum())


NEAR = near_share()


def incident_rows(costs: Costs) -> list[Row]:
    nodes, shards = 100, 4
    cases: dict[str, list[Incident]] = {
        "nothing": [],
        "a shard is away for 5 s, then its replica has taken over": [Incident("down", AT, shard=1, lasts=DOWN)],
        "the shard of the families is away for 5 s": [Incident("down", AT, shard=0, lasts=DOWN)],
        "a new epoch of everything": [Incident("bump", AT)],
        "100 more nodes begin, with nothing": [Incident("cold", AT, nodes=100)],
    }
    rows: list[Row] = []
    for name, incidents in cases.items():
        found = simulate(nodes, shards, LOAD, costs, LASTING, seed=1, incidents=incidents)
        first = int(AT / found.step)
        usual = float(np.nanmean(found.line_reused[:first]))
        after = found.line_reused[first:-1]
        low = np.flatnonzero(after < 0.9 * usual)
        failing = np.flatnonzero(found.line_failed[first:-1] > 0.01)
        rows.append(
            {
                "case": name,
                "shards": shards,
                "usual": usual,
                "least": float(np.nanmin(after)),
                "back": float((low[-1] + 1) * found.step) if len(low) else 0.0,
                "failed": float(np.nanmean(found.line_failed[first : first + int(DOWN / found.step)])),
                "failing": float((failing[-1] + 1) * found.step) if len(failing) else 0.0,
                "busiest": float(found.line_busiest[first:-1].max()),
                "wasted": found.wasted,
                "computed": found.computed,
            }
        )
    return rows


def run() -> None:
    saved = json.loads(COSTS.read_text())
    units = {name: one["value"] for name, one in saved["units"].items()}
    costs = Costs.of(saved["units"], rtt=RTT)
    rows = load_rows(costs)
    body = {
        "machine": saved["machine"],
        "costs": asdict(costs),
        "load": asdict(LOAD),
        "near": NEAR,
        "memory": memory_rows(units),
        "loads": rows,
        "spread": spread_rows(costs),
        "beside": beside_rows(costs),
        "limits": limits(units, costs),
        "events": event_rows(units, rows),
        "incidents": incident_rows(costs),
    }
    SAVED.write_text(json.dumps(body, indent=1, default=float) + "\n")
    write_page(saved, json.loads(SAVED.read_text()))


if __name__ == "__main__":
    run()
