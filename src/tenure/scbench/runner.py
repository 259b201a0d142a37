"""Carries out a session's steps on a model, with several methods side by side: what each answered, what of it is right, what was
held, read and run. Called by whoever measures; it draws no sessions and chooses no methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tenure.errors import ConfigError
from tenure.scbench import saying
from tenure.scbench.contexts import Contexts
from tenure.scbench.methods.base import Method
from tenure.scbench.modes import Answer, Encode, Rewind, Step
from tenure.scbench.reading import Reading, feed, greedy
from tenure.scbench.session import Session, Turn
from tenure.scbench.timing import now

if TYPE_CHECKING:
    from tenure.scbench.model import Subject

__all__ = ["Asked", "Lane", "Outcome", "Scores", "run", "run_all"]


class Scores(Protocol):
    """What a task has for this: how right an answer is, from 0 to 1."""

    def score(self, prediction: str, turn: Turn) -> float:
        """Of one answer."""


class Lane(NamedTuple):
    """A method at a budget."""

    method: Method
    budget: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """One answer. score: from 0 to 1. tokens: of the context that it was asked about. resident: bytes of that context's KV that
    are kept; full: what all of it takes unrounded; read: bytes of it that each token read on average, metadata counted."""

    turn: int
    kind: str
    prediction: str
    score: float
    tokens: int
    full: int
    resident: int
    read: float


@dataclass(slots=True)
class Asked:
    """A session's answers. asked: tokens of all prompts, each whole; prefilled: those of them that were run, be it for others
    too. encoding: seconds that the context's run took, as far as it was unknown; seconds: of what came after, in all lanes. What
    finding KV of others would have left takes here is in neither."""

    outcomes: list[Outcome] = field(default_factory=list)
    asked: int = 0
    prefilled: int = 0
    encoding: float = 0.0
    seconds: float = 0.0


def run(contexts: Contexts, session: Session, task: Scores, steps: Sequence[Step], method: Method, budget: float) -> Asked:
    """One method alone, as `run_all`."""
    return run_all(contexts, session, task, steps, [Lane(method, budget)])[0]


def run_all(contexts: Contexts, session: Session, task: Scores, steps: Sequence[Step], lanes: Sequence[Lane]) -> list[Asked]:
    """One session by its steps (`tenure.scbench.modes`), in every lane. Lanes are run as one batch, each as if it were alone, up
    to rounding. Raises ConfigError for steps that begin with anything but a context."""
    if not steps or not isinstance(steps[0], Encode) or not steps[0].settle:
        raise ConfigError("the first step has to encode a context and settle it")
    running = [_Running(contexts, lane) for lane in lanes]
    began = now(contexts.subject.model)
    for step in steps:
        if isinstance(step, Encode):
            texts = [contexts.subject.encode(text) for text in step.texts]
            if step.settle:
                texts[0] = [*contexts.subject.start, *texts[0]]
                for one in running:
                    one.settle(texts)
            else:
                feed([one.reading for one in running], [_flat(texts)] * len(running))
            for one in running:
                one.encoded(step, sum(map(len, texts)))
        elif isinstance(step, Rewind):
            for one in running:
                one.rewind()
        else:
            _answer(session, task, step, running)
    spent = now(contexts.subject.model) - began - sum(one.done.encoding + one.finding for one in running)
    for one in running:
        one.done.seconds = spent
    return [one.done for one in running]


class _Running:
    """One lane: its context, what it reads now, and what it goes back to."""

    reading: Reading

    def __init__(self, contexts: Contexts, lane: Lane) -> None:
        self._contexts, self._lane = contexts, lane
        self._prompt = 0  # tokens of the prompt so far
        self._marked: tuple[Reading, int]
        self.finding = 0.0
        self.done = Asked()

    def settle(self, texts: Sequence[Sequence[int]]) -> None:
        contexts = self._contexts
        before = contexts.seconds
        self._context = contexts.of(_flat(texts), *self._lane, shared=len(texts[0]))
        self.done.encoding, self.finding = contexts.seconds - before, self._context.finding
        self.reading = Reading(contexts.subject.model, self._context, *self._lane)

    def encoded(self, step: Encode, tokens: int) -> None:
        self._prompt += tokens
        run = self._context.recomputed if step.settle else None
        self.done.prefilled += tokens if run is None else run
        if step.settle or step.mark:
            self._marked = self.reading.again(), self._prompt

    def rewind(self) -> None:
        marked, self._prompt = self._marked
        self.reading = marked.again()

    @property
    def subject(self) -> Subject:
        return self._contexts.subject

    def kept(self, tokens: int) -> None:
        self._prompt += tokens

    def answered(self, prediction: str, score: float, step: Answer, turn: Turn) -> None:
        kv = self._context.kv
        self.done.asked += self._prompt
        outcome = Outcome(step.turn, turn.kind, prediction, score, kv.length, kv.full, kv.resident, self.reading.read)
        self.done.outcomes.append(outcome)


def _answer(session: Session, task: Scores, step: Answer, running: Sequence[_Running]) -> None:
    turn, subject = session.turns[step.turn], running[0].subject
    each = greedy([one.reading for one in running], turn.limit, partial(saying.ended, subject, session))
    for one, ids in zip(running, each, strict=True):
        said = saying.prediction(subject, session, ids)
        one.answered(said, task.score(said, turn), step, turn)
    if step.keep:
        stay = [(one, ids) for one, all_ids in zip(running, each, strict=True) if (ids := saying.kept(subject, session, all_ids))]
        feed([one.reading for one, _ in stay], [ids for _, ids in stay])
        for one, ids in stay:
            one.kept(len(ids))


def _flat(texts: Sequence[Sequence[int]]) -> list[int]:
    return [one for text in texts for one in text]
