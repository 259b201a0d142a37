"""Whether the units of `benchmarks.costs` add up: what a server works for whole calls of the tier, against what was reckoned.
Called by it; a ratio far from 1 says that a plan made of these units is of no use."""

from __future__ import annotations

from typing import Any

from benchmarks.costs import FAMILIES, ROUNDS, WHO, Driver, Units, digest, server, unit
from tenure.cluster.epochs import families_of
from tenure.lab.cluster import first_asked
from tenure.lab.fleet import Costs
from tenure.tiers import BlockLayout, Record
from tenure.tiers.valkey import ValkeyTier

LAYOUT = BlockLayout.of("bf16", 16, layers=8, heads=8, head_size=64)
"""256 KiB a block: 32 of them in one trip, each in one piece."""
WRITTEN = 64


def checks(units: Units) -> dict[str, dict[str, Any]]:
    costs = Costs.of(units)
    found: dict[str, list[float]] = {"looked": [], "missed": [], "wrote": [], "read": []}
    families = families_of(WHO)
    with server() as made, ValkeyTier(LAYOUT, made.url, frames=8 * WRITTEN) as tier:
        driver = Driver(made)
        blocks = [memoryview(bytearray(LAYOUT.nbytes)) for _ in range(WRITTEN)]
        size = WRITTEN * LAYOUT.nbytes
        trips = -(-size // (8 << 20))
        whole = 2 * costs.trip + costs.families + WRITTEN * costs.get
        for turn in range(ROUNDS + 1):
            made.command("FLUSHALL", "SYNC")  # so that memory is used again, as in a pool that is full
            tier.bump(families)
            names = [digest(turn * 10_000 + n) for n in range(WRITTEN)]
            records = [Record(WHO.namespace, name, bytes(32), 0, bytes(64), LAYOUT) for name in names]
            frames = range(WRITTEN)
            wrote = driver.spent(lambda: good(tier.write(frames, blocks, records)), 1)  # noqa: B023
            read = driver.spent(lambda: good(tier.read(frames, records, blocks)), 1)  # noqa: B023
            looked = driver.spent(lambda: found_all(tier, names, families), 50)  # noqa: B023
            gone = [digest(turn * 10_000 + 5000 + n) for n in range(WRITTEN)]
            missed = driver.spent(lambda: tier.look(gone, families), 50)  # noqa: B023
            if not turn:
                continue  # scripts and connections are new to the server
            each = costs.claim + costs.commit + costs.put
            found["wrote"].append(wrote / (2 * trips * costs.trip + WRITTEN * each + size * costs.put_byte))
            found["read"].append(read / (trips * costs.trip + WRITTEN * costs.fetch + size * costs.get_byte))
            found["looked"].append(looked / whole)
            asked = len(first_asked(WRITTEN))
            found["missed"].append(missed / (costs.trip + costs.families + asked * costs.get))
    words = {
        "looked": f"a look-up of {WRITTEN} blocks that are there",
        "missed": f"a look-up of {WRITTEN} blocks that are not",
        "wrote": f"a write of {WRITTEN} blocks of {LAYOUT.nbytes >> 10} KiB",
        "read": "the same blocks read",
    }
    return {name: unit(f"{words[name]}: measured ÷ reckoned", "ratio", values) for name, values in found.items()}


def good(outcomes: list[Any]) -> None:
    wrong = next((outcome for outcome in outcomes if outcome is not None), None)
    if wrong is not None:
        raise RuntimeError(f"a block of the check was refused: {wrong}")


def found_all(tier: ValkeyTier, names: list[bytes], families: tuple[bytes, ...]) -> None:
    look = tier.look(names, families)
    if len(look.heads) != len(names) or len(look.values) != len(FAMILIES):
        raise RuntimeError(f"a look-up of the check found {len(look.heads)} of {len(names)} blocks")
