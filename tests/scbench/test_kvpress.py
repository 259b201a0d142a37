"""Scores of tokens against those of kvpress 0.5.5, recorded by kvpress_driver.py: an oracle that others wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs tenure[model]")
transformers = pytest.importorskip("transformers", reason="needs tenure[model]")

from tenure.scbench.kv import Context
from tenure.scbench.methods import ALL
from tenure.scbench.methods.expected import ExpectedAttention
from tenure.scbench.methods.h2o import H2O
from tenure.scbench.methods.keydiff import KeyDiff
from tenure.scbench.methods.snapkv import SnapKV
from tenure.scbench.methods.tova import Tova
from tenure.scbench.reading import prefill

from .kvpress_driver import AHEAD, KERNEL, TOKENS, WINDOW, ids, model

METHODS: dict[str, Any] = {
    "snapkv": SnapKV(WINDOW, KERNEL),
    "tova": Tova(),
    "observed": H2O(),
    "keydiff": KeyDiff(),
    "expected": ExpectedAttention(AHEAD),
}
RECORDED: dict[str, Any] = json.loads((Path(__file__).parent / "kvpress_scores.json").read_text())


@pytest.fixture(scope="module")
def context() -> Context:
    return prefill(model(), ids(), observe=ALL)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_scores_are_those_of_kvpress(context: Context, name: str) -> None:
    for layer in range(2):
        found, wanted = METHODS[name].tokens(context, layer), torch.tensor(RECORDED[name][layer])
        if name == "observed":  # there the mean over the queries that can see the token
            found = found / torch.arange(TOKENS, 0, -1)
        assert found.shape == wanted.shape == (2, TOKENS)
        first = found.isinf()
        assert first.sum(-1).tolist() == [{"snapkv": WINDOW, "tova": 1, "expected": 4}.get(name, 0)] * 2
        others = wanted[~first]
        assert (wanted[first] > others.max()).all()
        assert (found[~first] - others).abs().max() < 1e-5 * max(1.0, float(others.abs().max()))
        assert others.std() > 1e-3  # it tells tokens apart


def test_no_two_of_them_are_alike() -> None:
    names = sorted(RECORDED)
    assert names == sorted(METHODS)
    assert all(RECORDED[one] != RECORDED[two] for one in names for two in names if one < two)
