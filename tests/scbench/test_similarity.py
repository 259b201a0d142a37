"""Likeness of texts: values worked out by hand, and those of the packages that SCBench computes them with."""

from __future__ import annotations

import math

import pytest

from tenure.scbench.similarity import bleu, f1_chinese, rouge_lsum


@pytest.mark.parametrize(
    ("prediction", "truth", "value"),
    [
        ("the cat sat on the mat", "the cat sat on the mat", 1.0),
        ("the cat", "the cat sat", 2 * 2 / 5),  # two hits of two and three words
        ("Cat, the!", "the cat", 2 * 1 / 4),  # in another order only one is in a common subsequence
        ("a b\nc d", "a b c d", 1.0),  # the union over lines
        ("a a a", "a", 2 * 1 / 4),  # a word counts once where the truth has it once
        ("", "a b", 0.0),
        ("x", "", 0.0),
    ],
)
def test_rouge_lsum(prediction, truth, value):
    assert rouge_lsum(prediction, truth) == pytest.approx(value)


@pytest.mark.parametrize(
    ("prediction", "truth", "value"),
    [
        ("a b c d e", "a b c d e", 1.0),
        ("a b c d", "a b c d e", math.exp(1 - 5 / 4)),  # all matches, too short
        ("x y", "a b", 0.0),
        ("", "a b", 0.0),
        ("a b c d e f", "a b c d e x", (5 / 6 * 4 / 5 * 3 / 4 * 2 / 3) ** 0.25),
    ],
)
def test_bleu(prediction, truth, value):
    assert bleu(prediction, truth) == pytest.approx(value)


@pytest.mark.parametrize(
    ("prediction", "truth", "value"),
    [
        ("北京", "北京", 1.0),
        ("北京。", " 北 京！", 1.0),
        ("在北京", "北京", 2 * 2 / 5),
        ("上海", "北京", 0.0),
        ("", "北京", 0.0),
        ("。", "。", 0.0),
    ],
)
def test_f1_over_characters(prediction, truth, value):
    assert f1_chinese(prediction, truth) == pytest.approx(value)
