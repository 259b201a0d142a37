"""The two ways to ask several questions about one context, as plain steps: which texts are encoded when, what is generated and
what is thrown away. The runner carries the steps out; nothing here touches a model or a token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tenure.scbench.session import Session

__all__ = ["MODES", "Answer", "Encode", "Rewind", "Step", "multi_request", "multi_turn"]


@dataclass(frozen=True, slots=True)
class Encode:
    """Run the model over `texts`, each encoded by itself, after what the KV holds. With `settle` the KV is then settled: the
    method compresses it. `Rewind` comes back to here after `settle` or `mark`."""

    texts: tuple[str, ...]
    settle: bool = False
    mark: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """Generate greedily for this turn, at most its `limit` tokens, and no further than the session's `stop`. The KV of the
    answer is thrown away; with `keep` the answer stays, without what ended it."""

    turn: int
    keep: bool = False


@dataclass(frozen=True, slots=True)
class Rewind:
    """The KV is again what it was at the last mark."""


Step = Encode | Answer | Rewind


def multi_turn(session: Session, *, own: bool = False, visible: bool = True) -> tuple[Step, ...]:
    """A conversation: one KV that grows. What the model answered is discarded and the true answer put in before the next query,
    so that one slip does not decide the later turns; with `own` the model's answer stays instead.

    The first query is encoded together with the context, so a method sees it when it compresses; not so with `visible=False`.
    """
    first = tuple(text for text in (session.primer, session.turns[0].query) if text)
    opening = (Encode((session.context, *first), settle=True),)
    steps: list[Step] = list(opening if visible else (Encode((session.context,), settle=True), Encode(first)))
    for number, turn in enumerate(session.turns):
        steps.append(Answer(number, keep=own))
        if number + 1 < len(session.turns):
            said = session.close if own else turn.answer + session.close
            steps.append(Encode((said, session.turns[number + 1].query)))
    return tuple(steps)


def multi_request(session: Session) -> tuple[Step, ...]:
    """Requests that share a context: it is encoded first, with no query in sight; each query then runs on that same KV. What is
    the same in front of each query is run once."""
    steps: list[Step] = [Encode((session.context,), settle=True)]
    if session.primer:
        steps.append(Encode((session.primer,), mark=True))
    for number, turn in enumerate(session.turns):
        steps += [Encode((turn.query,)), Answer(number), Rewind()]
    return tuple(steps)


MODES: dict[str, Callable[[Session], tuple[Step, ...]]] = {"multi_turn": multi_turn, "multi_request": multi_request}
"""Each mode as SCBench runs it."""
