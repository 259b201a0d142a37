"""The schedule of faults and what carries it out, on targets that only take notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.helpers import Clock
from tests.pool.history import Fault
from tests.pool.nemesis import Harm, Nemesis, Step, Target, schedule


def nothing() -> None:
    pass


def targets() -> list[Target]:
    both = {"kill": Harm(nothing, nothing), "pause": Harm(nothing, nothing, weight=2)}
    return [
        *(Target(f"node {i}", "node", both, at_once=2) for i in range(4)),
        *(Target(f"server {i}", "server", both) for i in range(6)),
        Target("epochs", "epoch", {"bump": Harm(nothing)}),
    ]


@pytest.mark.parametrize("seed", range(20))
def test_schedule_is_its_seeds_and_never_harms_too_much_at_once(seed: int) -> None:
    steps = schedule(seed, 300, targets(), every=0.5)
    assert steps == schedule(seed, 300, targets(), every=0.5)
    assert steps != schedule(seed + 1, 300, targets(), every=0.5)
    group = {target.name: target.group for target in targets()}
    for step in steps:
        assert 0 <= step.start <= step.end <= 300
        if step.what == "bump":
            assert step.end == step.start
        others = [other for other in steps if other.start < step.start < other.end]
        assert step.target not in {other.target for other in others}
        crowd = Counter(group[other.target] for other in others)
        assert crowd["node"] <= 2
        assert crowd["server"] <= 1
        if group[step.target] != "epoch":
            assert crowd[group[step.target]] < (2 if group[step.target] == "node" else 1)


def test_schedule_harms_everything_in_every_way() -> None:
    steps = schedule(1, 600, targets(), every=0.5)
    assert {(step.target, step.what) for step in steps} == {(target.name, what) for target in targets() for what in target.harms}


class World:
    """Takes notes of what is done to it, by a clock that only sleeping moves."""

    def __init__(self) -> None:
        self.clock = Clock(100.0)
        self.notes: list[tuple[float, str]] = []
        self.faults: list[Fault] = []

    def note(self, what: str) -> Callable[[], None]:
        return lambda: self.notes.append((self.clock.now, what))

    def harm(self, name: str) -> Harm:
        return Harm(self.note(f"{name} down"), self.note(f"{name} up"))

    def nemesis(self, *made: Target) -> Nemesis:
        return Nemesis(made, self.faults.append, clock=self.clock, sleep=self.clock.advance)


def refuse() -> None:
    raise OSError("no")


def stop() -> None:
    raise KeyboardInterrupt


def test_faults_come_and_go_at_their_time() -> None:
    world = World()
    made = [Target(name, "any", {"kill": world.harm(name)}) for name in ("a", "b")]
    made.append(Target("c", "any", {"bump": Harm(world.note("bump"))}))
    world.nemesis(*made).run([Step(1, 5, "a", "kill"), Step(2, 3, "b", "kill"), Step(4, 4, "c", "bump")])
    assert world.notes == [(101, "a down"), (102, "b down"), (103, "b up"), (104, "bump"), (105, "a up")]
    assert [(f.target, f.what, f.start, f.end, f.error) for f in world.faults] == [
        ("b", "kill", 102, 103, None),
        ("c", "bump", 104, 104, None),
        ("a", "kill", 101, 105, None),
    ]


def test_all_is_undone_when_the_run_is_interrupted() -> None:
    world = World()
    made = [Target(name, "any", {"kill": world.harm(name)}) for name in ("a", "b")]
    made.append(Target("c", "any", {"bump": Harm(stop)}))
    with pytest.raises(KeyboardInterrupt):
        world.nemesis(*made).run([Step(1, 50, "a", "kill"), Step(2, 60, "b", "kill"), Step(3, 3, "c", "bump")])
    assert world.notes[2:] == [(103, "a up"), (103, "b up")]


def test_what_cannot_be_done_is_undone_and_told_and_the_run_goes_on() -> None:
    world = World()
    a = Target("a", "any", {"kill": Harm(refuse, world.note("a up")), "bump": Harm(refuse)})
    b = Target("b", "any", {"kill": world.harm("b")})
    world.nemesis(a, b).run([Step(1, 9, "a", "kill"), Step(2, 2, "a", "bump"), Step(3, 4, "b", "kill")])
    assert world.notes == [(101, "a up"), (103, "b down"), (104, "b up")]
    assert [(f.target, f.error) for f in world.faults] == [("a", "OSError('no')"), ("a", "OSError('no')"), ("b", None)]


def test_what_cannot_be_undone_is_said_after_all_else_was_undone() -> None:
    world = World()
    a = Target("a", "any", {"kill": Harm(nothing, refuse)})
    b = Target("b", "any", {"kill": world.harm("b")})
    with pytest.raises(RuntimeError, match="kill of a: OSError"):
        world.nemesis(a, b).run([Step(1, 2, "a", "kill"), Step(1, 4, "b", "kill")])
    assert world.notes == [(101, "b down"), (104, "b up")]
    assert world.faults[0].error == "not undone: OSError('no')"
