"""Find an extreme among many numbers: an answer needs the whole context, not one place in it. After SCBench's Math.Find; one of
the tasks in the registry beside it."""

from __future__ import annotations

from random import Random

from tenure.scbench import scoring
from tenure.scbench.session import Session, Turn
from tenure.scbench.tasks.base import Task
from tenure.scbench.tasks.words import numbers

__all__ = ["MathFind"]

RANKS = tuple(f"{rank}{end}" for rank in ("", "second ", "third ", "fourth ") for end in ("largest", "smallest"))
A_LINE = 10


class MathFind(Task):
    """Lines of ten numbers; a query is `The second largest number is`. Label: that number, which must be the first one of the
    answer."""

    name = "math_find"
    unit = "numbers"
    most_turns = len(RANKS) - 1

    def least(self, turns: int) -> int:
        """Enough for every rank to be another number."""
        return len(RANKS)

    def draw(self, random: Random, size: int, turns: int) -> Session:
        """Distinct numbers of one length; the ranks that are not asked for are shown, at most two."""
        values = numbers(random, size)
        ranked = sorted(values)
        order = random.sample(range(len(RANKS)), len(RANKS))
        found = [(RANKS[at], ranked[at // 2] if at % 2 else ranked[-1 - at // 2]) for at in order]
        lines = [values[at : at + A_LINE] for at in range(0, size, A_LINE)]
        return Session(
            task=self.name,
            seed=0,
            context="".join(f"{' '.join(line)}\n" for line in lines),
            primer="Findings:\n" + "".join(f"The {rank} number is {value}\n" for rank, value in found[turns:][:2]),
            turns=tuple(Turn(f"The {rank} number is", f" {value}", (value,)) for rank, value in found[:turns]),
        )

    def score(self, prediction: str, turn: Turn) -> float:
        """Whether the answer's first number is the one."""
        return float(scoring.first_number(prediction) == turn.labels[0])
