"""Carries out a session's steps on a model, with one method at one budget: what was answered, what of it is right, what was held
and read. A context that several methods share is encoded once. Called by whoever measures; it draws no sessions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tenure.errors import ConfigError
from tenure.scbench.kv import Context
from tenure.scbench.methods.base import ALL, Method
from tenure.scbench.modes import Answer, Encode, Rewind, Step
from tenure.scbench.reading import Reading, prefill, settle
from tenure.scbench.session import Session
from tenure.scbench.tasks.base import Task

if TYPE_CHECKING:
    from tenure.scbench.model import Subject

__all__ = ["Contexts", "Outcome", "run"]


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


class Contexts:
    """The contexts of one model, prefilled with full attention: each once, however many methods and queries read it. `encoded`
    and `asked` count tokens that were run, and that would have been without sharing."""

    def __init__(self, subject: Subject, block_size: int = 16) -> None:
        self.subject = subject
        self.block_size = block_size
        self.encoded = self.asked = 0
        self._held: tuple[tuple[int, ...], Context] | None = None

    def of(self, ids: Sequence[int], method: Method, budget: float) -> Context:
        """A context as this method leaves it. Methods that shape the prefill, or find KV, have their own."""
        self.asked += len(ids)
        found = method.assemble(self.subject.model, ids, budget, self.block_size)
        if found is not None:
            self.encoded += len(ids) if found.recomputed is None else found.recomputed
            return settle(found, method, budget)
        if method.allow(len(ids), budget) is not None:
            self.encoded += len(ids)
            return prefill(self.subject.model, ids, method, budget, self.block_size)
        key = tuple(ids)
        if self._held is None or self._held[0] != key:
            self.encoded += len(ids)
            self._held = key, prefill(self.subject.model, ids, block_size=self.block_size, observe=ALL)
        return settle(self._held[1], method, budget)


def run(contexts: Contexts, session: Session, task: Task, steps: Sequence[Step], method: Method, budget: float) -> list[Outcome]:
    """One session by its steps (`tenure.scbench.modes`). Raises ConfigError for steps that begin with anything but a context."""
    subject = contexts.subject
    outcomes: list[Outcome] = []
    context: Context | None = None
    reading: Reading | None = None
    for step in steps:
        if isinstance(step, Encode) and step.settle:
            ids = [*subject.start, *_ids(subject, step.texts)]
            context = contexts.of(ids, method, budget)
            reading = Reading(subject.model, context, method, budget)
            continue
        if context is None or reading is None:
            raise ConfigError("the first step has to encode a context and settle it")
        if isinstance(step, Encode):
            reading.feed(_ids(subject, step.texts))
        elif isinstance(step, Rewind):
            reading = Reading(subject.model, context, method, budget)
        else:
            outcomes.append(_answered(subject, session, task, step, context, reading))
    return outcomes


def _answered(subject: Subject, session: Session, task: Task, step: Answer, context: Context, reading: Reading) -> Outcome:
    turn = session.turns[step.turn]

    def ends(ids: list[int]) -> bool:
        return ids[-1] in subject.stop or (session.stop != "" and session.stop in subject.decode(ids))

    said = subject.decode(one for one in reading.greedy(turn.limit, ends, keep=step.keep) if one not in subject.stop)
    prediction = said.split(session.stop)[0] if session.stop else said
    kv = context.kv
    return Outcome(step.turn, turn.kind, prediction, task.score(prediction, turn), kv.length, kv.full, kv.resident, reading.read)


def _ids(subject: Subject, texts: Sequence[str]) -> list[int]:
    return [one for text in texts for one in subject.encode(text)]
