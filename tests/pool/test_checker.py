"""The checker accepts histories of a right product, and finds every kind of planted fault in the line that it is in."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import pytest

from tests.pool import invented
from tests.pool.checker import KINDS, Rules, check, summary
from tests.pool.content import Space, links, looks_like, read_stamp
from tests.pool.history import Bump, Call, Done, Fault, Hit, Life, Line, Over, Phase, Record, Request

RULES = Rules(size=invented.SIZE, nbytes=invented.NBYTES, bound=invented.BOUND, allowance=0.1, recovery=0.5, least=20)
SEEDS = range(60)
ROOT = Path(__file__).parent.parent.parent
Plant: TypeAlias = "Callable[[list[Line], random.Random], Line | None]"
"""Changes a history; the line that must be found, or None where it has no place for this fault."""


@pytest.mark.parametrize("seed", SEEDS)
def test_a_right_history_is_accepted(seed: int) -> None:
    lines = invented.history(seed)
    random.Random(seed).shuffle(lines)  # files come in any order
    found = check(lines, RULES)
    assert not found, "\n".join(map(str, found[:5]))


def test_right_histories_have_in_them_what_could_go_wrong() -> None:
    told = sum((summary(invented.history(seed)) for seed in SEEDS), start=summary([]))
    for what in ("hits from pool", "hits from device", "bumps confirmed", "bumps acknowledged", "fault kill", "fault pause"):
        assert told[what] > 100, told
    assert told["calls admit"] > told["requests"] > 10000


# -- faults to plant


def replace(lines: list[Line], old: Line, **changes: Any) -> Line:
    new = Line(old.where, msgspec.structs.replace(old.record, **changes))
    lines[lines.index(old)] = new
    return new


def of(lines: list[Line], kind: type[Any]) -> list[Line]:
    return [line for line in lines if isinstance(line.record, kind)]


def with_hit(lines: list[Line], line: Line, depth: int, hit: Hit) -> Line:
    hits = list(line.record.hits)
    hits[depth] = hit
    return replace(lines, line, hits=hits)


def some_hit(lines: list[Line], r: random.Random) -> tuple[Line, int]:
    line = r.choice([line for line in of(lines, Request) if line.record.hits])
    return line, r.randrange(len(line.record.hits))


def restamped(request: Request, depth: int, labels: tuple[int, ...], space: Space | None = None) -> Hit:
    """The same hit with right bytes of other labels, or of another space."""
    whose = space or request.space
    link = links(whose, request.tokens, RULES.size)[depth]
    return (request.hits[depth][0], *looks_like(whose, labels, depth, link, RULES.nbytes))


def superseded(within: Callable[[float], bool], tier: str, *, at_home: bool = False) -> Plant:
    """A hit from this tier bears a label older than a bump so many seconds ago."""

    def plant(lines: list[Line], r: random.Random) -> Line | None:
        bumps = [line.record for line in of(lines, Bump) if line.record.acknowledged is not None]
        places = [
            (line, depth, bump)
            for line in of(lines, Request)
            for bump in bumps
            if bump.family in line.record.space.families and within(line.record.start - bump.acknowledged)
            if ((line.record.node, line.record.boot) == (bump.node, bump.boot) if at_home else bump.confirmed)
            for depth, hit in enumerate(line.record.hits)
            if hit[0] == tier
        ]
        if not places:
            return None
        line, depth, bump = r.choice(places)
        stamp = read_stamp(line.record.hits[depth][1])
        assert stamp is not None
        at = line.record.space.families.index(bump.family)
        labels = (*stamp.labels[:at], bump.label - 1, *stamp.labels[at + 1 :])
        return with_hit(lines, line, depth, restamped(line.record, depth, labels))

    return plant


def other_space(number: int) -> Plant:
    def plant(lines: list[Line], r: random.Random) -> Line:
        line, depth = some_hit(lines, r)
        stamp = read_stamp(line.record.hits[depth][1])
        assert stamp is not None
        other = Space(*(value + "2" if i == number else value for i, value in enumerate(line.record.space)))
        return with_hit(lines, line, depth, restamped(line.record, depth, stamp.labels, other))

    return plant


def changed(change: Callable[[Hit, Request, int], Hit]) -> Plant:
    def plant(lines: list[Line], r: random.Random) -> Line:
        line, depth = some_hit(lines, r)
        return with_hit(lines, line, depth, change(line.record.hits[depth], line.record, depth))

    return plant


def one_byte(hit: Hit, request: Request, depth: int) -> Hit:
    return (*hit[:2], f"{int(hit[2], 16) ^ 1:016x}")


def no_stamp(hit: Hit, request: Request, depth: int) -> Hit:
    return (hit[0], "", "0" * 16)


def other_tokens(hit: Hit, request: Request, depth: int) -> Hit:
    """The right bytes of a prompt that differs in its first token only."""
    tokens = [request.tokens[0] + 1, *request.tokens[1:]]
    stamp = read_stamp(hit[1])
    assert stamp is not None
    return restamped(msgspec.structs.replace(request, tokens=tokens), depth, stamp.labels)


def other_depth(hit: Hit, request: Request, depth: int) -> Hit:
    stamp = read_stamp(hit[1])
    assert stamp is not None
    link = links(request.space, request.tokens, RULES.size)[depth]
    return (hit[0], *looks_like(request.space, stamp.labels, depth + 1, link, RULES.nbytes))


def one_hit_too_many(lines: list[Line], r: random.Random) -> Line | None:
    whole = [line for line in of(lines, Request) if len(line.record.hits) == len(line.record.tokens) // RULES.size]
    if not whole:
        return None
    line = r.choice(whole)
    return replace(lines, line, hits=[*line.record.hits, line.record.hits[-1]])


def late(lines: list[Line], r: random.Random) -> Line:
    done = r.choice(of(lines, Done))
    return replace(lines, done, end=done.record.end + invented.DEADLINE + RULES.allowance)


def never(lines: list[Line], r: random.Random) -> Line:
    """A call that does not come back, in a process that goes on."""
    done = r.choice([done for done in of(lines, Done) if done.record.boot == 2 and done.record.end < invented.END - 10])
    lines.remove(done)
    key = (done.record.node, done.record.boot, done.record.op)
    return next(line for line in of(lines, Call) if (line.record.node, line.record.boot, line.record.op) == key)


def late_before_its_kill(lines: list[Line], r: random.Random) -> Line:
    """A call that hung long before its process was killed."""
    call = r.choice(unfinished(lines))
    return replace(lines, call, start=call.record.start - invented.DEADLINE - RULES.allowance)


def unfinished(lines: list[Line]) -> list[Line]:
    done = {(line.record.node, line.record.boot, line.record.op) for line in of(lines, Done)}
    return [line for line in of(lines, Call) if (line.record.node, line.record.boot, line.record.op) not in done]


def raised(lines: list[Line], r: random.Random) -> Line:
    return replace(lines, r.choice(of(lines, Done)), error="OSError()")


def not_over(lines: list[Line], r: random.Random) -> Line:
    over = r.choice(of(lines, Over))
    lines.remove(over)
    return next(line for line in of(lines, Life) if (line.record.node, line.record.boot) == (over.record.node, 2))


def not_killed(lines: list[Line], r: random.Random) -> Line:
    """A process that was gone without having been killed."""
    kill = r.choice([line for line in of(lines, Fault) if line.record.what == "kill"])
    lines.remove(kill)
    for line in unfinished(lines):  # what was under way when it went is not what this is about
        lines.remove(line)
    return next(line for line in of(lines, Life) if (line.record.node, line.record.boot) == (kill.record.target, 1))


def phase(lines: list[Line], name: str) -> Line:
    return next(line for line in of(lines, Phase) if line.record.name == name)


def cold_afterwards(lines: list[Line], r: random.Random) -> Line:
    after = phase(lines, "after")
    for line in of(lines, Request):
        if line.record.start >= after.record.start and r.random() < 0.9:
            replace(lines, line, hits=[])
    return after


def nothing_afterwards(lines: list[Line], r: random.Random) -> Line:
    after = phase(lines, "after")
    lines[:] = [line for line in lines if not isinstance(line.record, Request) or line.record.start < after.record.start]
    return after


def no_end(lines: list[Line], r: random.Random) -> Line:
    lines.remove(phase(lines, "after"))
    return phase(lines, "before")


PLANTS: dict[str, tuple[str, Plant]] = {
    "an old block from the device": ("stale", superseded(lambda late: late > RULES.bound, "device")),
    "an old block from the pool at once": ("stale", superseded(lambda late: 0 < late < RULES.bound, "pool")),
    "an old block at home at once": ("stale", superseded(lambda late: 0 < late < RULES.bound, "device", at_home=True)),
    "another tenant's": ("isolation", other_space(0)),
    "another model's": ("isolation", other_space(1)),
    "of other weights": ("isolation", other_space(2)),
    "one byte": ("bytes", changed(one_byte)),
    "no block": ("bytes", changed(no_stamp)),
    "of other tokens": ("bytes", changed(other_tokens)),
    "of another place": ("bytes", changed(other_depth)),
    "beyond the prompt": ("bytes", one_hit_too_many),
    "a late call": ("deadline", late),
    "a call that never ends": ("deadline", never),
    "a call that hung until its process was killed": ("deadline", late_before_its_kill),
    "a call that raised": ("raised", raised),
    "a process that did not end": ("died", not_over),
    "a process that was not killed": ("died", not_killed),
    "no hits afterwards": ("recovery", cold_afterwards),
    "nothing served afterwards": ("recovery", nothing_afterwards),
    "no phase afterwards": ("recovery", no_end),
}


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_fault_is_found_in_its_line(name: str) -> None:
    kind, plant = PLANTS[name]
    planted = 0
    for seed in SEEDS:
        lines = invented.history(seed)
        line = plant(lines, random.Random(seed))
        if line is not None:
            planted += 1
            found = check(lines, RULES)
            assert {finding.kind for finding in found} == {kind}, f"seed {seed}: {line}\n" + "\n".join(map(str, found))
            assert all(line.where in {proof.where for proof in finding.proof} for finding in found), (str(line), found)
    assert planted >= len(SEEDS) // 4, planted


def test_every_kind_is_planted() -> None:
    assert {kind for kind, _ in PLANTS.values()} == set(KINDS)


# -- where the lines are drawn

SPACE = Space("acme", "m", "w")
TOKENS = [1, 2, 3, 4]


def small(*records: Record) -> list[str]:
    """What is found in a history of these records, and of phases in which enough was served."""
    calm = [Request("z", 1, at, at, SPACE, TOKENS, (0, 0, 0), []) for at in (*range(-60, -20), *range(1000, 1040))]
    phases = [Phase("before", -60, -20), Phase("after", 1000, 1040)]
    lines = [Line(f"small:{number}", record) for number, record in enumerate([*records, *calm, *phases], 1)]
    return [finding.kind for finding in check(lines, RULES)]


def served(start: float, labels: tuple[int, ...], *, tier: str = "device", node: str = "a", boot: int = 1) -> Request:
    link = links(SPACE, TOKENS, RULES.size)[0]
    return Request(
        node, boot, start, start + 0.1, SPACE, TOKENS, labels, [(tier, *looks_like(SPACE, labels, 0, link, RULES.nbytes))]
    )


def bump(label: int, acknowledged: float | None, *, node: str = "b", boot: int = 1, confirmed: bool = True) -> Bump:
    return Bump(node, boot, "model=m", label, (acknowledged or 100.0) - 1, acknowledged, confirmed)


def test_a_bump_binds_after_its_bound() -> None:
    assert small(bump(1, 100.0), served(105.0, (0, 0, 0))) == []
    assert small(bump(1, 100.0), served(105.01, (0, 0, 0))) == ["stale"]
    assert small(bump(1, 100.0), served(105.01, (0, 1, 0))) == []
    assert small(bump(1, 100.0), served(105.01, (9, 0, 9))) == ["stale"]


def test_a_bump_binds_the_pool_and_its_own_node_at_once() -> None:
    assert small(bump(1, 100.0), served(99.9, (0, 0, 0), tier="pool")) == []
    assert small(bump(1, 100.0), served(100.01, (0, 0, 0), tier="pool")) == ["stale"]
    assert small(bump(1, 100.0, node="a"), served(99.9, (0, 0, 0))) == []
    assert small(bump(1, 100.0, node="a"), served(100.01, (0, 0, 0))) == ["stale"]


def test_what_is_not_confirmed_binds_its_own_life_alone() -> None:
    unconfirmed = bump(1, 100.0, node="a", confirmed=False)
    assert small(unconfirmed, served(200.0, (0, 0, 0), node="b")) == []
    assert small(unconfirmed, served(200.0, (0, 0, 0), boot=2)) == []
    assert small(unconfirmed, served(200.0, (0, 0, 0))) == ["stale"]


def test_what_failed_binds_nobody() -> None:
    assert small(bump(1, None, node="a"), served(200.0, (0, 0, 0))) == []


def test_the_newest_of_several_bumps_binds() -> None:
    bumps = [bump(2, 101.0), bump(1, 102.0), bump(3, 120.0)]
    assert small(*bumps, served(110.0, (0, 1, 0))) == ["stale"]
    assert small(*bumps, served(110.0, (0, 2, 0))) == []
    assert small(*bumps, served(126.0, (0, 2, 0))) == ["stale"]


def test_a_pause_does_not_count_against_a_deadline() -> None:
    life = [Life("a", 1, 0.0), Over("a", 1, 100.0)]
    call = [Call("a", 1, 1, "admit", 10.0, 1.0), Done("a", 1, 1, 14.0)]
    assert small(*life, *call) == ["deadline"]
    assert small(*life, *call, Fault("a", "pause", 10.5, 13.9)) == []
    assert small(*life, *call, Fault("b", "pause", 10.5, 13.9)) == ["deadline"]
    assert small(*life, *call, Fault("a", "pause", 13.5, 20.0)) == ["deadline"]


def test_the_checker_takes_nothing_of_the_product() -> None:
    code = "import sys, tests.pool.checker; sys.exit(any(name.split('.')[0] == 'tenure' for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
