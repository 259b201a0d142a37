"""How right an answer is, from 0 to 1: pure functions of the answer and of what it should say. Tasks choose among them.
They never look at a model, and never at how an answer came to be."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["LEAST_DENSE", "by_turn", "contains", "first_number", "first_word", "names_found"]

LEAST_DENSE = 0.8
"""Where dense attention scores less, the model cannot do the task and a method's loss is noise."""


def contains(prediction: str, label: str) -> float:
    """1 when the label is somewhere in the answer."""
    return float(label in prediction)


def names_found(prediction: str, names: Sequence[str]) -> float:
    """The part of the names that the answer has as whole words. Further words cost nothing."""
    said = set(re.findall(r"[\w-]+", prediction))
    return sum(name in said for name in names) / len(names)


def first_number(prediction: str) -> str:
    """The first number of the answer as it is written (digits, perhaps a fraction); empty when there is none."""
    found = re.search(r"\d+(\.\d+)?", prediction)
    return found.group() if found else ""


def first_word(prediction: str) -> str:
    """The first word of the answer; empty when there is none."""
    found = re.search(r"\w+", prediction)
    return found.group() if found else ""


def by_turn(scores: Sequence[Sequence[float]]) -> list[float]:
    """The mean score of each turn over sessions; `scores` has a row of turns for each session, and rows may be shorter."""
    longest = max(map(len, scores), default=0)
    columns = [[row[turn] for row in scores if turn < len(row)] for turn in range(longest)]
    return [sum(column) / len(column) for column in columns]
