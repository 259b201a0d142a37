"""The two modes: known plans, and what the KV holds at each answer when a plan is carried out."""

from __future__ import annotations

import pytest
from hypothesis import given

from tenure.scbench.modes import MODES, Answer, Encode, Rewind, Step, multi_request, multi_turn
from tenure.scbench.session import Session, Turn

from .test_tasks import few, sessions

SESSION = Session(
    "t", 0, "a: 1\nb: 2\n", (Turn("a:", " 1", ("1",)), Turn("b:", " 2", ("2",)), Turn("c:", " 3", ("3",))), primer="Ask:\n"
)


def carried_out(session: Session, steps: tuple[Step, ...], answers: list[str]) -> tuple[list[str], list[str]]:
    """(what the KV holds before each answer, what it held when it was settled), with text for KV."""
    held, marked, settled, seen = "", "", [], []
    for step in steps:
        match step:
            case Encode(texts, settle, mark):
                held += "".join(texts)
                settled += [held] if settle else []
                marked = held if settle or mark else marked
            case Answer(turn, keep):
                seen.append(held)
                held += answers[turn] if keep else ""
            case Rewind():
                held = marked
    return seen, settled


def test_a_conversation_puts_the_true_answers_in():
    assert multi_turn(SESSION) == (
        Encode(("a: 1\nb: 2\n", "Ask:\n", "a:"), settle=True),
        Answer(0),
        Encode((" 1\n", "b:")),
        Answer(1),
        Encode((" 2\n", "c:")),
        Answer(2),
    )


def test_a_conversation_that_keeps_the_models_own():
    seen, settled = carried_out(SESSION, multi_turn(SESSION, own=True), [" 7", " 8", " 9"])
    assert seen == ["a: 1\nb: 2\nAsk:\na:", "a: 1\nb: 2\nAsk:\na: 7\nb:", "a: 1\nb: 2\nAsk:\na: 7\nb: 8\nc:"]
    assert settled == seen[:1]


def test_a_first_query_out_of_sight():
    steps = multi_turn(SESSION, visible=False)
    assert steps[:2] == (Encode((SESSION.context,), settle=True), Encode(("Ask:\n", "a:")))
    assert carried_out(SESSION, steps, ["?"] * 3)[0] == carried_out(SESSION, multi_turn(SESSION), ["?"] * 3)[0]


def test_requests_share_the_context_alone():
    seen, settled = carried_out(SESSION, multi_request(SESSION), [" 7", " 8", " 9"])
    assert settled == ["a: 1\nb: 2\n"]
    assert seen == ["a: 1\nb: 2\nAsk:\na:", "a: 1\nb: 2\nAsk:\nb:", "a: 1\nb: 2\nAsk:\nc:"]


@few
@given(sessions())
def test_in_each_mode_each_turn_is_asked_once_and_the_kv_is_settled_once(made):
    _, _, turns, session = made
    for name, mode in MODES.items():
        steps = mode(session)
        seen, settled = carried_out(session, steps, ["wrong"] * turns)
        assert [step.turn for step in steps if isinstance(step, Answer)] == list(range(turns)), name
        assert len(settled) == 1
        assert all(text.endswith(turn.query) for text, turn in zip(seen, session.turns, strict=True))
        assert not any("wrong" in text for text in seen), "what the model said is thrown away"


@few
@given(sessions())
def test_a_request_sees_nothing_of_the_others(made):
    _, _, turns, session = made
    seen, settled = carried_out(session, multi_request(session), [""] * turns)
    assert settled == [session.context]
    for text, turn in zip(seen, session.turns, strict=True):
        assert text == session.context + session.primer + turn.query


def test_the_true_answer_comes_after_its_question_only():
    seen, _ = carried_out(SESSION, multi_turn(SESSION), ["?"] * 3)
    asked = [text.removeprefix(SESSION.context + SESSION.primer) for text in seen]
    assert asked == ["a:", "a: 1\nb:", "a: 1\nb: 2\nc:"]


@pytest.mark.parametrize("name", sorted(MODES))
def test_a_session_of_one_turn(name):
    one = Session("t", 0, "x\n", SESSION.turns[:1])
    assert carried_out(one, MODES[name](one), ["?"])[0] == ["x\na:"]
