"""Two kinds of questions about one context: pairs to look up, and needles in prose. After SCBench's multi-tasking sets; one of
the tasks in the registry beside it."""

from __future__ import annotations

from itertools import zip_longest
from random import Random

from tenure.scbench.session import Session, Turn
from tenure.scbench.tasks.base import SOLVED, Task, drawn
from tenure.scbench.tasks.words import CATEGORIES, distinct, numbers

__all__ = ["KVNeedle"]


class KVNeedle(Task):
    """Half the lines are `word: 4 digits`; the rest is prose without a digit, but for lines `The code of the word is 4 digits`. A
    query is `word:` or `The code of the word is`, in turn (`kind` kv or needle). Label: the number."""

    name = "kv_needle"
    unit = "lines"

    def least(self, turns: int) -> int:
        """Room for a pair and a needle a turn, and a solved one of each."""
        return 2 * (turns + 1)

    def draw(self, random: Random, size: int, turns: int) -> Session:
        """Distinct names and numbers over both kinds; at most SOLVED needles more than are asked for."""
        pairs, needles = size // 2, min(size - size // 2, turns + SOLVED)
        facts = list(zip(distinct(random, pairs + needles), numbers(random, pairs + needles), strict=True))
        table, hidden = facts[:pairs], facts[pairs:]
        lines = [f"{_kv(name)} {value}\n" for name, value in table] + [f"{_needle(name)} {value}\n" for name, value in hidden]
        lines += [_prose(random) for _ in range(size - len(lines))]
        random.shuffle(lines)
        kv, shown_kv = drawn(random, table, (turns + 1) // 2)
        needle, shown_needle = drawn(random, hidden, turns // 2)
        shown = [f"{_kv(name)} {value}\n" for name, value in shown_kv[: SOLVED // 2]]
        shown += [f"{_needle(name)} {value}\n" for name, value in shown_needle[: SOLVED // 2]]
        random.shuffle(shown)
        first = [Turn(_kv(name), f" {value}", (value,), "kv") for name, value in kv]
        second = [Turn(_needle(name), f" {value}", (value,), "needle") for name, value in needle]
        return Session(
            task=self.name,
            seed=0,
            context="".join(lines),
            primer="Look-ups:\n" + "".join(shown),
            turns=tuple(turn for both in zip_longest(first, second) for turn in both if turn),
        )


def _kv(name: str) -> str:
    return f"{name}:"


def _needle(name: str) -> str:
    return f"The code of the {name} is"


def _prose(random: Random) -> str:
    job, animal, place = (random.choice(CATEGORIES[name]) for name in ("jobs", "animals", "buildings"))
    verb = random.choice(("saw", "fed", "heard", "lost", "found"))
    return f"The {job} {verb} the {animal} near the {place}\n"
