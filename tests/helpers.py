"""What the tests share: a clock moved by hand, prompts by block name, and a snapshot of all that a manager tells.
Used by the tests directly under tests/, tests/contract and tests/faults."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from tenure import BlockManager, Identity, Sequence

SIZE = 4
"""Tokens a block in most tests."""


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


def prompt(*names: int, size: int = SIZE) -> list[int]:
    """The tokens of full blocks, one for each name: an equal name gives equal tokens."""
    return [name * 1000 + i for name in names for i in range(size)]


def names_of(tokens: tuple[int, ...] | list[int]) -> int:
    """The name of the block with these tokens."""
    return tokens[0] // 1000


def admit(kv: BlockManager, who: Identity, *names: int, **settings: Any) -> Sequence:
    """A running sequence whose prompt is written."""
    return kv.sequence(prompt(*names, size=kv.block_size), who, written=True, **settings)


def put(kv: BlockManager, who: Identity, *names: int, **settings: Any) -> int:
    """Runs a request to its end; its blocks stay as Cached. Returns how many of its tokens were hits."""
    seq = admit(kv, who, *names, **settings)
    seq.release()
    return seq.hit_tokens


def hit_blocks(kv: BlockManager, who: Identity, *names: int) -> int:
    """How many leading blocks a request would find; changes nothing."""
    return kv.match(prompt(*names, size=kv.block_size), who).hit_tokens // kv.block_size


def resident(kv: BlockManager) -> set[int]:
    """The names of the blocks that can be hit."""
    return {names_of(block.tokens) for block in kv.blocks() if block.hittable}


def victims(kv: BlockManager, who: Identity) -> list[int]:
    """The names of the blocks that may go now, the next first."""
    found = []
    for frame in kv.victims(who.account):
        block = kv.block(frame)
        assert block is not None
        found.append(names_of(block.tokens))
    return found


def evicted_since(kv: BlockManager, event: int, what: str = "evict") -> list[int]:
    """The record numbers of the blocks that went since an event, in order."""
    return [entry.block for entry in kv.events(event) if entry.what == what]


def snapshot(kv: BlockManager) -> dict[str, Any]:
    """All that a manager tells of itself, except how often it has refused."""
    totals = kv.totals()
    totals.pop("refused_leases")
    stats = {name: asdict(row) for name, row in kv.stats().items()}
    for row in stats.values():
        row.pop("refused")
    return {
        "counts": kv.check(),
        "blocks": list(kv.blocks()),
        "victims": {name: kv.victims(name) for name in kv.tenants},
        "leases": kv.leases(),
        "stats": stats,
        "totals": totals,
        "policy": (kv.policy, kv.params),
        "quotas": {name: kv.tenants[name] for name in kv.tenants},
        "events": kv.events(),
    }


@contextmanager
def unchanged(kv: BlockManager) -> Iterator[None]:
    """What happens inside must leave no trace in the manager."""
    before = snapshot(kv)
    yield
    after = snapshot(kv)
    for part in before:
        assert after[part] == before[part], part


def in_another_process(code: str, **environment: str) -> str:
    """Runs Python code in a fresh process and returns what it printed; a crash there fails the test, not the run."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)} | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stderr}"
    return done.stdout.strip()
