"""Proves from a history, and from nothing else, that nodes which share a pool kept their word; each finding names its lines.
Used at the end of every run against faults; imports nothing of the product."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.pool.content import links, looks_like, read_stamp
from tests.pool.history import Bump, Call, Done, Fault, Life, Line, Over, Phase, Request

KINDS = {
    "stale": "a block of a superseded epoch was served later than is allowed",
    "isolation": "a block was served to another tenant or namespace",
    "bytes": "bytes were served that the request's namespace and tokens do not determine",
    "deadline": "a call took longer than its deadline, or never came back",
    "raised": "a call raised what it must not raise",
    "died": "a process ended that nobody had killed",
    "recovery": "after the faults the hit rate did not come back, or too little was served to tell",
}


class Finding(NamedTuple):
    """Something that must not be, and the lines that show it."""

    kind: str
    says: str
    proof: tuple[Line, ...]

    def __str__(self) -> str:
        return "\n    ".join([f"{self.kind}: {self.says}", *map(str, self.proof)])


@dataclass(frozen=True)
class Rules:
    """What was promised. Seconds; blocks of `size` tokens and `nbytes` bytes.

    bound: how long after a bump was acknowledged (and confirmed) a request may still begin and be served what it superseded.
    pool_bound: the same for blocks that came from the pool for this very request. own_bound: the same on the node that bumped,
    where a bump counts without being confirmed. allowance: what a busy machine may add to a deadline. recovery: the least part of
    the hit rate of the phase "before" that the phase "after" must have. least: requests that each of the two needs.
    """

    size: int
    nbytes: int
    bound: float
    pool_bound: float = 0.0
    own_bound: float = 0.0
    allowance: float = 0.25
    recovery: float = 0.8
    least: int = 50
    pools: frozenset[str] = field(default=frozenset({"pool"}))


def check(lines: Iterable[Line], rules: Rules) -> list[Finding]:
    """Everything that the history has against the product; nothing when it kept its word."""
    by_kind: dict[type[Any], list[Line]] = defaultdict(list)
    for line in lines:
        by_kind[type(line.record)].append(line)
    lives = _Lives(by_kind)
    return [
        *_served(by_kind, rules),
        *_calls(by_kind, lives, rules),
        *lives.unexplained(),
        *_recovery(by_kind, rules),
    ]


def summary(lines: Iterable[Line]) -> Counter[str]:
    """How much there was to find something in: requests, hits by tier, bumps that bind, faults by what was done."""
    told: Counter[str] = Counter()
    for _, record in lines:
        match record:
            case Request():
                told["requests"] += 1
                told.update(f"hits from {hit[0]}" for hit in record.hits)
            case Bump() if record.acknowledged is not None:
                told["bumps confirmed" if record.confirmed else "bumps acknowledged"] += 1
            case Fault():
                told[f"fault {record.what}" if record.error is None else f"fault {record.what} failed"] += 1
            case Call():
                told[f"calls {record.what}"] += 1
            case Life():
                told["lives"] += 1
    return told


# -- what was served


def _served(by_kind: dict[type[Any], list[Line]], rules: Rules) -> Iterator[Finding]:
    everywhere, at_home = _Epochs(), _Epochs()
    for line in by_kind[Bump]:
        bump: Bump = line.record
        if bump.acknowledged is None:
            continue
        at_home.add((bump.family, bump.node, bump.boot), bump.acknowledged, bump.label, line)
        if bump.confirmed:
            everywhere.add((bump.family,), bump.acknowledged, bump.label, line)
    for line in by_kind[Request]:
        request: Request = line.record
        names = links(request.space, request.tokens, rules.size)
        for depth, (tier, said, digest) in enumerate(request.hits):
            stamp = read_stamp(said)
            at = f"block {depth} from {tier}"
            if stamp is None or depth >= len(names):
                yield Finding("bytes", f"{at} is no block of the prompt: {said[:64]!r}", (line,))
                continue
            if stamp.space != request.space:
                yield Finding("isolation", f"{at} is of {stamp.space}, served to {request.space}", (line,))
                continue
            if (said, digest) != looks_like(request.space, stamp.labels, depth, names[depth], rules.nbytes):
                yield Finding("bytes", f"{at} has bytes that its tokens do not give", (line,))
            bound = rules.pool_bound if tier in rules.pools else rules.bound
            for family, label in zip(request.space.families, stamp.labels, strict=True):
                for least, when in (
                    (everywhere.floor((family,), request.start - bound), bound),
                    (at_home.floor((family, request.node, request.boot), request.start - rules.own_bound), rules.own_bound),
                ):
                    if least is not None and label < least.label:
                        late = request.start - least.acknowledged
                        yield Finding(
                            "stale",
                            f"{at} has label {label} of {family}, {late:.3f} s after {least.label} was acknowledged "
                            f"(allowed: {when:g} s)",
                            (line, least.line),
                        )
                        break


class _Floor(NamedTuple):
    acknowledged: float
    label: int
    line: Line


class _Epochs:
    """Of each family, the highest label acknowledged before a moment."""

    def __init__(self) -> None:
        self._bumps: dict[tuple[Any, ...], list[_Floor]] = defaultdict(list)
        self._floors: dict[tuple[Any, ...], tuple[list[float], list[_Floor]]] = {}

    def add(self, key: tuple[Any, ...], acknowledged: float, label: int, line: Line) -> None:
        self._bumps[key].append(_Floor(acknowledged, label, line))

    def floor(self, key: tuple[Any, ...], before: float) -> _Floor | None:
        if key not in self._floors:
            rising: list[_Floor] = []
            for bump in sorted(self._bumps[key], key=lambda bump: bump.acknowledged):
                if not rising or bump.label > rising[-1].label:
                    rising.append(bump)
            self._floors[key] = ([bump.acknowledged for bump in rising], rising)
        times, rising = self._floors[key]
        earlier = bisect_left(times, before)
        return rising[earlier - 1] if earlier else None


# -- calls and processes


def _calls(by_kind: dict[type[Any], list[Line]], lives: _Lives, rules: Rules) -> Iterator[Finding]:
    ended = {(line.record.node, line.record.boot, line.record.op): line for line in by_kind[Done]}
    for line in by_kind[Call]:
        call: Call = line.record
        done = ended.get((call.node, call.boot, call.op))
        end = lives.end(call.node, call.boot) if done is None else done.record.end
        took = end - call.start - lives.paused(call.node, call.start, end)
        proof = (line,) if done is None else (line, done)
        if took > call.deadline + rules.allowance:
            how = f"took {took:.3f} s" if done is not None else f"had not come back after {took:.3f} s"
            yield Finding("deadline", f"{call.what} on {call.node} {how} of {call.deadline:g} s", proof)
        if done is not None and done.record.error is not None:
            yield Finding("raised", f"{call.what} on {call.node} raised {done.record.error}", proof)


class _Lives:
    """When each process of each node lived, and stood still, by what was done to it."""

    def __init__(self, by_kind: dict[type[Any], list[Line]]) -> None:
        self._lives = sorted(by_kind[Life], key=lambda line: (line.record.node, line.record.boot))
        self._over = {(line.record.node, line.record.boot): line.record.end for line in by_kind[Over]}
        self._paused: dict[str, list[Fault]] = defaultdict(list)
        self._killed: dict[tuple[str, int], float] = {}
        last = -math.inf
        for line in by_kind[Fault]:
            fault: Fault = line.record
            last = max(last, fault.end)
            if fault.what == "pause":
                self._paused[fault.target].append(fault)
            elif fault.what == "kill":
                born = [life.record for life in self._lives if life.record.node == fault.target]
                alive = [life.boot for life in born if life.start <= fault.start]
                if alive:
                    self._killed[fault.target, max(alive)] = fault.start
        for kind in (Phase, Done, Request, Over):
            last = max([last, *(line.record.end for line in by_kind[kind])])
        self._last = last

    def end(self, node: str, boot: int) -> float:
        """When a process ended; the end of the history for one that nothing is known of."""
        key = (node, boot)
        return self._over.get(key, self._killed.get(key, self._last))

    def paused(self, node: str, start: float, end: float) -> float:
        """For how much of a time a node's process stood still."""
        return sum(max(0.0, min(end, fault.end) - max(start, fault.start)) for fault in self._paused[node])

    def unexplained(self) -> Iterator[Finding]:
        for line in self._lives:
            key = (line.record.node, line.record.boot)
            if key not in self._over and key not in self._killed:
                yield Finding("died", f"process {key[1]} of {key[0]} neither ended as told nor was killed", (line,))


# -- afterwards


def _recovery(by_kind: dict[type[Any], list[Line]], rules: Rules) -> Iterator[Finding]:
    rates: dict[str, float] = {}
    phases = [line for line in by_kind[Phase] if line.record.name in ("before", "after")]
    for line in phases:
        phase: Phase = line.record
        within = [request for _, request in by_kind[Request] if phase.start <= request.start and request.end <= phase.end]
        if len(within) < rules.least:
            says = f"{len(within)} requests in the phase {phase.name!r}: at least {rules.least} are needed"
            yield Finding("recovery", says, (line,))
        else:
            asked = sum(len(request.tokens) // rules.size for request in within)
            rates[phase.name] = sum(len(request.hits) for request in within) / max(asked, 1)
    if {line.record.name for line in phases} != {"before", "after"}:
        yield Finding("recovery", 'a history needs the phases "before" and "after"', tuple(phases))
    elif len(rates) == 2 and rates["after"] < rules.recovery * rates["before"]:
        says = f"hit rate {rates['before']:.3f} before, {rates['after']:.3f} after: at least {rules.recovery:g} of it is needed"
        yield Finding("recovery", says, tuple(phases))
