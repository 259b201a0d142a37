"""The runner: what a session's steps give with a method, against the model run over the whole text."""

from __future__ import annotations

import string
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs tenure[model]")
pytest.importorskip("transformers", reason="needs tenure[model]")

from tenure.errors import ConfigError
from tenure.scbench import contexts as contexts_module
from tenure.scbench import runner
from tenure.scbench.contexts import Contexts
from tenure.scbench.methods import METHODS, cacheblend
from tenure.scbench.methods.cacheblend import CacheBlend, Pieces
from tenure.scbench.model import Subject
from tenure.scbench.modes import Answer, multi_request, multi_turn
from tenure.scbench.runner import run
from tenure.scbench.session import Session, Turn
from tenure.scbench.tasks.base import Task

from .making import PIECE, SIZE, SMALL

LETTERS = string.ascii_lowercase + string.digits + ": \n.,;-" + string.ascii_uppercase[:19]
CONTEXT = "a: 12\nb: 47\nc: 90\nd: 33\ne: 71\nf: 65\n"
SESSION = Session(
    "letters",
    0,
    CONTEXT,
    (Turn("c:", " 90", ("90",), limit=4), Turn("a:", " 12", ("12",), limit=4), Turn("f:", " 65", ("65",), limit=4)),
    primer="now:\nb: 47\n",
)


class Letters(Task):
    name, unit = "letters", "pairs"

    def draw(self, random: Any, size: int, turns: int) -> Session:
        return SESSION


class Characters:
    """A tokenizer whose tokens are characters."""

    def encode(self, text: str) -> list[int]:
        return [1 + LETTERS.index(one) for one in text]

    def decode(self, ids: Any) -> str:
        return "".join(LETTERS[one - 1] if 0 < one <= len(LETTERS) else "?" for one in ids)


@pytest.fixture
def subject(tiny: Any) -> Any:
    return Subject("tiny", "of-no-file", tiny, Characters(), start=(63,))


def whole(subject: Any, text: str) -> str:
    """What the model goes on with, by transformers' own greedy generation over all of it."""
    ids = torch.tensor([[*subject.start, *subject.encode(text)]])
    said = subject.model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=4, do_sample=False)[0, ids.shape[1] :]
    return subject.decode(said.tolist()).split("\n")[0]


def test_dense_requests_are_what_the_model_says_of_the_whole_text(subject: Any) -> None:
    found = run(Contexts(subject), SESSION, Letters(), multi_request(SESSION), METHODS["dense"], 1.0).outcomes
    assert [one.prediction for one in found] == [whole(subject, CONTEXT + SESSION.primer + turn.query) for turn in SESSION.turns]
    assert [one.score for one in found] == [
        float(turn.labels[0] in one.prediction) for one, turn in zip(found, SESSION.turns, strict=True)
    ]
    assert {one.tokens for one in found} == {1 + len(CONTEXT)}
    assert all(one.resident == one.full == one.read for one in found)


@pytest.mark.parametrize("own", [False, True])
def test_dense_turns_are_what_the_model_says_of_the_whole_text(subject: Any, own: bool) -> None:
    found = run(Contexts(subject), SESSION, Letters(), multi_turn(SESSION, own=own), METHODS["dense"], 1.0).outcomes
    text = CONTEXT + SESSION.primer + SESSION.turns[0].query
    for number, one in enumerate(found):
        assert one.prediction == whole(subject, text)
        if number + 1 < len(found):
            said = one.prediction if own else SESSION.turns[number].answer
            if own and "?" in one.prediction:
                break  # it said what no text is
            text += said + SESSION.close + SESSION.turns[number + 1].query


@pytest.mark.parametrize("name", [name for name, method in SMALL.items() if not method.fixed])
@pytest.mark.parametrize("mode", [multi_request, multi_turn])
def test_a_budget_that_does_not_bind_is_dense(subject: Any, name: str, mode: Any) -> None:
    contexts = Contexts(subject, 4)
    dense = run(contexts, SESSION, Letters(), mode(SESSION), METHODS["dense"], 1.0).outcomes
    assert [one.prediction for one in run(contexts, SESSION, Letters(), mode(SESSION), SMALL[name], 1.0).outcomes] == [
        one.prediction for one in dense
    ]


def test_a_context_is_encoded_once_for_all_that_share_it(subject: Any) -> None:
    contexts = Contexts(subject, 4)
    names = [name for name, method in SMALL.items() if method.stage not in ("generation", "retrieval")]
    for name in names:
        held = run(contexts, SESSION, Letters(), multi_request(SESSION), SMALL[name], 0.5).outcomes
        alone = run(Contexts(subject, 4), SESSION, Letters(), multi_request(SESSION), SMALL[name], 0.5).outcomes
        assert held == alone
    assert contexts.encoded == 1 + len(CONTEXT)
    assert contexts.asked == len(names) * contexts.encoded


def test_a_runner_counts_what_was_recomputed(subject: Any) -> None:
    contexts, tokens = Contexts(subject, SIZE), 1 + len(CONTEXT)
    outcomes = run(contexts, SESSION, Letters(), multi_request(SESSION), CacheBlend(PIECE), 0.5).outcomes
    assert (contexts.asked, contexts.encoded) == (tokens, int(0.5 * tokens))
    assert all(one.resident == one.full == one.read for one in outcomes)
    run(contexts, SESSION, Letters(), multi_request(SESSION), Pieces(PIECE), 0.5)
    assert contexts.encoded == int(0.5 * tokens) + 1
    run(contexts, SESSION, Letters(), multi_request(SESSION), CacheBlend(PIECE), 1.0)
    assert contexts.encoded == int(0.5 * tokens) + 1 + tokens


def test_what_finding_pieces_takes_is_in_no_seconds(subject: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that stands still but for this: a piece takes 1000, a pass over a whole context 10, a token that is fed 1."""
    now = [0.0]

    def taking(seconds: float, call: Any) -> Any:
        def slow(*args: Any, **settings: Any) -> Any:
            now[0] += seconds
            return call(*args, **settings)

        return slow

    for module in (runner, contexts_module, cacheblend):
        monkeypatch.setattr(module, "now", lambda model: now[0])
    monkeypatch.setattr(cacheblend, "gather", taking(1000, cacheblend.gather))
    monkeypatch.setattr(cacheblend, "blend", taking(10, cacheblend.blend))
    monkeypatch.setattr(runner, "feed", taking(1, runner.feed))
    asked = run(Contexts(subject, SIZE), SESSION, Letters(), multi_request(SESSION), CacheBlend(PIECE), 0.5)
    assert (asked.encoding, asked.seconds) == (10, 4)  # the primer and three questions
    assert now[0] == 1014


def test_what_is_dropped_is_not_resident(subject: Any) -> None:
    found = run(Contexts(subject, 4), SESSION, Letters(), multi_request(SESSION), SMALL["streaming"], 0.5).outcomes
    assert all(one.resident <= 0.5 * one.full + 1 for one in found)


def test_steps_begin_with_a_context(subject: Any) -> None:
    with pytest.raises(ConfigError, match="first step"):
        run(Contexts(subject), SESSION, Letters(), [Answer(0)], METHODS["dense"], 1.0)
