"""Everything that the manager tells of itself against what the reference works out. Called by the runner after every step, and
by the operations for what a call returns; it changes neither."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tenure import Identity, Why, _core

from .records import DisagreementError, Node, Reason
from .subject import Subject

ACTIVE, SEALED, CACHED = (_core.STATES.index(name) for name in ("Active", "Sealed", "Cached"))
COUNTED = (
    *("requests", "refused", "blocks_asked", "blocks_hit", "tokens_asked", "tokens_hit"),
    *("evicted", "evicted_by_others", "expired", "invalidated", "duplicates", "copies"),
)


def compare(subject: Subject) -> None:
    """Raises DisagreementError, naming the first thing that differs."""
    kv, mine, now = subject.kv, subject.mine, subject.clock[0]
    kv.check()
    refs, pins, holds = mine.users()
    busy = refs.keys() | pins.keys() | holds.keys()
    parents = {node.parent for node in mine.nodes if node.linked}
    leaves = {node for node in mine.nodes if node.sealed and node not in busy and node not in parents}
    compare_blocks(subject, refs, pins, holds, leaves)
    compare_tenants(subject, busy, pins, leaves, now)
    compare_sequences(subject)
    compare_leases(subject, now)


def compare_blocks(subject: Subject, refs: Counter[Node], pins: Counter[Node], holds: Counter[Node], leaves: set[Node]) -> None:
    """Every frame: which block, in which state, used by how many, with which tokens below which parent."""
    core, mine = subject.kv._core, subject.mine
    expected: list[Any] = [None] * mine.options.frames
    counts = [mine.options.frames - len(mine.nodes), 0, 0, 0, 0]
    for node in mine.nodes:
        state = ACTIVE if not node.sealed else CACHED if node.rested else SEALED
        counts[state] += 1
        hittable = node.linked and not node.dead
        place = (node.depth, -1 if node.parent is None else node.parent.frame) if hittable else (0, -1)
        expected[node.frame] = (
            *node.record,
            state,
            node.frame,
            refs[node],
            pins[node],
            holds[node],
            *place,
            node.root.tenant,
            node.uses,
            node.last,
            node in leaves,
            hittable,
            node.tokens,
        )
    rows = [core.block(0, frame) for frame in range(mine.options.frames)]
    told = [row if row is None or row[13] else (*row[:7], 0, -1, *row[9:]) for row in rows]
    if told != expected:
        for frame, (got, should) in enumerate(zip(told, expected, strict=True)):
            if got != should:
                raise DisagreementError(f"frame {frame} (as in BlockInfo): the manager tells\n  {got}, it should be\n  {should}")
    same("frames by state", core.states(), counts)


def compare_tenants(subject: Subject, busy: set[Node], pins: Counter[Node], leaves: set[Node], now: float) -> None:
    """Each tenant's frames and counters, and the order in which its blocks would go."""
    kv, mine = subject.kv, subject.mine
    same("tenants", kv.tenants.names, [tenant.name for tenant in mine.tenants])
    for number, tenant in enumerate(mine.tenants):
        row = kv._core.tenant(number, 0)
        own = [node for node in mine.nodes if node.root.tenant == number]
        told = [row["used"], row["busy"], row["pinned"], row["floor"], row["cap"], *(row[name] for name in COUNTED)]
        floor, cap = mine.quota(number)
        counts = tenant.counts
        expected = [len(own), sum(n in busy for n in own), sum(n in pins for n in own), floor, cap]
        expected += [counts.get(name, 0) for name in COUNTED]
        if told != expected:
            names = ("used", "busy", "pinned", "floor", "cap", *COUNTED)
            wrong = {n: (got, should) for n, got, should in zip(names, told, expected, strict=True) if got != should}
            raise DisagreementError(f"tenant {tenant.name}: (told, expected) differ in {wrong}")
        policy = mine.policies[number]
        queue = [node for node in own if node in leaves]
        victims = kv._core.order(0, number, now).tolist()
        if policy.definite:
            same(f"victims of {tenant.name}", victims, [node.frame for node in policy.order(queue, mine.now)])
        else:
            same(f"victims of {tenant.name}, in any order", sorted(victims), sorted(node.frame for node in queue))


def compare_sequences(subject: Subject) -> None:
    """Each running sequence's table, lengths and copies."""
    core = subject.kv._core
    for number, both in enumerate(subject.running):
        handle, mine = both.theirs.handle, both.mine
        length, written, matched, _, _ = core.sequence(handle)
        same(f"tokens of sequence {number}", length, len(mine.tokens))
        same(f"written tokens of sequence {number}", written, mine.written)
        same(f"matched blocks of sequence {number}", matched, mine.matched)
        same(f"table of sequence {number}", core.table(handle).tolist(), [node.frame for node in mine.table])
        copies = [(source.frame, target.frame, count) for source, target, count in mine.copies]
        same(f"copies of sequence {number}", core.copies(handle), copies)


def compare_leases(subject: Subject, now: float) -> None:
    """All leases in force, and the frames of those that the program has."""
    kv, mine = subject.kv, subject.mine
    told = sorted((kind, tenant, blocks, deadline, owner) for _, kind, tenant, blocks, deadline, owner in kv._core.leases(now))
    kinds = _core.LEASES
    expected = sorted((kinds.index(c.kind), c.tenant, len(c.path), c.deadline, c.owner) for c in mine.claims)
    same("leases", told, expected)
    for leased in subject.leased:
        if leased.mine in mine.claims:
            same(
                f"frames of lease {leased.mine.owner}",
                leased.theirs.frames.tolist(),
                [n.frame for n in leased.mine.path],
            )
    pinned, refused, _, running = kv._core.totals()
    same(
        "pinned frames, refused leases, sequences",
        (pinned, refused, running),
        (len(mine.pinned()), mine.refused_leases, len(mine.chains)),
    )


def compare_endings(subject: Subject) -> None:
    """The counters of reasons against the reasons that were told."""
    for number, tenant in enumerate(subject.mine.tenants):
        told = {reason: count for reason, count in subject.kv._core.tenant(number, 0)["endings"].items() if count}
        same(f"endings of {tenant.name}", told, dict(subject.endings[tenant.name]))


def same(what: str, told: Any, expected: Any) -> None:
    if told != expected:
        raise DisagreementError(f"{what}: the manager tells {told}, it should be {expected}")


def same_reason(subject: Subject, who: Identity, why: Why, reasons: list[Reason]) -> None:
    """The reason that was told must be one of the right ones."""
    rights = []
    for r in reasons:
        differs = () if r.space is None else who.differs(subject.identities[r.space])
        rights.append((r.reason, r.at, r.when, r.policy, r.tenant, differs))
    told = (why.reason.value, why.at, why.when, why.policy, why.tenant, why.differs)
    if told not in rights:
        raise DisagreementError(f"the reason is told as {told}, it should be one of {rights}")
