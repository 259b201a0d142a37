"""Likeness of texts: values worked out by hand, and those of the packages that SCBench computes them with."""

from __future__ import annotations

import math
import re
from random import Random

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
        ("the quick brown fox\njumps over dogs", "a quick fox jumps\nover the lazy dogs", 0.8),  # rouge-score 0.1.2
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
        ("def f(a):\n    return a + 1", "def f(b):\n    return b + 1", 0.11556377708900069),  # nltk 3.10.4
        ("the quick brown fox\njumps over dogs", "a quick fox jumps\nover the lazy dogs", 0.19905088688166872),
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


def drawn(random: Random) -> str:
    words = ["a", "b", "c", "the", "cat,", "X.", "foo_bar", "12"]
    return "".join(random.choice(words) + random.choice([" ", " ", "  ", "\n"]) for _ in range(random.randint(1, 25)))


@pytest.fixture
def pairs() -> list[tuple[str, str]]:
    """Texts that are alike to every degree."""
    random = Random(1)
    made = []
    for changes in range(200):
        truth = drawn(random)
        words = truth.split(" ")
        for _ in range(changes % 5):
            words[random.randrange(len(words))] = drawn(random)
        made.append((" ".join(words), truth))
    return made


def test_bleu_is_the_packages(pairs):
    package = pytest.importorskip("nltk.translate.bleu_score", reason="nltk is not installed")
    smooth = package.SmoothingFunction().method4
    for said, true in pairs:
        words = [re.split(r"\s+", text.strip()) for text in (true, said)]
        assert bleu(said, true) == pytest.approx(package.sentence_bleu(words[:1], words[1], smoothing_function=smooth))


def test_rouge_lsum_is_the_packages(pairs):
    package = pytest.importorskip("rouge_score.rouge_scorer", reason="rouge-score is not installed")
    scorer = package.RougeScorer(["rougeLsum"])
    for said, true in pairs:
        assert rouge_lsum(said, true) == pytest.approx(scorer.score(true, said)["rougeLsum"].fmeasure)
