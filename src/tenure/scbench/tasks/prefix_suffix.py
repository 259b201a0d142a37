"""Find the one string that begins and ends as asked, among others that do only one of both. After SCBench's Retr.Prefix-Suffix;
one of the tasks in the registry beside it."""

from __future__ import annotations

from math import isqrt
from random import Random

from tenure.scbench.session import Session, Turn
from tenure.scbench.tasks.base import Task, drawn
from tenure.scbench.tasks.words import distinct, numbers

__all__ = ["PrefixSuffix"]


class PrefixSuffix(Task):
    """Lines `word-4 digits-word`; a query is `word-*-word:`. Label: the whole string. Every prefix and every suffix is that of at
    least two strings, so that neither alone finds it."""

    name = "prefix_suffix"
    unit = "strings"

    def least(self, turns: int) -> int:
        """From six strings on each end can be shared."""
        return max(6, turns + 1)

    def draw(self, random: Random, size: int, turns: int) -> Session:
        """Of side x side pairs of ends the first `size` by diagonals: two diagonals hold every prefix and every suffix twice."""
        side = isqrt(size - 1) + 1
        ends = distinct(random, 2 * side)
        cells = [(row, (row + diagonal) % side) for diagonal in range(side) for row in range(side)][:size]
        random.shuffle(cells)
        middles = numbers(random, size)
        lines = [(ends[row], middle, ends[side + column]) for (row, column), middle in zip(cells, middles, strict=True)]
        asked, solved = drawn(random, lines, turns)
        return Session(
            task=self.name,
            seed=0,
            context="".join(f"{'-'.join(line)}\n" for line in lines),
            primer="Look-ups:\n" + "".join(f"{line[0]}-*-{line[2]}: {'-'.join(line)}\n" for line in solved),
            turns=tuple(Turn(f"{line[0]}-*-{line[2]}:", f" {'-'.join(line)}", ("-".join(line),)) for line in asked),
        )
