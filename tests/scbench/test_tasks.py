"""What every task keeps to, at any seed and size; and known sessions, so that a seed means the same one for ever."""

from __future__ import annotations

import hashlib
import re
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.errors import ConfigError
from tenure.scbench.session import Session, Turn
from tenure.scbench.tasks import TASKS, Task
from tenure.scbench.tasks.base import drawn
from tenure.scbench.tasks.words import distinct

from .rescore import truth

UNIQUE = ("retr_kv", "prefix_suffix", "math_find", "kv_needle", "code_search")
"""Tasks of whose labels the context has just one."""
SHOWN = [name for name in TASKS if name != "icl_many_shot"]
few = settings(max_examples=40, derandomize=True, deadline=None)
any_task = st.sampled_from(sorted(TASKS))
any_seed = st.integers(0, 2**31)


@st.composite
def sessions(draw, names=any_task):
    task = TASKS[draw(names)]
    turns = draw(st.integers(1, min(6, task.most_turns)))
    size = draw(st.integers(task.least(turns), min(task.most(), 240)))
    return task, size, turns, task.seeded(draw(any_seed), size, turns)


def units(name: str, context: str) -> int:
    """How many of what `size` counts a context has."""
    assert context.endswith("\n")
    if name == "math_find":
        return len(context.split())
    if name == "code_search":
        return len(re.findall("^def ", context, re.MULTILINE))
    return context.count("\n")


@few
@given(sessions())
def test_lengths_are_as_asked(made):
    task, size, turns, session = made
    assert units(task.name, session.context) == size
    assert len(session.turns) == turns
    assert session.task == task.name


@few
@given(sessions())
def test_labels_are_in_the_context_and_are_the_true_answer(made):
    task, _, _, session = made
    for turn in session.turns:
        assert all(label in session.context for label in turn.labels)
        assert sorted(turn.labels) == sorted(truth(task.name, session.context, turn.query))
        assert task.score(turn.answer, turn) == 1.0


@few
@given(sessions(st.sampled_from(UNIQUE)))
def test_no_distractor_has_the_label(made):
    task, _, _, session = made
    for turn in session.turns:
        if task.name == "code_search":
            assert re.findall(r"\w+", session.context).count(turn.labels[0]) == 1
        else:
            assert session.context.count(turn.labels[0]) == 1


@few
@given(sessions())
def test_no_question_is_answered_before_it_is_asked(made):
    task, _, _, session = made
    queries = [turn.query for turn in session.turns]
    assert len(set(queries)) == len(queries)
    shown = session.primer
    for turn in session.turns:
        assert f"\n{turn.query}" not in f"\n{shown}"
        if task.name in UNIQUE and task.name != "code_search":
            assert turn.labels[0] not in shown
        shown += turn.query + turn.answer + session.close


@few
@given(sessions(st.sampled_from(sorted(SHOWN))))
def test_a_primer_shows_solved_questions_in_the_form_of_the_queries(made):
    task, _, _, session = made
    if task.name == "code_search":
        solved = re.findall(r"(# .*\ndef) (.*)\n", session.primer)
    else:
        solved = re.findall(r"^(.*(?::| is)) (.*)\n", session.primer, re.MULTILINE)
    assert solved
    for query, answer in solved:
        assert sorted(answer.split()) == sorted(truth(task.name, session.context, query))


@few
@given(sessions())
def test_texts_meet_where_no_word_runs_on(made):
    _, _, _, session = made
    for text in (session.context, session.primer):
        assert not text or text.endswith("\n")
    for turn in session.turns:
        assert turn.query == turn.query.strip()
        assert turn.answer == " " + turn.answer.strip()
        assert "\n" not in turn.answer


@few
@given(any_task, any_seed)
def test_a_seed_is_a_session(name, seed):
    task = TASKS[name]
    size = max(60, task.least(3))
    assert task.seeded(seed, size, 3) == task.seeded(seed, size, 3)
    assert task.seeded(seed, size, 3).seed == seed
    assert task.seeded(seed, size, 3).context != task.seeded(seed + 1, size, 3).context
    assert task.session(Random(seed), size, 3) == task.session(Random(seed), size, 3)


@pytest.mark.parametrize("name", sorted(TASKS))
@pytest.mark.parametrize(
    ("size", "turns"), [(0, 1), (-1, 1), (50, 0), (50, 10_000), (1 << 30, 1), ("50", 1), (50, 1.5), (True, 1)]
)
def test_bad_sizes_are_refused(name, size, turns):
    with pytest.raises(ConfigError, match=r"size|turns"):
        TASKS[name].session(Random(1), size, turns)


@few
@given(sessions(st.just("prefix_suffix")))
def test_neither_end_of_a_string_finds_it_alone(made):
    _, _, _, session = made
    lines = [line.split("-") for line in session.context.splitlines()]
    for begin, _, end in lines:
        assert sum(line[0] == begin for line in lines) > 1
        assert sum(line[2] == end for line in lines) > 1


@few
@given(sessions(st.just("icl_many_shot")))
def test_words_that_are_asked_about_are_not_among_the_shots(made):
    task, _, _, session = made
    words = [line.split(": ")[0] for line in session.context.splitlines()]
    labels = [line.split(": ")[1] for line in session.context.splitlines()]
    assert not {turn.query.rstrip(":") for turn in session.turns} & set(words)
    assert max(map(labels.count, labels)) - min(map(labels.count, labels)) <= 1
    assert task.chance == 1 / len(set(labels))


@few
@given(sessions(st.just("kv_needle")))
def test_both_kinds_take_turns(made):
    _, size, turns, session = made
    assert [turn.kind for turn in session.turns] == [("kv", "needle")[at % 2] for at in range(turns)]
    assert len(re.findall(r"^[\w-]+: \d+$", session.context, re.MULTILINE)) == size // 2


@pytest.mark.parametrize("name", sorted(TASKS))
def test_the_greatest_size_that_fits(name):
    task = TASKS[name]
    tokens = len(task.seeded(0, 90, 2).context)
    size = task.fit(tokens, 2, len)
    assert len(task.seeded(0, size, 2).context) <= tokens < len(task.seeded(0, size + 1, 2).context)
    with pytest.raises(ConfigError, match="tokens"):
        task.fit(3, 2, len)


class Echo(Task):
    """A newcomer's whole task."""

    name = "echo"
    unit = "words"

    def draw(self, random, size, turns):
        words = distinct(random, size)
        asked, solved = drawn(random, words, turns)
        context = "".join(f"{word}\n" for word in words)
        primer = "".join(f"{word}, {word}\n" for word in solved)
        return Session(self.name, 0, context, tuple(Turn(f"{word},", f" {word}", (word,)) for word in asked), primer)


def test_a_newcomers_task_needs_no_more_than_draw():
    task = Echo()
    session = task.seeded(3, 9, 2)
    assert len(session.context.split()) == 9
    assert [task.score(turn.answer, turn) for turn in session.turns] == [1.0, 1.0]
    assert task.fit(len(session.context), 2, len) >= 3
    with pytest.raises(ConfigError, match="size"):
        task.session(Random(1), 2, 2)


def test_known_sessions():
    """Read by eye: a seed must mean the same session for ever."""
    pairs = TASKS["retr_kv"].seeded(7, 5, 1)
    assert pairs.context == "leather: 7862\npear: 9543\nguitar: 3962\ncap: 9497\nocean: 4991\n"
    assert pairs.primer == "Look-ups:\ncap: 9497\nocean: 4991\nleather: 7862\nguitar: 3962\n"
    assert pairs.turns == (Turn("pear:", " 9543", ("9543",)),)
    chains = TASKS["multi_hop"].seeded(7, 7, 1)
    assert chains.context.splitlines() == [
        "VAR butter = 7864",
        "VAR belt = 7815",
        "VAR uncle = 8719",
        "VAR potato = VAR uncle",
        "VAR cactus = VAR belt",
        "VAR bread = VAR cactus",
        "VAR head = VAR potato",
    ]
    assert chains.primer == "Look-ups:\nVAR = 8719: uncle potato head\n"
    assert chains.turns == (Turn("VAR = 7815:", " belt cactus bread", ("belt", "cactus", "bread")),)


@pytest.mark.parametrize(
    ("name", "digest"),
    [
        ("icl_many_shot", "7b2227c968326c59"),
        ("kv_needle", "16644bd72a08d0a0"),
        ("math_find", "2510624562002c65"),
        ("multi_hop", "2f761d5a9824cb5a"),
        ("prefix_suffix", "e228377ab6d38912"),
        ("retr_kv", "cd07356c2bae05d3"),
    ],
)
def test_known_digests(name, digest):
    session = TASKS[name].seeded(7, 40, 3)
    texts = [session.context, session.primer, *(text for turn in session.turns for text in (turn.query, turn.answer))]
    assert hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16] == digest
