"""The words and numbers of tasks: distinct, and enough of them."""

from __future__ import annotations

from random import Random

import pytest

from tenure.errors import ConfigError
from tenure.scbench.tasks.words import CATEGORIES, WORDS, distinct, numbers


def test_no_word_is_there_twice():
    assert len(set(WORDS)) == len(WORDS) == 416
    assert {len(words) for words in CATEGORIES.values()} == {26}
    assert all(word.isascii() and word.isalpha() and word.islower() for word in WORDS)


@pytest.mark.parametrize("count", [0, 1, 416, 417, 5000])
def test_names_are_distinct(count):
    names = distinct(Random(1), count)
    assert len(set(names)) == len(names) == count
    assert {name.count("-") for name in names} <= ({0} if count <= 416 else {1}), "no single word is the end of another name"


@pytest.mark.parametrize(("count", "digits"), [(1, 4), (9000, 4), (9001, 5), (90_001, 6)])
def test_numbers_are_distinct_and_of_one_length(count, digits):
    drawn = numbers(Random(1), count)
    assert len(set(drawn)) == len(drawn) == count
    assert {len(number) for number in drawn} == {digits}
    assert not any(number.startswith("0") for number in drawn)


def test_more_names_than_there_are_is_refused():
    with pytest.raises(ConfigError, match="number of names"):
        distinct(Random(1), 416**2 + 1)
