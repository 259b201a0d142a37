"""What a turn of the demo came to, as a line of its table and as sentences at the end. `tenure demo` shows them; nothing is
measured or computed here but sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from statistics import median
from typing import NamedTuple

from tenure.ledger import Counts

__all__ = ["TIERS", "Answer", "Turn", "Verdict", "header", "line", "notes", "plain", "summary"]

TIERS = ("device", "host", "disk")
"""Where a prompt's tokens may come from, when nobody says anything else."""
_BEFORE = (("session", 10), ("turn", 4), ("prompt", 6))
_AFTER = (("computed", 8), ("cold", 6), ("warm", 6), ("gain", 6), ("states", 17), ("evicted", 10), ("answer", 8))
"""Columns and their widths, before those of the tiers and after them."""
_NODE = ("node", 4)


class Verdict(str, Enum):
    """What comparing two answers gave."""

    SAME = "same"
    TIE = "tie"
    """a token differs where the logits agree within rounding, and its rival is as likely within that"""
    WRONG = "WRONG"


class Answer(NamedTuple):
    """A comparison: the first token that differs, or whose logits do, and the largest difference of a logit up to there."""

    verdict: Verdict
    at: int
    difference: float


class Turn(NamedTuple):
    """prompt: tokens. reused: tokens by tier. cold, warm: seconds to the first token. counts and swapped: blocks by state.
    evicted: blocks by tier."""

    session: str
    number: int
    prompt: int
    reused: Mapping[str, int]
    cold: float
    warm: float
    counts: Counts
    swapped: int
    evicted: Mapping[str, int]
    answer: Answer
    text: str
    node: str = ""
    """who answered, where there are several"""

    @property
    def computed(self) -> int:
        """Prompt tokens that nobody had."""
        return self.prompt - sum(self.reused.values())


def header(tiers: Sequence[str] = TIERS, *, nodes: bool = False) -> str:
    """The names of the columns. nodes: the first says who answered."""
    columns = _columns(tiers, nodes)
    return _joined([name for name, _ in columns], columns)


def line(turn: Turn, tiers: Sequence[str] = TIERS) -> str:
    """A turn under them."""
    answer = turn.answer
    states = (turn.counts.free, turn.counts.active, turn.counts.sealed, turn.counts.cached, turn.swapped)
    width = _BEFORE[0][1]
    return _joined(
        (
            *([turn.node] if turn.node else []),
            turn.session if len(turn.session) <= width else turn.session[: width - 1] + "~",
            str(turn.number),
            f"{turn.prompt:,}",
            *(f"{turn.reused.get(tier, 0):,}" for tier in tiers),
            f"{turn.computed:,}",
            f"{turn.cold:.2f}",
            f"{turn.warm:.2f}",
            f"{turn.cold / turn.warm:.1f}x",
            "/".join(map(str, states)),
            "/".join(str(turn.evicted.get(tier, 0)) for tier in tiers),
            answer.verdict.value if answer.verdict is Verdict.SAME else f"{answer.verdict.value}@{answer.at}",
        ),
        _columns(tiers, bool(turn.node)),
    )


def notes(tiers: Sequence[str] = TIERS) -> str:
    """What the columns mean."""
    return (
        f"{', '.join(tiers)}: prompt tokens reused from there. cold, warm: seconds to the first token, computed whole by\n"
        "transformers' own cache, and with Tenure. states: blocks free/active/sealed/cached/swapped while the turn's own are in\n"
        f"use. evicted: blocks from {'/'.join(tiers)}. answer: against the cold one, token by token."
    )


def plain(turn: Turn) -> dict[str, object]:
    """A turn as JSON has it."""
    row = turn._asdict() | {"counts": turn.counts._asdict(), "answer": turn.answer._asdict(), "computed": turn.computed}
    if not turn.node:
        del row["node"]
    return row


def summary(turns: Sequence[Turn], tolerance: float, tiers: Sequence[str] = TIERS) -> list[str]:
    """All turns in sentences; there must be one."""
    prompt, computed = sum(turn.prompt for turn in turns), sum(turn.computed for turn in turns)
    reused, evicted = _sums(tiers, [turn.reused for turn in turns]), _sums(tiers, [turn.evicted for turn in turns])
    cold, warm = sum(turn.cold for turn in turns), sum(turn.warm for turn in turns)
    answers = [turn.answer for turn in turns]
    same, ties = (sum(a.verdict is kind for a in answers) for kind in (Verdict.SAME, Verdict.TIE))
    text = [
        f"Reused {prompt - computed:,} of {prompt:,} prompt tokens ({(prompt - computed) / prompt:.1%}): "
        f"{_listed(reused)}; {computed:,} were computed.",
        f"First tokens took {cold:.1f} s cold and {warm:.1f} s warm: {cold - warm:.1f} s saved, {cold / warm:.1f}x in all, "
        f"{median(turn.cold / turn.warm for turn in turns):.1f}x in the median turn.",
        f"Evicted, in blocks: {_listed(evicted)}.",
        f"Answers: {same} of {len(turns)} are the cold run's, token by token; the largest difference of a logit is "
        f"{max(a.difference for a in answers):.1e} ({tolerance:g} is allowed for).",
    ]
    if ties:
        text.append(
            f"{ties} part at a tie: all logits agree with the cold run's within {tolerance:g} up to the token where they part, "
            "so its two candidates are as good as equal; sums that are cut elsewhere round to the other one."
        )
    if wrong := len(turns) - same - ties:
        text.append(f"{wrong} are WRONG: their logits are not the cold run's.")
    return text


def _sums(tiers: Sequence[str], parts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    return {tier: sum(part.get(tier, 0) for part in parts) for tier in tiers}


def _listed(by_tier: Mapping[str, int]) -> str:
    return ", ".join(f"{tier} {count:,}" for tier, count in by_tier.items())


def _columns(tiers: Sequence[str], nodes: bool) -> list[tuple[str, int]]:
    return [*([_NODE] if nodes else []), *_BEFORE, *((tier, 6) for tier in tiers), *_AFTER]


def _joined(cells: Sequence[str], columns: Sequence[tuple[str, int]]) -> str:
    """Names on the left, numbers on the right of their columns."""
    return " ".join(
        cell.ljust(width) if name in ("node", "session") else cell.rjust(width)
        for cell, (name, width) in zip(cells, columns, strict=True)
    )
