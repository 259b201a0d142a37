"""Small models with seeded weights, engines on them, and the oracle: transformers' own DynamicCache."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

from tenure import BlockManager, Identity, State
from tenure.engines.transformers import Engine, layout_of
from tenure.tiers.device import DeviceArena

torch.set_num_threads(1)  # for tensors this small, threads mostly wait for each other

VOCABULARY = 96
CLOSE = 1e-4


def shape(**changes: Any) -> dict[str, Any]:
    """The sizes of a small model: three layers, two KV heads, no token that ends a text."""
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": 0,
    } | changes


def seeded(make: Any, config: Any, seed: int = 0) -> Any:
    """A model with random weights, large enough that logits differ clearly; in eval mode."""
    torch.manual_seed(seed)
    model = make(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(8)
    return model


def llama(seed: int = 0, **changes: Any) -> Any:
    return seeded(LlamaForCausalLM, LlamaConfig(**shape(**changes)), seed)


@dataclass
class Served:
    """A model on Tenure."""

    kv: BlockManager
    arena: DeviceArena
    engine: Engine

    @property
    def model(self) -> Any:
        return self.engine.model

    def at_rest(self) -> None:
        """The books are right and nothing is in use."""
        counts = self.kv.check()
        assert (counts.active, counts.sealed, self.kv.totals()["sequences"]) == (0, 0, 0)

    def hits(self) -> int:
        """Tokens that were hit so far."""
        return sum(row.tokens_hit for row in self.kv.stats().values())


def served(model: Any, frames: int = 256, block_size: int = 4, **settings: Any) -> Served:
    kv = BlockManager(frames, block_size, clock=lambda: 0.0, **settings)
    arena = DeviceArena(frames, layout_of(model), block_size, dtype="fp32")
    arena.tensor.fill_(float("nan"))  # what nobody has written must not be read
    scatter = arena.scatter

    def watched(frames: Any, *given: Any) -> None:
        for frame in frames:  # others may be reading a block from when it is sealed
            block = kv.block(frame)
            assert block is not None
            assert block.state is State.ACTIVE
        scatter(frames, *given)

    arena.scatter = watched  # type: ignore[method-assign]
    return Served(kv, arena, Engine(model, kv, arena, who=Identity("tiny", weights="digest", tenant="acme")))


def prompts(seed: int, rows: int, length: int) -> torch.Tensor:
    """Token ids [rows, length] without the padding token."""
    return torch.randint(1, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(seed))


def left_padded(*rows: torch.Tensor) -> dict[str, torch.Tensor]:
    """One-dimensional prompts as a batch, padded on the left."""
    width = max(len(row) for row in rows)
    ids = torch.zeros((len(rows), width), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for place, row in enumerate(rows):
        ids[place, width - len(row) :] = row
        mask[place, width - len(row) :] = 1
    return {"input_ids": ids, "attention_mask": mask}


def places(mask: torch.Tensor) -> torch.Tensor:
    return (mask.cumsum(1) - 1).clamp(min=0)


def cold_logits(model: Any, ids: torch.Tensor, mask: torch.Tensor | None = None, *, cut: int = 0) -> torch.Tensor:
    """Logits of the columns from `cut` on, by a DynamicCache that is filled in two passes cut there."""
    mask = torch.ones_like(ids) if mask is None else mask
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        if cut:
            model(ids[:, :cut], attention_mask=mask[:, :cut], position_ids=places(mask)[:, :cut], cache=cache)
        return model(ids[:, cut:], attention_mask=mask, position_ids=places(mask)[:, cut:], cache=cache).logits
