"""Operations on leases: look-ups, pins, protection, their release; and matching, which takes none. Each does the same on the
manager and on the reference, compares what the two return, and tells in a line what it did."""

from __future__ import annotations

from typing import Any

from tenure import Lease

from .choices import extras_of, identity, limited, name, prompt
from .comparison import same, same_reason
from .program import Choices
from .records import FOR_EVER, Wishes
from .requests import refuse_stale
from .subject import Leased, Subject


def match(subject: Subject, pick: Choices) -> str | None:
    who = identity(subject, pick)
    tokens = prompt(subject, pick)
    extras = extras_of(pick)
    space = subject.space(who)

    wishes = limited(subject, Wishes(extras=extras), tokens)
    done = subject.both(
        lambda: subject.kv.match(tokens, who, extra_keys=extras or None),
        lambda: subject.mine.match(space, tokens, wishes),
    )
    line = f"match {name(who)} {tokens} {extras or ''}"
    if done is None:
        return line + " -> refused"
    theirs, found = done
    same("frames of a match", theirs.frames.tolist(), [node.frame for node in found.nodes])
    same_reason(subject, who, theirs.why, found.reasons)
    return line


def lookup(subject: Subject, pick: Choices) -> str | None:
    return lease(subject, pick, "lookup")


def pin(subject: Subject, pick: Choices) -> str | None:
    return lease(subject, pick, "pin")


def protect(subject: Subject, pick: Choices) -> str | None:
    return lease(subject, pick, "protect")


def lease(subject: Subject, pick: Choices, kind: str) -> str | None:
    who = identity(subject, pick)
    tokens = prompt(subject, pick)
    ttl = (3.0, 1.0, 12.0, 0.0)[pick.below(4)]
    extras = {} if kind == "protect" else extras_of(pick)
    owner = f"owner {len(subject.story)}"
    kv, mine, space = subject.kv, subject.mine, subject.space(who)
    forever = kind == "pin" and pick.below(2)
    deadline = FOR_EVER if forever else subject.clock[0] + ttl

    def theirs() -> Lease:
        if kind == "lookup":
            return kv.lookup(tokens, who, owner=owner, ttl=ttl, extra_keys=extras or None)
        if kind == "pin":
            return kv.pin(tokens, who, owner=owner, ttl=None if forever else ttl, extra_keys=extras or None)
        return kv.protect(tokens, who, ttl=ttl, owner=owner)

    wishes = Wishes(extras=extras)
    if kind == "lookup":
        wishes = limited(subject, wishes, tokens)  # it is for a request with these tokens, a pin for those that go beyond
    done = subject.both(theirs, lambda: mine.lease(kind, space, tokens, wishes, owner, deadline))
    line = f"{kind} {name(who)} {tokens} {extras or ''} until {deadline:g}"
    if done is None:
        return line + " -> refused"
    given, claim = done
    subject.leased.append(Leased(given, claim))
    subject.both(lambda: None, lambda: None)  # a lease of no time ends at once
    same("tokens of a lease", given.tokens, len(claim.path) * mine.options.block_size)
    return line + f" -> {given.tokens} tokens, {owner!r}"


def release_lease(subject: Subject, pick: Choices) -> str | None:
    """A lease is released: in force, ended, or ended and released before."""
    if not subject.leased:
        return None
    number = pick.below(len(subject.leased))
    leased = subject.leased[number]
    done = subject.both(leased.theirs.release, lambda: subject.mine.forget(leased.mine))
    assert done is not None
    same("whether the lease was in force", *done)
    subject.both(lambda: leased.theirs.frames, refuse_stale)
    if pick.below(3):
        del subject.leased[number]
    return f"release lease {leased.mine.owner!r} -> {done[0]}"


def release_kept(subject: Subject, pick: Choices) -> str | None:
    """An anchor or a protection that a request left is released by its id, where its row tells which it is."""
    rows = [row for row in subject.kv.leases() if row.kind in ("anchor", "protect")]
    if not rows:
        return None
    row = rows[pick.below(len(rows))]
    found = [
        claim
        for claim in subject.mine.claims
        if (claim.kind, subject.mine.tenants[claim.tenant].name, claim.owner, len(claim.path), claim.deadline) == row_of(row)
    ]
    if len(found) != 1:
        return None
    done = subject.both(lambda: subject.kv.release_lease(row.id), lambda: subject.mine.forget(found[0]))
    assert done is not None
    same("whether the lease was in force", *done)
    return f"release {row.kind} of {row.owner!r}"


def unknown_lease(subject: Subject, pick: Choices) -> str | None:
    """A lease that was never given is an error."""
    if not subject.leased:
        return None
    known = subject.leased[pick.below(len(subject.leased))].theirs.id
    life = 1 << 36
    subject.both(lambda: subject.kv.release_lease(known + (1 + pick.below(2)) * 1000 * life), refuse_stale)
    return "an unknown lease is released"


def row_of(row: Any) -> tuple[Any, ...]:
    return row.kind, row.tenant, row.owner, row.blocks, FOR_EVER if row.deadline is None else row.deadline
