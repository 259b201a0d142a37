"""What a step of a program may do: each operation reads its choices, does it on the manager and on the reference, and compares what
the two return. It tells in a line what it did; None: there was nothing to do it on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenure import Identity, Lease, PriorityRange, Quota, Retention, Why
from tenure.errors import StaleHandleError

from .comparison import same
from .program import IDENTITIES, STEMS, TENANTS, Choices
from .records import FOR_EVER, Disagreement, Range, Reason, Wishes
from .subject import Leased, Running, Subject, params_of, policy_of

Operation = Callable[[Subject, Choices], str | None]



def nothing(subject: Subject, pick: Choices) -> str | None:
    return None


# -- requests


def admit(subject: Subject, pick: Choices) -> str | None:
    """A request is admitted, with some of all that may be asked for."""
    if len(subject.running) > subject.setting.options.frames // 5:
        return release(subject, pick)
    who = identity(subject, pick)
    tokens = prompt(subject, pick)
    wishes, asked = wishes_of(subject, pick, tokens)
    space = subject.space(who)
    wishes = limited(subject, wishes, tokens)
    done = subject.both(lambda: subject.kv.sequence(tokens, who, **asked), lambda: subject.mine.admit(space, tokens, wishes))
    line = f"admit {name(who)} {tokens} {told(asked)}"
    if done is None:
        return line + " -> refused"
    theirs, admitted = done
    subject.running.append(Running(theirs, admitted.chain))
    same("hit tokens", theirs.hit_tokens, admitted.hit_tokens)
    same_reason(subject, who, theirs.why, admitted.reasons)
    return line + f" -> sequence {len(subject.running) - 1}, {theirs.hit_tokens} tokens hit"


def finish(subject: Subject, pick: Choices) -> str | None:
    """A whole request at once: admitted and released."""
    before = len(subject.running)
    line = admit(subject, pick)
    if len(subject.running) <= before:
        return line
    both = subject.running.pop()
    subject.both(both.theirs.release, lambda: subject.mine.release(both.mine, False))
    remember(subject, both)
    return f"{line}; released"


def append(subject: Subject, pick: Choices) -> str | None:
    if not subject.running:
        return None
    number, both = chosen(subject, pick)
    tokens = [1 + pick.below(2) for _ in range(1 + pick.below(2 * subject.setting.options.block_size + 1))]
    if pick.below(32) == 31:
        tokens = []
    done = subject.both(lambda: both.theirs.append(tokens), lambda: subject.mine.append(both.mine, tokens))
    line = f"append {tokens} to {number}"
    if done is None:
        return line + " -> refused"
    theirs, mine = done
    copies = [(source.frame, target.frame, count) for source, target, count in mine.copies]
    same("copies of an append", [tuple(copy) for copy in theirs.copies], copies)
    same("frames of an append", theirs.frames.tolist(), [node.frame for node in mine.added])
    same("rewrites of an append", [tuple(rewrite) for rewrite in theirs.rewrites], mine.rewrites)
    return line


def seal(subject: Subject, pick: Choices) -> str | None:
    if not subject.running:
        return None
    number, both = chosen(subject, pick)
    upto = len(both.mine.tokens) + 1 - pick.below(len(both.mine.tokens) + 2)
    done = subject.both(lambda: both.theirs.seal(upto), lambda: subject.mine.seal(both.mine, upto))
    if done is not None:
        same("rewrites of a seal", [tuple(rewrite) for rewrite in done[0]], done[1])
    return f"seal {number} up to {upto}{'' if done else ' -> refused'}"


def fork(subject: Subject, pick: Choices) -> str | None:
    if not subject.running or len(subject.running) > subject.setting.options.frames // 4:
        return None
    number, both = chosen(subject, pick)
    done = subject.both(both.theirs.fork, lambda: subject.mine.fork(both.mine))
    assert done is not None
    subject.running.append(Running(*done))
    return f"fork {number} -> sequence {len(subject.running) - 1}"


def truncate(subject: Subject, pick: Choices) -> str | None:
    if not subject.running:
        return None
    number, both = chosen(subject, pick)
    length = pick.below(len(both.mine.tokens) + 2)
    done = subject.both(lambda: both.theirs.truncate(length), lambda: subject.mine.truncate(both.mine, length))
    return f"truncate {number} to {length}{'' if done else ' -> refused'}"


def copied(subject: Subject, pick: Choices) -> str | None:
    if not subject.running:
        return None
    number, both = chosen(subject, pick)
    subject.both(both.theirs.copied, lambda: subject.mine.copied(both.mine))
    return f"copied {number}"


def release(subject: Subject, pick: Choices) -> str | None:
    return end(subject, pick, abort=False)


def abort(subject: Subject, pick: Choices) -> str | None:
    return end(subject, pick, abort=True)


def end(subject: Subject, pick: Choices, abort: bool) -> str | None:
    if not subject.running:
        return None
    number, both = chosen(subject, pick)
    subject.both(both.theirs.abort if abort else both.theirs.release, lambda: subject.mine.release(both.mine, abort))
    del subject.running[number]
    remember(subject, both)
    return f"{'abort' if abort else 'release'} {number}"


def stale(subject: Subject, pick: Choices) -> str | None:
    """A handle that has ended is refused, whatever it is used for."""
    if not subject.released:
        return None
    gone = subject.released[pick.below(len(subject.released))].theirs
    uses: list[Callable[[], Any]] = [
        gone.release,
        gone.abort,
        gone.fork,
        gone.copied,
        gone.seal,
        lambda: gone.append([1]),
        lambda: gone.truncate(0),
        lambda: gone.block_table,
        lambda: gone.num_tokens,
        lambda: subject.kv.resume(gone.handle),
    ]
    subject.both(uses[pick.below(len(uses))], refuse_stale)
    return "a stale handle is used"


# -- look-ups and leases


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

    done = subject.both(theirs, lambda: mine.lease(kind, space, tokens, extras, owner, deadline))
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


# -- what an operator does


def invalidate(subject: Subject, pick: Choices) -> str | None:
    fields: dict[str, Any] = {}
    if pick.below(2):
        fields["weights"] = ("old", "new")[pick.below(2)]
    if not fields or pick.below(2):
        fields["tenant"] = TENANTS[pick.below(3)]

    def mine() -> int:
        count = 0
        for space, who in enumerate(subject.identities):
            if all(getattr(who, field) == value for field, value in fields.items()):
                subject.mine.invalidate(space)
                count += 1
        return count

    done = subject.both(lambda: subject.kv.invalidate(**fields), mine)
    assert done is not None
    same("namespaces invalidated", *done)
    return f"invalidate {fields} -> {done[0]}"


def sweep(subject: Subject, pick: Choices) -> str | None:
    before = len(subject.mine.nodes)
    done = subject.both(subject.kv.sweep, subject.mine.sweep)
    assert done is not None
    same("blocks swept, and expired in the same step", done[0], before - len(subject.mine.nodes))
    return f"sweep -> {done[0]}"


def clear(subject: Subject, pick: Choices) -> str | None:
    before = len(subject.mine.nodes)
    done = subject.both(subject.kv.clear, subject.mine.clear)
    assert done is not None
    same("blocks cleared, and expired in the same step", done[0], before - len(subject.mine.nodes))
    return f"clear -> {done[0]}"


def set_quota(subject: Subject, pick: Choices) -> str | None:
    """Floors that cannot be promised are refused, and so is what lies outside them later."""
    subject.both(subject.kv.leases, lambda: None)  # quotas look at no clock
    tenant = TENANTS[pick.below(subject.setting.identities // 2)]
    cap, floor = (1.0, 0.75, 0.5, 1.0)[pick.below(4)], (0.0, 0.25, 0.125, 0.5)[pick.below(4)]
    quota = Quota(min(floor, cap), cap, (1.0, 2.0, 0.5)[pick.below(3)], (1.0, 0.5, 0.25, 0.0)[pick.below(4)])
    number = subject.tenant(tenant)

    def theirs() -> None:
        subject.kv.tenants[tenant] = quota

    done = subject.both(theirs, lambda: subject.mine.set_quota(number, quota.floor, quota.cap, quota.weight, quota.pins))
    return f"quota of {tenant}: {quota}{'' if done else ' -> refused'}"


def set_params(subject: Subject, pick: Choices) -> str | None:
    params = params_of(subject.mine.policy_name, pick.below(3))
    if not params:
        return None
    subject.both(lambda: subject.kv.set_params(**params), lambda: subject.mine.set_params(params))
    return f"parameters {params}"


def set_policy(subject: Subject, pick: Choices) -> str | None:
    """Another policy takes over the live pool."""
    names = ("lru", "lfu", "fifo", "slru", "s3fifo", "arc", "gdsf", "cost", "priority", "custom")
    chosen = names[pick.below(len(names))]
    params, policy = params_of(chosen, pick.below(3)), policy_of(chosen)
    kv = subject.kv
    subject.both(lambda: kv.set_policy(policy, **params), lambda: subject.mine.set_policy(policy, kv.params))
    return f"policy {chosen} {params}"


OPERATIONS: list[tuple[Operation, int]] = [
    (nothing, 1),
    (admit, 24),
    (finish, 14),
    (append, 14),
    (release, 13),
    (abort, 3),
    (seal, 5),
    (fork, 5),
    (truncate, 5),
    (copied, 3),
    (match, 3),
    (lookup, 3),
    (pin, 4),
    (protect, 2),
    (release_lease, 5),
    (release_kept, 1),
    (unknown_lease, 1),
    (invalidate, 2),
    (sweep, 1),
    (clear, 1),
    (set_quota, 3),
    (set_params, 1),
    (stale, 2),
]
"""each with how often it is drawn"""

POLICY_CHANGES: list[tuple[Operation, int]] = [(set_policy, 8), (set_params, 4)]


# -- choices


def chosen(subject: Subject, pick: Choices) -> tuple[int, Running]:
    number = pick.below(len(subject.running))
    return number, subject.running[number]


def remember(subject: Subject, both: Running) -> None:
    """Keeps the last few handles that have ended."""
    subject.released = [*subject.released[-3:], both]


def identity(subject: Subject, pick: Choices) -> Identity:
    """One of those that take part; the first more often than the last."""
    count = subject.setting.identities
    return IDENTITIES[min(pick.below(count), pick.below(count))]


def prompt(subject: Subject, pick: Choices) -> list[int]:
    """The beginning of one of a few stems, or of what a running sequence has; and a few tokens more."""
    which = pick.below(len(STEMS) + 2)
    running = subject.running
    stem = STEMS[which % len(STEMS)] if which < len(STEMS) or not running else running[which % len(running)].mine.tokens
    length = pick.below(4 * subject.setting.options.block_size + 1)
    return stem[:length] + [1 + pick.below(2) for _ in range(pick.below(4))]


def extras_of(pick: Choices) -> dict[int, bytes]:
    """Mostly none; else an extra key for one block or for two."""
    return {0: {0: b"x"}, 1: {1: b"y"}, 2: {0: b"x", 1: b""}}.get(23 - pick.below(24), {})


def wishes_of(subject: Subject, pick: Choices, tokens: list[int]) -> tuple[Wishes, dict[str, Any]]:
    """What a request asks for, for the reference and as arguments of the manager's."""
    asked: dict[str, Any] = {}
    wishes = Wishes()
    if pick.below(3):
        asked["written"] = wishes.written = True
    choose_priority(pick, wishes, asked, len(tokens))
    if expire := (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 3.0, 12.0)[pick.below(8)]:
        asked["expire_after"] = wishes.expire_after = expire
    if protect := (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 2.0, 6.0)[pick.below(8)]:
        asked["protect_for"] = wishes.protect_for = protect
    if anchor := (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 3.0, 20.0)[pick.below(8)]:
        asked["anchor_for"] = wishes.anchor_for = anchor
        asked["session"] = wishes.session = ("morning", "evening")[pick.below(2)]
    if limit := (0, 0, 0, 0, 0, 0, 1, 2)[pick.below(8)]:
        asked["max_hit"] = wishes.max_hit = len(tokens) * limit // 3
    if extras := extras_of(pick):
        asked["extra_keys"] = wishes.extras = extras
    return wishes, asked


def choose_priority(pick: Choices, wishes: Wishes, asked: dict[str, Any], length: int) -> None:
    """None, one for the whole request, or ranges with and without an end in time."""
    kind, level = pick.below(5), (50, 10, 80)[pick.below(3)]
    if kind < 2:
        return
    if kind == 2:
        asked["priority"] = level
        wishes.ranges, wishes.decode = (Range(0, FOR_EVER, level, None),), (level, None)
        return
    duration = (2.0, None)[kind - 3]
    half = max(1, length // 2)
    asked["priority"] = Retention(
        (PriorityRange(0, half, 90, duration), PriorityRange(half, None, level, 5.0)),
        decode_priority=level,
        decode_duration=duration,
    )
    wishes.ranges = (Range(0, half, 90, duration), Range(half, FOR_EVER, level, 5.0))
    wishes.decode = (level, duration)


def limited(subject: Subject, wishes: Wishes, tokens: list[int]) -> Wishes:
    """A manager that always computes the last token anew hits one token less."""
    if subject.setting.recompute_last:
        wishes.max_hit = min(wishes.max_hit, max(len(tokens) - 1, 0))
    return wishes


def refuse_stale() -> None:
    raise StaleHandleError("ended")


def row_of(row: Any) -> tuple[Any, ...]:
    return row.kind, row.tenant, row.owner, row.blocks, FOR_EVER if row.deadline is None else row.deadline


def same_reason(subject: Subject, who: Identity, why: Why, reasons: list[Reason]) -> None:
    """The reason that was told must be one of the right ones."""
    rights = []
    for r in reasons:
        differs = () if r.space is None else who.differs(subject.identities[r.space])
        rights.append((r.reason, r.at, r.when, r.policy, r.tenant, differs))
    told = (why.reason.value, why.at, why.when, why.policy, why.tenant, why.differs)
    if told not in rights:
        raise Disagreement(f"the reason is told as {told}, it should be one of {rights}")


def name(who: Identity) -> str:
    return "public" if who.public else f"{who.tenant}/{who.weights}"


def told(asked: dict[str, Any]) -> str:
    return " ".join(f"{key}={value}" for key, value in asked.items())
