"""What the benchmark needs of a causal language model: its torch module, its tokenizer, its sizes and a digest of its weights.
The runner and the methods call it; it never generates text, keeps no KV and downloads nothing."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from tenure.checks import encodable
from tenure.engines.support import layout_of, refuse_unsupported
from tenure.errors import ConfigError, TokenError
from tenure.identity import content_digest
from tenure.models import smollm2
from tenure.scbench.induction import induction
from tenure.tiers.device import DTYPES, dtype_name

__all__ = ["Subject", "subject"]

_NAMED = ("induction", "smollm2")


class _Tokenizer(Protocol):
    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: list[int]) -> str: ...


@dataclass(frozen=True)
class Subject:
    """A causal LM of the llama family, in eval mode, with its tokenizer.

    name: how reports call it. digest: of its weights and configuration, for an Identity. model: transformers' LlamaForCausalLM.
    start: the ids that open a sequence, before any text. stop: the ids after which an answer has ended.
    Raises ConfigError for a model of another family, or one that no engine could serve from blocks.
    """

    name: str
    digest: str
    model: Any
    tokenizer: _Tokenizer
    start: tuple[int, ...] = ()
    stop: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        _refuse(self.name, self.model.config)
        refuse_unsupported(self.model)

    def encode(self, text: str) -> list[int]:
        """The ids of a piece of text, without any that the tokenizer would add. Raises TokenError for what is no text."""
        if not isinstance(text, str) or not encodable(text):
            raise TokenError(f"text is {text!r}: a string that UTF-8 can say is needed")
        return self.tokenizer.encode(text)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids, special tokens left out. Raises TokenError for ids outside the vocabulary."""
        wanted = [int(one) for one in ids]
        if strange := [one for one in wanted if not 0 <= one < self.vocabulary]:
            raise TokenError(f"token {strange[0]} is not in the vocabulary: ids are 0 to {self.vocabulary - 1}")
        return self.tokenizer.decode(wanted)

    @property
    def layers(self) -> int:
        """Layers that keep KV."""
        return layout_of(self.model).layers

    @property
    def heads(self) -> int:
        """Query heads of a layer."""
        return int(self.model.config.num_attention_heads)

    @property
    def kv_heads(self) -> int:
        """KV heads of a layer."""
        return layout_of(self.model).heads

    @property
    def head_size(self) -> int:
        """Numbers in one head's key or value of one token."""
        return layout_of(self.model).head_size

    @property
    def token_bytes(self) -> int:
        """Bytes of KV that one token takes."""
        return 2 * self.layers * self.kv_heads * self.head_size * int(self.model.dtype.itemsize)

    @property
    def vocabulary(self) -> int:
        """Ids are 0 to this, less one."""
        return int(self.model.config.vocab_size)

    @property
    def context(self) -> int:
        """Tokens that the model was made for."""
        return int(self.model.config.max_position_embeddings)


def subject(name: str | Path, dtype: str = "fp32", device: str | torch.device = "cpu") -> Subject:
    """The model of that name ("induction", "smollm2"), or of that folder in transformers' format with safetensors.

    dtype: "fp32", "bf16" or another of an arena's. Raises ConfigError for a name, folder or device that cannot be used, and says
    why.
    """
    kind, device = DTYPES[dtype_name(dtype)], _device(device)
    if name == "induction":
        trained = induction()
        return Subject("induction", trained.weights, trained.model.to(device, kind), trained.tokenizer)
    if name == "smollm2":
        model, tokenizer, weights = smollm2(dtype, device)
        return Subject("smollm2", weights, model, _Hf(tokenizer), _start(tokenizer), _stop(model, tokenizer))
    if not isinstance(name, str | Path) or not name:
        raise _no_model(name)
    return _from_folder(Path(name), kind, device)


def _device(name: str | torch.device) -> torch.device:
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as problem:  # whichever torch raises for it
        raise ConfigError(f"nothing runs on device {str(name)!r}: {str(problem).splitlines()[0]}") from None
    return device


def _no_model(name: object) -> ConfigError:
    needed = "a folder with config.json, *.safetensors and a tokenizer"
    return ConfigError(f"{str(name)!r} is no model: {', '.join(_NAMED)}, or {needed} is needed")


def _from_folder(folder: Path, dtype: torch.dtype, device: str | torch.device) -> Subject:
    """A model of the user's."""
    about, weights = folder / "config.json", sorted(folder.glob("*.safetensors"))
    if not about.is_file() or not weights:
        raise _no_model(folder)
    from transformers import AutoTokenizer, LlamaForCausalLM

    try:
        config = json.loads(about.read_text())
        _refuse(str(folder), _Plain(config.get("model_type")))
        model, found = LlamaForCausalLM.from_pretrained(
            folder, dtype=dtype, local_files_only=True, use_safetensors=True, output_loading_info=True
        )
        if lacking := sorted(found["missing_keys"]):
            raise ConfigError(f"{folder} lacks {len(lacking)} weights that its config.json asks for: {lacking[0]} is the first")
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        digest = content_digest(*(np.memmap(file, np.uint8, "r").data for file in [about, *weights]))
    except ConfigError:
        raise
    except Exception as problem:  # whatever the library makes of a damaged folder
        raise ConfigError(f"{folder} cannot be loaded: {type(problem).__name__}: {problem}") from None
    name = folder.resolve().name
    return Subject(name, digest, model.to(device).eval(), _Hf(tokenizer), _start(tokenizer), _stop(model, tokenizer))


@dataclass(frozen=True)
class _Plain:
    model_type: Any


def _refuse(name: str, config: Any) -> None:
    if config.model_type != "llama":
        raise ConfigError(f"{name} is a {config.model_type} model: one of the llama family is needed")


@dataclass(frozen=True)
class _Hf:
    """A tokenizer of transformers that adds nothing and tidies nothing."""

    inner: Any

    def encode(self, text: str) -> list[int]:
        return list(self.inner(text, add_special_tokens=False, verbose=False)["input_ids"])

    def decode(self, ids: list[int]) -> str:
        return str(self.inner.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False))


def _start(tokenizer: Any) -> tuple[int, ...]:
    """What the tokenizer puts before a text (some put nothing)."""
    added, bare = (tokenizer("a", add_special_tokens=special)["input_ids"] for special in (True, False))
    first = tokenizer.bos_token_id
    return (first,) if first is not None and added[:1] == [first] != bare[:1] else ()


def _stop(model: Any, tokenizer: Any) -> frozenset[int]:
    """Every id that ends a text, as the model's own generation settings and its tokenizer name them."""
    ends = [tokenizer.eos_token_id]
    with contextlib.suppress(AttributeError):
        named = model.generation_config.eos_token_id
        ends += named if isinstance(named, list) else [named]
    return frozenset(int(end) for end in ends if end is not None)
