"""Learn labels from examples: categories of words have arbitrary labels, and a word that was not shown is asked about. After
SCBench's ICL.ManyShot; one of the tasks in the registry beside it."""

from __future__ import annotations

from itertools import cycle, islice
from random import Random

from tenure.scbench import scoring
from tenure.scbench.session import Session, Turn
from tenure.scbench.tasks.base import Task
from tenure.scbench.tasks.words import CATEGORIES

__all__ = ["ManyShot"]

LABELS = ("north", "south", "east", "west")


class ManyShot(Task):
    """Lines `word: label`, the label given by the word's category; a query is `word:`. Label: the category's, which must be the
    answer's first word. All categories are equally frequent."""

    name = "icl_many_shot"
    unit = "shots"
    most_turns = 10 * len(LABELS)
    chance = 1 / len(LABELS)

    def least(self, turns: int) -> int:
        """A shot of each category."""
        return len(LABELS)

    def draw(self, random: Random, size: int, turns: int) -> Session:
        """Words that are asked about are kept out of the shots; the shots repeat when a category has no more words."""
        chosen = random.sample(sorted(CATEGORIES), len(LABELS))
        words = {
            label: random.sample(CATEGORIES[name], len(CATEGORIES[name])) for name, label in zip(chosen, LABELS, strict=True)
        }
        asked = [(words[label].pop(), label) for label in islice(cycle(random.sample(LABELS, len(LABELS))), turns)]
        source = {label: cycle(left) for label, left in words.items()}
        shots = [(next(source[label]), label) for label in islice(cycle(LABELS), size)]
        random.shuffle(shots)
        random.shuffle(asked)
        return Session(
            task=self.name,
            seed=0,
            context="".join(f"{word}: {label}\n" for word, label in shots),
            turns=tuple(Turn(f"{word}:", f" {label}", (label,)) for word, label in asked),
        )

    def score(self, prediction: str, turn: Turn) -> float:
        """Whether the answer's first word is the label."""
        return float(scoring.first_word(prediction) == turn.labels[0])
