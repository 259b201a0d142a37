"""The kinds of traffic the generator knows: chat, agents with tool pauses, RAG over hot documents, one-off scans. Each
is a small set of parameters and a method that drafts requests as segments; `generate` makes tokens of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Protocol

import numpy as np

Segment = tuple[int, int]  # (number of the text, its length in tokens); equal numbers are equal text
DECODE = 0.02  # seconds a generated token takes, for the time between turns


@dataclass(frozen=True, slots=True)
class Draft:
    """A request before it has tokens: `arrival` in seconds, its prompt as segments, `output` in tokens."""

    arrival: float
    prompt: tuple[Segment, ...]
    output: int
    session: int


class Workload(Protocol):
    """One kind of traffic. `rate` is sessions (or requests) a second."""

    @property
    def kind(self) -> str:
        """The name it goes by."""

    def drafts(self, rng: np.random.Generator, seconds: float, texts: count[int], sessions: count[int]) -> Iterator[Draft]:
        """Requests that arrive within `seconds`, in no order; new texts and sessions take the next numbers."""


@dataclass(frozen=True, slots=True)
class Chat:
    """Conversations: a system prompt of a few, then turns that each carry all that was said. Lengths in tokens."""

    rate: float = 0.2
    system_prompts: int = 3
    system: int = 400
    turns: float = 4.0
    user: int = 80
    answer: int = 250
    think: float = 30.0
    kind: str = "chat"

    def drafts(self, rng: np.random.Generator, seconds: float, texts: count[int], sessions: count[int]) -> Iterator[Draft]:
        """One session per arrival; turns are geometric, lengths and thinking times log-normal around their means."""
        prompts = [(next(texts), _length(rng, self.system, 0.2)) for _ in range(self.system_prompts)]
        for begin in _arrivals(rng, self.rate, seconds):
            session, now = next(sessions), begin
            said: tuple[Segment, ...] = (prompts[_zipf(rng, len(prompts), 1.0)],)
            for _ in range(int(rng.geometric(1 / self.turns))):
                said = (*said, (next(texts), _length(rng, self.user, 0.8)))
                answer = _length(rng, self.answer, 0.6)
                if now < seconds:
                    yield Draft(now, said, answer, session)
                said = (*said, (next(texts), answer))
                now += answer * DECODE + _spread(rng, self.think, 0.9)


@dataclass(frozen=True, slots=True)
class Agent:
    """Agents: a long prompt of tools, then steps: a short call, a pause while the tool runs, its output. In tokens."""

    rate: float = 0.05
    tools: int = 3000
    task: int = 300
    steps: float = 12.0
    call: int = 60
    result: int = 500
    pause: float = 3.0
    long_pause: float = 90.0
    long_share: float = 0.08
    kind: str = "agent"

    def drafts(self, rng: np.random.Generator, seconds: float, texts: count[int], sessions: count[int]) -> Iterator[Draft]:
        """One session per arrival; a share of the pauses is long (a build, a test run, a person)."""
        tools = (next(texts), self.tools)
        for begin in _arrivals(rng, self.rate, seconds):
            session, now = next(sessions), begin
            said: tuple[Segment, ...] = (tools, (next(texts), _length(rng, self.task, 0.6)))
            for _ in range(int(rng.geometric(1 / self.steps))):
                call = _length(rng, self.call, 0.5)
                if now < seconds:
                    yield Draft(now, said, call, session)
                said = (*said, (next(texts), call), (next(texts), _length(rng, self.result, 1.0)))
                pause = self.long_pause if rng.random() < self.long_share else self.pause
                now += call * DECODE + _spread(rng, pause, 0.7)


@dataclass(frozen=True, slots=True)
class Rag:
    """Questions over documents: instructions, then some documents (hot ones often, by Zipf), a question. In tokens."""

    rate: float = 0.5
    documents: int = 200
    zipf: float = 1.1
    document: int = 900
    per_request: int = 2
    instructions: int = 200
    question: int = 40
    answer: int = 120
    kind: str = "rag"

    def drafts(self, rng: np.random.Generator, seconds: float, texts: count[int], sessions: count[int]) -> Iterator[Draft]:
        """One request per arrival; its documents stand in order of heat, so that hot prefixes are shared."""
        head = (next(texts), self.instructions)
        shelf = [(next(texts), _length(rng, self.document, 0.5)) for _ in range(self.documents)]
        for now in _arrivals(rng, self.rate, seconds):
            picked = sorted({_zipf(rng, len(shelf), self.zipf) for _ in range(self.per_request)})
            question = (next(texts), _length(rng, self.question, 0.5))
            yield Draft(now, (head, *(shelf[i] for i in picked), question), _length(rng, self.answer, 0.5), next(sessions))


@dataclass(frozen=True, slots=True)
class Scan:
    """One-off long prompts that nobody asks for again, in bursts: what pushes a good cache out. Tokens."""

    rate: float = 0.01
    burst: int = 5
    gap: float = 2.0
    length: int = 8000
    answer: int = 50
    kind: str = "scan"

    def drafts(self, rng: np.random.Generator, seconds: float, texts: count[int], sessions: count[int]) -> Iterator[Draft]:
        """`burst` prompts after each arrival, `gap` seconds apart."""
        for begin in _arrivals(rng, self.rate, seconds):
            for k in range(self.burst):
                if begin + k * self.gap < seconds:
                    yield Draft(
                        begin + k * self.gap,
                        ((next(texts), _length(rng, self.length, 0.3)),),
                        _length(rng, self.answer, 0.3),
                        next(sessions),
                    )


KINDS: dict[str, type[Chat | Agent | Rag | Scan]] = {
    "chat": Chat,
    "agent": Agent,
    "rag": Rag,
    "scan": Scan,
}


def mixed() -> dict[str, Workload]:
    """Four tenants, one kind of traffic each, by name of the tenant."""
    return {"acme": Chat(), "globex": Agent(), "initech": Rag(), "batch": Scan()}


def _arrivals(rng: np.random.Generator, rate: float, seconds: float) -> list[float]:
    """A Poisson process on [0, seconds)."""
    times = np.sort(rng.uniform(0, seconds, size=int(rng.poisson(rate * seconds))))
    return [float(t) for t in times]


def _spread(rng: np.random.Generator, mean: float, sigma: float) -> float:
    """Log-normal with that mean."""
    return float(rng.lognormal(math.log(max(mean, 1e-9)) - sigma * sigma / 2, sigma))


def _length(rng: np.random.Generator, mean: int, sigma: float) -> int:
    return max(1, round(_spread(rng, mean, sigma)))


def _zipf(rng: np.random.Generator, n: int, exponent: float) -> int:
    weights = np.arange(1, n + 1, dtype=np.float64) ** -exponent
    return int(np.searchsorted(np.cumsum(weights), rng.random() * weights.sum()))
