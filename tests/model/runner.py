"""Runs a program on the manager and the reference side by side, compares everything after every step, and makes a failing program
small. Called by the tests."""

from __future__ import annotations

from collections.abc import Callable

from tenure import BlockManager

from .comparison import compare, compare_endings, same
from .operations import OPERATIONS, POLICY_CHANGES, Operation
from .program import HEAD, Choices, join, setting_of, steps_of
from .records import DisagreementError
from .subject import Subject, subject_of

PAUSES = (0.0,) * 10 + (0.5, 1.0, 1.0, 2.0, 4.0, 9.0)
"""seconds that pass before a step"""

ROUNDS = 6
"""of making a failing program smaller"""

Build = Callable[..., BlockManager]


def run(data: bytes, policy: str, *, changing: bool = False, build: Build = BlockManager) -> Subject:
    """Runs a whole program; raises DisagreementError at the first step after which the two differ."""
    subject = subject_of(setting_of(data), policy, build)
    operations = OPERATIONS + POLICY_CHANGES if changing else OPERATIONS
    table = [operation for operation, weight in operations for _ in range(weight)]
    try:
        for step in steps_of(data):
            do(subject, table, step)
        drain(subject)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        again = f'run(bytes.fromhex("{join(data[:HEAD], steps_of(data)).hex()}"), {policy!r}, changing={changing})'
        raise DisagreementError("\n".join([said, describe(subject), *subject.story, "  and the step after", again])) from error
    finally:
        for both in subject.running:
            both.theirs._open = False  # nobody is to release what a failed program has left
    return subject


def do(subject: Subject, table: list[Operation], step: bytes) -> None:
    """One step: time passes, one operation is done on both, and all is compared."""
    pause = PAUSES[step[1] % len(PAUSES)]
    subject.clock[0] += pause
    operation = table[step[0] % len(table)]
    said = operation(subject, Choices(step[2:]))
    if said is None:
        subject.both(lambda: None, lambda: None)  # time passes all the same
    subject.story.append(f"  t={subject.clock[0]:g} {said or 'nothing'}")
    compare(subject)


def drain(subject: Subject) -> None:
    """When every sequence and lease has ended and all is cleared, every frame is free."""
    for both in list(subject.running):
        subject.both(both.theirs.release, lambda both=both: subject.mine.release(both.mine, False))  # type: ignore[misc]
        subject.running.remove(both)
        compare(subject)
    compare_endings(subject)
    for lease in subject.kv.leases():
        subject.kv.release_lease(lease.id)
    subject.kv.clear()
    same("free frames at the end", subject.kv.check().free, subject.kv.frames)


def describe(subject: Subject) -> str:
    """The manager's settings."""
    return f"  {subject.setting.options} policy={subject.kv.policy} params={subject.kv.params}"


def reduced(data: bytes, fails: Callable[[bytes], bool]) -> bytes:
    """A program that still fails, with few steps and many zero bytes."""
    for _ in range(ROUNDS):
        smaller = simplified(shortened(data, fails), fails)
        if smaller == data:
            break
        data = smaller
    return data


def shortened(data: bytes, fails: Callable[[bytes], bool]) -> bytes:
    """Without the steps that it fails without: half of them at a time, then a quarter, and so on."""
    head, steps = data[:HEAD], steps_of(data)
    chunk = max(1, len(steps) // 2)
    while chunk:
        at = 0
        while at < len(steps):
            fewer = steps[:at] + steps[at + chunk :]
            if fails(join(head, fewer)):
                steps = fewer
            else:
                at += chunk
        chunk //= 2
    return join(head, steps)


def simplified(data: bytes, fails: Callable[[bytes], bool]) -> bytes:
    """With bytes that are zero, or small, where it fails with those too."""
    simple = bytearray(data)
    for at, byte in enumerate(data):
        for value in (0, byte & 7, byte & 63):
            simple[at] = value
            if value < byte and fails(bytes(simple)):
                break
            simple[at] = byte
    return bytes(simple)


def trouble(data: bytes, policy: str, *, changing: bool = False, build: Build = BlockManager) -> list[str]:
    """Runs a program; if it fails, the report on a small one that fails too."""

    def failure(program: bytes) -> str | None:
        try:
            run(program, policy, changing=changing, build=build)
        except DisagreementError as error:
            return str(error)
        return None

    report = failure(data)
    if report is None:
        return []
    return [failure(reduced(data, lambda smaller: failure(smaller) is not None)) or report]
