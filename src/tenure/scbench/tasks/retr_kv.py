"""Look up one of many pairs: the whole context is keys and numbers that nothing compresses. After SCBench's Retr.KV; one of the
tasks in the registry beside it."""

from __future__ import annotations

from random import Random

from tenure.scbench.session import Session, Turn
from tenure.scbench.tasks.base import Task, drawn
from tenure.scbench.tasks.words import distinct, numbers

__all__ = ["RetrKV"]


class RetrKV(Task):
    """Lines `word: 4 digits`; a query is `word:`. Label: the number."""

    name = "retr_kv"
    unit = "pairs"

    def draw(self, random: Random, size: int, turns: int) -> Session:
        """Distinct keys, distinct values."""
        pairs = list(zip(distinct(random, size), numbers(random, size), strict=True))
        asked, solved = drawn(random, pairs, turns)
        return Session(
            task=self.name,
            seed=0,
            context="".join(f"{key}: {value}\n" for key, value in pairs),
            primer="Look-ups:\n" + "".join(f"{key}: {value}\n" for key, value in solved),
            turns=tuple(Turn(f"{key}:", f" {value}", (value,)) for key, value in asked),
        )
