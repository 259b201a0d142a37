"""The induction model's tokenizer: text comes back as it was, wherever a task may cut it."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure.scbench.lexicon import VOCABULARY, Lexicon
from tenure.scbench.tasks import TASKS
from tenure.scbench.tasks.words import WORDS

ASCII = "\n" + "".join(one for one in string.printable if one >= " ")


@given(st.lists(st.sampled_from([*WORDS, *ASCII, "The ", "VAR ", " = VAR ", "-*-", "1234", "horses"])).map("".join))
def test_printable_ascii_comes_back_as_it_was(text: str) -> None:
    ids = Lexicon().encode(text)
    assert Lexicon().decode(ids) == text
    assert all(0 <= one < VOCABULARY for one in ids)


@given(st.text())
def test_any_text_has_ids_and_is_equal_after_one_round(text: str) -> None:
    once = Lexicon().decode(Lexicon().encode(text))
    assert Lexicon().decode(Lexicon().encode(once)) == once
    assert once.isascii()


def test_a_word_and_two_digits_are_one_id_each() -> None:
    assert [Lexicon().decode([one]) for one in Lexicon().encode("horse: 1234\n")] == ["horse", ":", " 12", "34", "\n"]
    assert len(Lexicon().encode("horses")) == len("horses"), "a word that is not listed is spelt, not cut"


@pytest.mark.parametrize("name", ["retr_kv", "prefix_suffix", "multi_hop", "kv_needle", "math_find", "icl_many_shot"])
def test_a_cut_between_query_and_answer_changes_no_id(name: str) -> None:
    """What stands in the context as one line must be the same ids when it is asked and answered."""
    session = TASKS[name].seeded(3, 24, 3)
    encode = Lexicon().encode
    for turn in session.turns:
        whole = encode(turn.query + turn.answer + session.close)
        assert encode(turn.query) + encode(turn.answer + session.close) == whole
        assert encode(turn.query) + encode(turn.answer) + encode(session.close) == whole
