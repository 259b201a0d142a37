"""What the steps of a program choose from: identities, prompts, extra keys and all that a request may ask for.
Used by the operations; it calls neither manager."""

from __future__ import annotations

from typing import Any

from tenure import Identity, PriorityRange, Retention

from .program import IDENTITIES, STEMS, Choices
from .records import FOR_EVER, Range, Wishes
from .subject import Running, Subject


def chosen(subject: Subject, pick: Choices) -> tuple[int, Running]:
    """One of the running sequences, and its place among them."""
    number = pick.below(len(subject.running))
    return number, subject.running[number]


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
    return {0: {0: b"x"}, 1: {1: b"y"}, 2: {0: b"x", 1: b"xy"}}.get(23 - pick.below(24), {})


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


def name(who: Identity) -> str:
    return "public" if who.public else f"{who.tenant}/{who.weights!r}"


def told(asked: dict[str, Any]) -> str:
    return " ".join(f"{key}={value!r}" for key, value in asked.items())
