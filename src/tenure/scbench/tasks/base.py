"""What a task is: it draws a session from a generator of random numbers and scores an answer. The files beside this are tasks;
a new one overrides `draw` and, where the defaults do not do, `least`, `most` and `score`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import ClassVar, TypeVar

from tenure.checks import integer
from tenure.scbench import scoring
from tenure.scbench.session import Session, Turn

__all__ = ["SOLVED", "Task", "drawn"]

SOLVED = 8
"""How many solved questions a primer shows at most: a small model answers nothing without them."""
T = TypeVar("T")


class Task(ABC):
    """One kind of session. `unit` says what `size` counts, `chance` what guessing scores."""

    name: ClassVar[str]
    unit: ClassVar[str]
    most_turns: ClassVar[int] = 64
    chance: ClassVar[float] = 0.0

    def session(self, random: Random, size: int, turns: int) -> Session:
        """A session whose context has exactly `size` units and that asks `turns` different questions. Equal generators give equal
        sessions. Raises ConfigError for a size or a number of turns that cannot be had."""
        turns = integer("turns", turns, 1, self.most_turns)
        size = integer(f"size ({self.unit})", size, self.least(turns), self.most())
        return self.draw(random, size, turns)

    def seeded(self, seed: int, size: int, turns: int) -> Session:
        """The session of this seed. Raises ConfigError as `session` does."""
        return replace(self.session(Random(f"{self.name}:{seed}:{size}:{turns}"), size, turns), seed=seed)

    def fit(self, tokens: int, turns: int, count: Callable[[str], int]) -> int:
        """The greatest size whose context (of seed 0) is at most `tokens` long, by `count`. Raises ConfigError when none is."""

        def length(size: int) -> int:
            return count(self.seeded(0, size, turns).context)

        low, most = self.least(turns), self.most()
        integer("tokens", tokens, length(low), 1 << 31)
        while 2 * low <= most and length(2 * low) <= tokens:
            low *= 2
        high = min(2 * low, most + 1)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if length(middle) <= tokens else (low, middle)
        return low

    @abstractmethod
    def draw(self, random: Random, size: int, turns: int) -> Session:
        """A session (its seed 0); both numbers are possible ones."""

    def least(self, turns: int) -> int:
        """The smallest size that has room for so many questions and a solved one."""
        return turns + 1

    def most(self) -> int:
        """The greatest size there is."""
        return 1 << 16

    def score(self, prediction: str, turn: Turn) -> float:
        """How right an answer is, 0 to 1: here, whether it contains the label."""
        return scoring.contains(prediction, turn.labels[0])


def drawn(random: Random, items: Sequence[T], turns: int) -> tuple[list[T], list[T]]:
    """Of the items, those to ask about and others to show solved, at most SOLVED."""
    chosen = random.sample(items, min(turns + SOLVED, len(items)))
    return chosen[:turns], chosen[turns:]
