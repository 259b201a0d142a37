"""Operations on requests: admission, growth, forks, release, and handles that have ended. Each does the same on the manager and
on the reference, compares what the two return, and tells in a line what it did; None: there was nothing to do it on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenure.errors import ForeignHandleError, StaleHandleError

from .choices import chosen, identity, limited, name, prompt, told, wishes_of
from .comparison import same, same_reason
from .program import Choices
from .subject import Running, Subject


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
    subject.endings[who.account][theirs.why.reason.value] += 1
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
    written = pick.below(8) != 7
    done = subject.both(
        lambda: both.theirs.append(tokens, written=written), lambda: subject.mine.append(both.mine, tokens, written)
    )
    line = f"append {tokens} to {number}{'' if written else ', not written'}"
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


def foreign(subject: Subject, pick: Choices) -> str | None:
    """So is a handle of another manager."""
    if not subject.running:
        return None
    _, both = chosen(subject, pick)
    other = both.theirs.handle ^ 1 << 24

    def refuse() -> None:
        raise ForeignHandleError("another's")

    subject.both(lambda: subject.kv.release_lease(other) if pick.below(2) else subject.kv.resume(other), refuse)
    return "another manager's handle is used"


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


def remember(subject: Subject, both: Running) -> None:
    """Keeps the last few handles that have ended."""
    subject.released = [*subject.released[-3:], both]


def refuse_stale() -> None:
    raise StaleHandleError("ended")
