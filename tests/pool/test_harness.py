"""The whole harness on a fake product: real processes, lines, faults. A right one passes, one with a planted fault does not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.pool import fake
from tests.pool.checker import Finding, Rules, check, summary
from tests.pool.history import read
from tests.pool.nemesis import Harm, Target
from tests.pool.proxies import CUT, DROP, NO_ANSWERS, PASS, Proxy, Way, delayed
from tests.pool.run import Plan, run
from tests.pool.worker import Settings

SECONDS = 4.0
"""For which each product is under faults."""
NODES = ["n0", "n1", "n2", "n3"]
RULES = Rules(size=fake.SIZE, nbytes=256, bound=0.5, allowance=1.0)


class FakeWorld:
    """A pool in this process, and a line to it for each node."""

    def __init__(self) -> None:
        self.pool = fake.PoolServer()
        self.lines = {node: Proxy(("127.0.0.1", self.pool.port)) for node in NODES}

    def targets(self) -> list[Target]:
        ways = {"cut": CUT, "drop": DROP, "no answers": NO_ANSWERS, "delay": delayed(0.02)}
        pool = {"kill": Harm(self.pool.kill, self.pool.start), "pause": Harm(self.pool.pause, self.pool.resume)}
        return [
            Target("pool", "pool", pool),
            *(
                Target(f"line of {node}", "line", {name: self.harm(line, way) for name, way in ways.items()}, at_once=2)
                for node, line in self.lines.items()
            ),
        ]

    @staticmethod
    def harm(line: Proxy, way: Way) -> Harm:
        return Harm(lambda: line.set(way), lambda: line.set(PASS))

    def healed(self) -> None:
        pass


@contextmanager
def fake_world() -> Iterator[FakeWorld]:
    world = FakeWorld()
    try:
        yield world
    finally:
        for line in world.lines.values():
            line.close()
        world.pool.kill()


def findings(folder: Path, bug: str, kills: bool) -> tuple[list[Finding], dict[str, int]]:
    with fake_world() as world:
        own = {
            node: {"port": line.port, "bound": RULES.bound, "timeout": 0.2, "frames": 60, "bug": bug}
            for node, line in world.lines.items()
        }
        settings = Settings(
            seed=7, nodes=NODES, adapter="tests.pool.fake:FakeNode", own=own, size=RULES.size, nbytes=RULES.nbytes, deadline=0.5
        )
        # with this seed some faults outlast a deadline and its allowance: a call that waits for their end is found
        run(folder, settings, world, Plan(SECONDS, every=0.25, bumps=0.4, lasting=(0.5, 2.5), kills=kills))
    lines = read(folder)
    return check(lines, RULES), summary(lines)


def test_a_right_product_passes(tmp_path: Path) -> None:
    found, told = findings(tmp_path, "", kills=True)
    assert not found, "\n".join(map(str, found[:5]))
    assert told["requests"] > 1000, told
    assert told["hits from pool"] > 50, told
    assert told["hits from device"] > 500, told
    assert told["bumps confirmed"] > 0, told
    assert sum(count for name, count in told.items() if name.startswith("fault")) >= 10, told
    assert not any(name.endswith("failed") for name in told), told


@pytest.mark.parametrize("bug", fake.BUGS)
def test_a_planted_fault_is_found(bug: str, tmp_path: Path) -> None:
    found, told = findings(tmp_path, bug, kills=False)
    kinds = {finding.kind for finding in found}
    assert fake.BUGS[bug][0] in kinds, told
    assert kinds <= set(fake.BUGS[bug]), "\n".join(map(str, found[:5]))
