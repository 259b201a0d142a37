"""How alike two texts are: token F1, ROUGE-Lsum and smoothed BLEU, as SCBench's long answers are scored. `original` calls them;
pure functions, without the packages that usually compute them."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence

__all__ = ["bleu", "f1_chinese", "rouge_lsum"]


def f1_chinese(prediction: str, truth: str) -> float:
    """F1 over characters; case, spaces, punctuation and symbols do not count."""
    said, true = (
        Counter(one for one in text.lower() if unicodedata.category(one)[0] not in "PSZC") for text in (prediction, truth)
    )
    same = (said & true).total()
    return 2 * same / (said.total() + true.total()) if same else 0.0


def rouge_lsum(prediction: str, truth: str) -> float:
    """ROUGE-Lsum's F1 without stemming: each line of the truth against the union of its longest common subsequences with the
    prediction's lines; a word counts at most as often as it is on both sides."""
    said, true = ([re.findall("[a-z0-9]+", line) for line in text.lower().split("\n")] for text in (prediction, truth))
    left = Counter(word for line in said for word in line)
    words = sum(map(len, said)) + sum(map(len, true))
    hits = 0
    for line in true:
        for at in sorted(set().union(*(_common(line, other) for other in said))):
            if left[line[at]] > 0:
                left[line[at]] -= 1
                hits += 1
    return 2 * hits / words if hits else 0.0


def bleu(prediction: str, truth: str) -> float:
    """Sentence BLEU-4 over words between spaces, with one truth. The i-th order without a match counts as ln length / (2^i * 5)
    hits (Chen and Cherry's method 4, the one that RepoQA uses)."""
    said, true = prediction.split(), truth.split()
    if not set(said) & set(true):
        return 0.0
    missed, total = 0, 0.0
    for order in range(1, 5):
        hits: float = (_grams(said, order) & _grams(true, order)).total()
        if hits == 0 and len(said) > 1:
            missed += 1
            hits = math.log(len(said)) / (2**missed * 5)
        total += math.log(hits / max(1, len(said) - order + 1)) / 4 if hits else 0.0
    return math.exp(total + min(0.0, 1 - len(true) / len(said)))


def _grams(words: Sequence[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[at : at + order]) for at in range(len(words) - order + 1))


def _common(line: Sequence[str], other: Sequence[str]) -> set[int]:
    """The places in `line` of one longest common subsequence with `other`."""
    lengths = [[0] * (len(other) + 1) for _ in range(len(line) + 1)]
    for i, word in enumerate(line):
        for j, rival in enumerate(other):
            lengths[i + 1][j + 1] = lengths[i][j] + 1 if word == rival else max(lengths[i][j + 1], lengths[i + 1][j])
    places, i, j = set(), len(line), len(other)
    while i and j:
        if line[i - 1] == other[j - 1]:
            i, j = i - 1, j - 1
            places.add(i)
        elif lengths[i][j - 1] > lengths[i - 1][j]:
            j -= 1
        else:
            i -= 1
    return places
