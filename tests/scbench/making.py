"""A small Llama with seeded weights, token ids, and what the tests compare by."""

from __future__ import annotations

from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tenure.scbench.kv import Context
from tenure.scbench.methods import METHODS, Method
from tenure.scbench.methods.cacheblend import CacheBlend, Pieces
from tenure.scbench.methods.expected import ExpectedAttention
from tenure.scbench.methods.pyramidkv import PyramidKV
from tenure.scbench.methods.snapkv import SnapKV
from tenure.scbench.methods.tri_shape import TriShape
from tenure.scbench.reading import Reading, prefill

torch.set_num_threads(1)  # for tensors this small, threads mostly wait for each other

VOCABULARY = 64
SIZE = 4
CLOSE = 1e-4
TOKENS = 57
"""Of a context: fourteen sealed blocks and an open one."""
PIECE = 8
"""Tokens: two blocks."""
SMALL: dict[str, Method] = METHODS | {
    method.name: method
    for method in (
        SnapKV(6, 3),
        PyramidKV(6, 3, slope=2),
        ExpectedAttention(ahead=24),
        TriShape(tail=5),
        CacheBlend(PIECE),
        Pieces(PIECE),
    )
}
"""The methods, with what is counted in tokens fit for a small context."""


def llama(seed: int = 0, **changes: Any) -> Any:
    """Two layers, four heads, two KV heads of 8; weights large enough that heads differ in what they attend to."""
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": 0,
    }
    torch.manual_seed(seed)
    model = LlamaForCausalLM(LlamaConfig(**(sizes | changes))).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(6)
    return model


def ids(seed: int, count: int) -> list[int]:
    """Token ids, the same for a seed."""
    found: list[int] = torch.randint(1, VOCABULARY, (count,), generator=torch.Generator().manual_seed(seed)).tolist()
    return found


def asked(model: Any, method: Method, budget: float, tokens: list[int], question: list[int]) -> tuple[Context, torch.Tensor]:
    """A context made a method's way, and the logits behind a question to it."""
    context = prefill(model, tokens, method, budget, SIZE)
    return context, Reading(model, context, method, budget).feed(question)
