"""Contexts through a block manager: run once, hit bit for bit, and nothing in a block that full attention did not compute."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs tenure[model]")
pytest.importorskip("transformers", reason="needs tenure[model]")

from tenure.scbench.attend import run
from tenure.scbench.contexts import Contexts
from tenure.scbench.kv import Context
from tenure.scbench.methods import ALL, METHODS
from tenure.scbench.model import Subject

from .making import CLOSE, SMALL, ids

SIZE = 4
DENSE = METHODS["dense"]


class Numbers:
    """A tokenizer that nothing here needs."""

    def encode(self, text: str) -> list[int]:
        return [int(word) for word in text.split()]

    def decode(self, ids: list[int]) -> str:
        return " ".join(map(str, ids))


@pytest.fixture
def subject(tiny: Any) -> Subject:
    return Subject("tiny", "of-no-file", tiny, Numbers())


def same(one: Context, two: Context) -> bool:
    parts = zip(
        (*one.kv.keys, *one.kv.values, *one.observed().vectors),
        (*two.kv.keys, *two.kv.values, *two.observed().vectors),
        strict=True,
    )
    return all(torch.equal(a, b) for a, b in parts) and one.kv.exact == two.kv.exact == one.kv.length


def test_a_context_is_what_one_pass_computes(subject: Subject) -> None:
    tokens = ids(1, 27)
    found, whole = Contexts(subject, SIZE).of(tokens, DENSE, 1.0), run(subject.model, tokens, observe=ALL, block_size=SIZE)
    assert found.logits is not None
    assert (found.logits - whole.logits).abs().max() < CLOSE
    for part, other in zip((*found.kv.keys, *found.observed().vectors), (*whole.kv.keys, *whole.queries.vectors), strict=True):
        assert (part - other).abs().max() < CLOSE
    assert found.observed().first == 0
    assert found.observed().scale == whole.queries.scale


def test_hits_change_no_bit_and_are_not_run_again(subject: Subject) -> None:
    shared, rest = ids(1, 22), ids(2, 5)
    cold = Contexts(subject, SIZE).of(shared + rest, DENSE, 1.0, shared=22)
    contexts = Contexts(subject, SIZE)
    contexts.of(shared, DENSE, 1.0)
    contexts.of(ids(3, 9), DENSE, 1.0)
    before = contexts.encoded
    warm = contexts.of(shared + rest, DENSE, 1.0, shared=22)
    assert same(warm, cold)
    assert torch.equal(warm.logits, cold.logits)
    assert contexts.encoded - before == 2 + 5  # the open block's, and what is new
    assert contexts.asked == 22 + 9 + 27


def test_other_methods_share_the_run(subject: Subject) -> None:
    contexts, tokens = Contexts(subject, SIZE), ids(1, 24)
    for name in ("dense", "streaming", "h2o", "quest", "kivi-int4"):
        contexts.of(tokens, SMALL.get(name, METHODS[name]), 0.5)
    assert contexts.encoded == 24
    assert contexts.asked == 5 * 24


@pytest.mark.parametrize("name", ["streaming", "h2o", "kivi-int2", "codec-int4", "a_shape", "tri_shape"])
def test_nothing_but_full_attention_is_ever_hit(subject: Subject, name: str) -> None:
    """Control: the method's own KV is another."""
    tokens = ids(1, 72)
    contexts = Contexts(subject, SIZE)
    other = contexts.of(tokens, SMALL.get(name, METHODS[name]), 0.5)
    contexts.of(ids(3, 9), DENSE, 1.0)  # what was last is not held
    found = contexts.of(tokens, DENSE, 1.0)
    assert same(found, Contexts(subject, SIZE).of(tokens, DENSE, 1.0))
    assert other.kv.exact < 72
    assert any(
        a.shape != b.shape or not torch.equal(a, b)
        for a, b in zip(other.kv.keys + other.kv.values, found.kv.keys + found.kv.values, strict=True)
    )


def test_a_context_longer_than_all_that_is_kept_is_run_without(subject: Subject) -> None:
    contexts, tokens = Contexts(subject, SIZE, tokens=16), ids(1, 24)
    for asked in (1, 2):
        assert same(contexts.of(tokens, DENSE, 1.0), Contexts(subject, SIZE).of(tokens, DENSE, 1.0))
        contexts.of(ids(3, 9), DENSE, 1.0)
        assert contexts.encoded == asked * 24 + 8 + asked


def test_a_pass_that_fails_leaves_nothing_to_hit(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    contexts, tokens = Contexts(subject, SIZE), ids(1, 24)

    def fails(*args: Any, **settings: Any) -> Any:
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patched:
        patched.setattr("tenure.scbench.contexts.run", fails)
        with pytest.raises(RuntimeError):
            contexts.of(tokens, DENSE, 1.0)
    assert contexts.blocks.check()
    assert same(contexts.of(tokens, DENSE, 1.0), Contexts(subject, SIZE).of(tokens, DENSE, 1.0))
