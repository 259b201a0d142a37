"""A language model of two layers that finds a key and reads on from it: its shape, its first weights, and its folder of weights.
The trainer and `subject` call it; it never trains."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file

from tenure.checks import integer
from tenure.errors import ConfigError
from tenure.identity import content_digest
from tenure.models.cache import cache_folder, made_once
from tenure.scbench.lexicon import VOCABULARY, Lexicon

__all__ = ["Induction", "fresh", "induction", "kept", "trained"]

FORMAT = 2
"""Of the weights: another shape, lexicon or training, another number."""
LAYERS, HEADS, WIDTH, HEAD, INNER = 2, 8, 128, 32, 16
CONTEXT = 8192
_BACK = 4  # tokens that the first layer looks back
_THETA = 1e10  # most of a head's pairs of dimensions hardly turn within the context: content is matched there
_CODE = (
    24  # dimensions of a token's code in the residual; in places for its own and for those of each token that is looked back at
)
_SLOW = 6  # the first pair of dimensions that turns slowly
_GAIN = 0.42  # of the first layer's queries and keys: a token at the right distance scores about 8 above its neighbours
_NEXT = (((0, 1), (1, 2), (2, 3), (3, 4)), 0)
_ENDS = (((0, 4), (3, 0)), 3)
_ALIGNED = (_NEXT, _NEXT, _NEXT, _NEXT, _ENDS, _ENDS, (((0, 3), (1, 4), (4, 0)), 2), (((2, 0), (3, 1)), 3))
"""For each head of the last layer: which place of a query is matched with which of a key, and which of the key's is read. Four
read what came next, three find a string by both its ends, one the name that was given a number: what the tasks ask for."""
_ABOUT, _WEIGHTS = "tenure.json", "model.safetensors"


class Induction(NamedTuple):
    """The trained model in eval mode, its tokenizer, and the digest of its weights."""

    model: Any
    tokenizer: Lexicon
    weights: str


def fresh(seed: int) -> Any:
    """A LlamaForCausalLM of under half a million parameters that is about to learn induction.

    The residual holds a token's code in five places of 24 dimensions. In the first layer, head h attends to the token h + 1
    before, by RoPE phase alone, and puts that token's code into place h + 1. In the last, heads match places of the query with
    places of the keys, in the dimensions that RoPE turns slowly. Training does the rest; from a plain start a short one finds
    nothing.
    """
    with torch.random.fork_rng(devices=[]):  # what the library draws is not used: leave the caller's generator alone
        model = _shaped()
    random = torch.Generator().manual_seed(integer("seed", seed, 0, (1 << 63) - 1))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.copy_(torch.randn(parameter.shape, generator=random) * 0.02)
        _codes(model, random)
        _look_back(model.model.layers[0].self_attn)
        _match(model.model.layers[1].self_attn, random)
    return model


def _shaped() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        head_dim=HEAD,
        max_position_embeddings=CONTEXT,
        rope_parameters={"rope_type": "default", "rope_theta": _THETA},
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    return LlamaForCausalLM(config)


def _place(of: int) -> slice:
    return slice(of * _CODE, (of + 1) * _CODE)


def _codes(model: Any, random: torch.Generator) -> None:
    """A random code for each token in place 0, and one dimension that is the same for all."""
    codes = torch.randn(VOCABULARY, _CODE, generator=random)
    codes *= math.sqrt(_CODE) / codes.norm(dim=1, keepdim=True)
    model.model.embed_tokens.weight[:, _place(0)] = codes
    model.model.embed_tokens.weight[:, -1] = math.sqrt(_CODE)
    model.lm_head.weight[:, _place(_BACK)] = codes * 0.3


def _look_back(attention: Any) -> None:
    """Queries and keys that are constant but for RoPE: the phases meet at a distance of h + 1."""
    pairs = HEAD // 2
    turn = _THETA ** -(torch.arange(pairs) / pairs)
    sharp = torch.tensor([8.0, 8.0, 4.0, 2.0] + [1.0] * (pairs - 4)).sqrt()
    for head in range(_BACK):
        rows = slice(head * HEAD, (head + 1) * HEAD)
        ahead = (head + 1) * turn
        attention.q_proj.weight[rows, -1] = torch.cat([sharp * ahead.cos(), -sharp * ahead.sin()]) * _GAIN
        attention.k_proj.weight[rows, -1] = torch.cat([sharp, torch.zeros(pairs)]) * _GAIN
        carried = torch.eye(_CODE)
        attention.v_proj.weight[rows][:_CODE, _place(0)] = carried
        attention.o_proj.weight[_place(head + 1), head * HEAD : head * HEAD + _CODE] = carried


def _match(attention: Any, random: torch.Generator) -> None:
    """Scores that are high where what stands before a key is what stands before the query; one of its places is read."""
    slow = torch.cat([torch.arange(_SLOW, HEAD // 2), torch.arange(HEAD // 2 + _SLOW, HEAD)])
    for head, (aligned, read) in enumerate(_ALIGNED):
        for of_query, of_key in aligned:
            view = torch.randn(len(slow), _CODE, generator=random) / math.sqrt(len(slow))
            attention.q_proj.weight[head * HEAD + slow, _place(of_query)] = view
            attention.k_proj.weight[head * HEAD + slow, _place(of_key)] = view
        rows = slice(head * HEAD, head * HEAD + _CODE)
        attention.v_proj.weight[rows, _place(read)] = torch.eye(_CODE)
        attention.o_proj.weight[_place(_BACK), rows] = torch.eye(_CODE)


def kept(seed: int, make: Callable[[], Any]) -> Path:
    """The cache's folder of the model of this seed; where none is whole, what `make` gives is put there."""

    def save(into: Path) -> None:
        save_file(make().state_dict(), into / _WEIGHTS)
        about = {"format": FORMAT, "seed": seed, "lexicon": Lexicon.digest, "weights": _digest(into / _WEIGHTS)}
        (into / _ABOUT).write_text(json.dumps(about))

    return made_once(_name(seed), save, _usable)


def induction(seed: int = 0) -> Induction:
    """The trained model of this seed. Raises ConfigError when it has not been trained on this machine."""
    folder = cache_folder() / _name(seed)
    if not trained(seed):
        raise ConfigError(f"no induction model of seed {seed} in {cache_folder()}: `tenure scbench train` makes one in minutes")
    model = _shaped()
    model.load_state_dict(load_file(folder / _WEIGHTS))
    return Induction(model.eval(), Lexicon(), json.loads((folder / _ABOUT).read_text())["weights"])


def trained(seed: int = 0) -> bool:
    """Whether the model of this seed is on this machine. Raises ConfigError for a seed that is none."""
    return _usable(cache_folder() / _name(seed))


def _name(seed: int) -> str:
    return f"scbench-induction-{integer('seed', seed, 0, (1 << 63) - 1)}"


def _usable(folder: Path) -> bool:
    """Whole, of this format and lexicon, and with the weights that its digest names."""
    try:
        about = json.loads((folder / _ABOUT).read_text())
        known = (about["format"], about["lexicon"], about["weights"])
        return bool(known == (FORMAT, Lexicon.digest, _digest(folder / _WEIGHTS)))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _digest(weights: Path) -> str:
    return content_digest(weights.read_bytes())
