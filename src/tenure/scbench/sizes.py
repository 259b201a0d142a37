"""How long the sessions of a task are for a model: so long that the model itself, with nothing dropped, still answers well.
The command line asks before it plans a grid; what it chose is reported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tenure.checks import integer
from tenure.scbench.contexts import Contexts
from tenure.scbench.methods.dense import Dense
from tenure.scbench.model import Subject
from tenure.scbench.modes import multi_request
from tenure.scbench.runner import run
from tenure.scbench.scoring import LEAST_DENSE
from tenure.scbench.tasks import TASKS

__all__ = ["KNOWN", "Size", "chosen"]

KNOWN: dict[str, dict[str, int]] = {
    "smollm2": {"retr_kv": 128, "icl_many_shot": 256},
    "induction": {"retr_kv": 400, "prefix_suffix": 256, "multi_hop": 384, "kv_needle": 300},
}
"""Sizes that were found before, for models that come with this: 1.1k to 2k tokens. Other tasks measure noise on them."""
_TRIED = 4  # sessions, of seeds that no grid begins with
_FIRST = 1 << 20


class Size(NamedTuple):
    """A size that was tried: what a session then takes in tokens, and what dense attention scored."""

    size: int
    tokens: int
    dense: float


def chosen(subject: Subject, task: str, most: int, turns: int) -> Iterator[Size]:
    """The sizes that are tried for a task, as they are: from the greatest that fits into `most` tokens, and leaves an eighth of
    what a model was made for to questions and answers, down by halves to the first at which dense attention is good enough, and
    no further down than 128 tokens. Raises ConfigError for a number out of range."""
    kind = TASKS[task]
    most = min(integer("most", most, 1, 1 << 31), subject.context * 7 // 8)
    contexts = Contexts(subject, tokens=most)

    def tokens(text: str) -> int:
        return len(subject.encode(text))

    tried: Size | None = None
    while tried is None or (tried.dense < LEAST_DENSE and most >= 256):
        most = most if tried is None else most // 2
        size = kind.fit(max(most, tokens(kind.seeded(_FIRST, kind.least(turns), turns).context)), turns, tokens)
        scores: list[float] = []
        for seed in range(_FIRST, _FIRST + _TRIED):
            session = kind.seeded(seed, size, turns)
            scores += [one.score for one in run(contexts, session, kind, multi_request(session), Dense(), 1.0).outcomes]
        tried = Size(size, tokens(session.context), sum(scores) / len(scores))
        yield tried
