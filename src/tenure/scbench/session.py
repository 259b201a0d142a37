"""What a benchmark session is: one shared context and the questions asked about it, as text.
Tasks make it, the modes turn it into steps, the runner carries those out; it knows no tokens and no model."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Session", "Turn"]


@dataclass(frozen=True, slots=True)
class Turn:
    """One question about a context.

    `query` ends where the model is to go on; `answer` is the true answer as it would go on (with its leading space) and is what
    is put in before the next turn; `labels` is what a right answer contains (the task's `score` says how). `kind` names the part
    of a mixed task, `limit` is the most tokens that an answer may take. `enough` is a shorter answer that is as right, if any.
    """

    query: str
    answer: str
    labels: tuple[str, ...]
    kind: str = ""
    limit: int = 16
    enough: str = ""


@dataclass(frozen=True, slots=True)
class Session:
    """A context and its turns.

    `primer` (a heading and solved questions) comes before the first query of a conversation and before every query that stands
    alone; it is no part of the shared context. An answer ends where `stop` appears (never when empty); `close` is put between an
    answer and the next query. Context, primer and every query can each be encoded by itself: no word runs across their borders.
    """

    task: str
    seed: int
    context: str
    turns: tuple[Turn, ...]
    primer: str = ""
    stop: str = "\n"
    close: str = "\n"
