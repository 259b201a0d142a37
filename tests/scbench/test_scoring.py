"""Scores: known answers, and agreement with a second scorer that reads the truth out of the context."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.scbench import scoring
from tenure.scbench.tasks import TASKS

from .rescore import rescore
from .test_tasks import sessions


@given(sessions(), st.data())
@settings(max_examples=100, derandomize=True, deadline=None)
def test_the_second_scorer_agrees(made, data):
    task, _, _, session = made
    turn = data.draw(st.sampled_from(session.turns))
    line = data.draw(st.sampled_from(session.context.splitlines()))
    label = data.draw(st.sampled_from(turn.labels))
    said = data.draw(
        st.sampled_from(
            [
                "",
                " ",
                label,
                turn.answer,
                f" {label}.",
                f"x{label}",
                f"{label}9",
                f"{label} {line}",
                line,
                f"{line} {label}",
                label[:-1],
            ]
        )
        | st.text("0123456789 abcdefghij-.:\n", max_size=20)
    )
    assert task.score(said, turn) == rescore(task.name, session.context, turn.query, said)


def test_the_second_scorer_would_notice():
    """A control: with the query of another turn the two differ."""
    for name, task in TASKS.items():
        session = task.seeded(1, max(60, task.least(3)), 3)
        one, other = session.turns[0], session.turns[-1]
        assert task.score(one.answer, one) == 1.0
        assert rescore(name, session.context, other.query, one.answer) == 0.0


@pytest.mark.parametrize(
    ("prediction", "score"),
    [(" 1234", 1.0), ("it is 1234.", 1.0), ("12345", 1.0), ("123 4", 0.0), ("", 0.0)],
)
def test_containing_the_label(prediction, score):
    assert scoring.contains(prediction, "1234") == score


@pytest.mark.parametrize(
    ("prediction", "score"),
    [(" apple river stone", 1.0), ("stone, apple", 2 / 3), ("applesauce rivers", 0.0), ("apple apple", 1 / 3), ("", 0.0)],
)
def test_the_part_of_the_names(prediction, score):
    assert scoring.names_found(prediction, ("apple", "river", "stone")) == pytest.approx(score)


def test_a_name_with_a_hyphen_is_one_word():
    assert scoring.names_found("red-apple", ("apple",)) == 0.0
    assert scoring.names_found("red-apple", ("red-apple",)) == 1.0


@pytest.mark.parametrize(
    ("prediction", "number"), [(" 12, 13", "12"), ("about 3.5 or 4", "3.5"), ("x7.", "7"), ("none", ""), ("", "")]
)
def test_the_first_number(prediction, number):
    assert scoring.first_number(prediction) == number


@pytest.mark.parametrize(("prediction", "word"), [(" alpha beta", "alpha"), (": alpha", "alpha"), ("...", ""), ("", "")])
def test_the_first_word(prediction, word):
    assert scoring.first_word(prediction) == word


def test_means_by_turn():
    assert scoring.by_turn([[1.0, 0.0, 1.0], [0.0, 0.0], [0.5]]) == [0.5, 0.0, 1.0]
    assert scoring.by_turn([]) == []
