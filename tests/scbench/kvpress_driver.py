"""Scores of tokens by the real kvpress, as JSON: this made kvpress_scores.json.

    python kvpress_driver.py > kvpress_scores.json

It runs where kvpress is (0.5.5 with transformers 5.2.0, in an environment of its own) and imports nothing of Tenure. Weights come
from numpy's generator, since what a seed gives in PyTorch may change."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

TOKENS = 37
WINDOW, KERNEL, AHEAD = 6, 3, 24


def model(**settings: Any) -> Any:
    """A Llama of two layers with two KV heads of 8, its weights drawn in the order of their names."""
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
        tie_word_embeddings=False,
        **settings,
    )
    made = LlamaForCausalLM(config).eval()
    draw = np.random.default_rng(7)
    with torch.no_grad():
        for name, part in sorted(made.named_parameters()):
            if part.ndim > 1:
                part.copy_(torch.from_numpy(draw.standard_normal(tuple(part.shape)) * (1 if "embed" in name else 0.25)))
    return made


def ids() -> list[int]:
    """The context's tokens."""
    found: list[int] = np.random.default_rng(8).integers(1, 64, TOKENS).tolist()
    return found


def scores() -> dict[str, list[Any]]:
    """By method for each layer [kv_heads, tokens]."""
    import kvpress

    presses = {
        "snapkv": kvpress.SnapKVPress(0.1, window_size=WINDOW, kernel_size=KERNEL),
        "tova": kvpress.TOVAPress(0.1),
        "observed": kvpress.ObservedAttentionPress(0.1),
        "keydiff": kvpress.KeyDiffPress(0.1),
        "expected": kvpress.ExpectedAttentionPress(0.1, n_future_positions=AHEAD, epsilon=0.0),
    }
    found: dict[str, list[Any]] = {}
    for name, press in presses.items():
        judge, seen = press.score, []

        def watched(*given: Any, judge: Any = judge, seen: list[Any] = seen, **named: Any) -> Any:
            score = judge(*given, **named)
            seen.append([[round(number, 7) for number in head] for head in score[0].tolist()])
            return score

        press.score = watched
        judged = model(attn_implementation="eager" if name == "observed" else "sdpa")
        with torch.no_grad(), press(judged):
            judged.model(torch.tensor([ids()]))
        found[name] = seen
    return found


if __name__ == "__main__":
    print(json.dumps(scores()))
