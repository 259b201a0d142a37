"""Follow a value through assignments: every variable that ends up with it is asked for. After RULER's variable tracking and
SCBench's Retr.MultiHop; one of the tasks in the registry beside it."""

from __future__ import annotations

from random import Random

from tenure.scbench import scoring
from tenure.scbench.session import Session, Turn
from tenure.scbench.tasks.base import Task, drawn
from tenure.scbench.tasks.words import distinct, numbers

__all__ = ["MultiHop"]

LINKS = 3
"""Variables in a chain: one that is given the number, and two hops."""


class MultiHop(Task):
    """Lines `VAR word = 4 digits` and `VAR word = VAR word`; a query is `VAR = 4 digits:`. Labels: the names of the chain; the
    score is the part of them that the answer has."""

    name = "multi_hop"
    unit = "assignments"

    def least(self, turns: int) -> int:
        """A chain for each turn and a solved one."""
        return LINKS * (turns + 1)

    def draw(self, random: Random, size: int, turns: int) -> Session:
        """Chains that run through each other; what is left over for the last is a shorter one, which nobody asks about."""
        names = distinct(random, size)
        starts = range(0, size, LINKS)
        chains = [(value, names[at : at + LINKS]) for at, value in zip(starts, numbers(random, len(starts)), strict=True)]
        asked, solved = drawn(random, chains[: size // LINKS], turns)
        return Session(
            task=self.name,
            seed=0,
            context="".join(f"VAR {name} = {source}\n" for name, source in _mixed(random, chains)),
            primer="Look-ups:\n" + "".join(f"VAR = {value}: {' '.join(chain)}\n" for value, chain in solved),
            turns=tuple(Turn(f"VAR = {value}:", " " + " ".join(chain), tuple(chain)) for value, chain in asked),
        )

    def score(self, prediction: str, turn: Turn) -> float:
        """The part of the names that were found."""
        return scoring.names_found(prediction, turn.labels)


def _mixed(random: Random, chains: list[tuple[str, list[str]]]) -> list[tuple[str, str]]:
    """Every assignment as (name, source): chains at random, each in its own order."""
    order = [at for at, (_, names) in enumerate(chains) for _ in names]
    random.shuffle(order)
    left = [iter(zip(names, [value, *(f"VAR {name}" for name in names)], strict=False)) for value, names in chains]
    return [next(left[at]) for at in order]
