"""Recorded prompts for the real model, what transformers' own cache says to each, and the same asked of an engine."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import DynamicCache

from tenure import Identity
from tenure.engines.transformers import Engine, layout_of, node_for
from tenure.models import Loaded
from tenure.node import Node
from tenure.tiers.device import DeviceArena

from .making import CLOSE

TEXTS = Path(__file__).with_name("prompts.jsonl")
SIZE = 16
NEW = 5
"""Tokens that are generated greedily."""
OTHER = [[253, 1604, 338]]
"""A continuation that is not the model's own."""
BEAMS: dict[str, Any] = {"num_beams": 2, "max_new_tokens": 4, "do_sample": False}


def recorded(loaded: Loaded) -> list[torch.Tensor]:
    """Token ids [1, length] of the first TENURE_PROMPTS recorded prompts (all: 56)."""
    lines = TEXTS.read_text().splitlines()[: int(os.environ.get("TENURE_PROMPTS", "12"))]
    return [loaded.tokenizer(json.loads(line), return_tensors="pt")["input_ids"] for line in lines]


def hit_of(ids: torch.Tensor) -> int:
    """What is hit of a prompt that was served: its full blocks."""
    return ids.shape[1] // SIZE * SIZE


@dataclass(frozen=True)
class Answer:
    """What follows a prompt: logits [columns, vocabulary] of each kind of going on, and the tokens that are chosen."""

    prompt: torch.Tensor  # of the columns that were not cached
    tokens: list[int]
    steps: torch.Tensor
    other: torch.Tensor  # of OTHER after the prompt
    middle: torch.Tensor  # of OTHER after the first half of the prompt
    beams: list[int]

    def gap(self, wanted: Answer) -> float:
        """The largest difference of a logit."""
        pairs = [(getattr(self, name), getattr(wanted, name)) for name in ("prompt", "steps", "other", "middle")]
        assert all(one.shape == other.shape for one, other in pairs)
        return max(float((one - other).abs().max()) for one, other in pairs)

    def same(self, wanted: Answer) -> None:
        """Raises AssertionError unless the tokens are equal and the logits close."""
        assert self.tokens == wanted.tokens
        assert self.gap(wanted) < CLOSE


@torch.no_grad()
def told(model: Any, ids: torch.Tensor) -> Answer:
    """The oracle: a DynamicCache that is filled in two passes, cut where a hit ends."""
    cache = DynamicCache(config=model.config)
    length = ids.shape[1]
    cut = min(hit_of(ids), length - 1)
    model(ids[:, :cut], cache=cache, logits_to_keep=1)
    prompt = model(ids[:, cut:], cache=cache).logits[0]
    tokens, steps = _greedy(model, cache, prompt)
    cache.crop(length - cache.get_seq_length())
    other = model(torch.tensor(OTHER), cache=cache).logits[0]
    cache.crop(cut - cache.get_seq_length())
    twice = DynamicCache(config=model.config)
    for number, layer in enumerate(cache.layers):
        twice.update(layer.keys, layer.values, number)
    twice.batch_repeat_interleave(BEAMS["num_beams"])
    beams = model.generate(ids, cache=twice, **BEAMS)[0].tolist()
    cache.crop(length // 2 - cut)
    middle = model(torch.tensor(OTHER), cache=cache).logits[0]
    return Answer(prompt, tokens, steps, other, middle, beams)


@torch.no_grad()
def asked(engine: Engine, ids: torch.Tensor) -> tuple[Answer, int]:
    """The same of an engine, with a fork and two truncations, one into what was hit; and how many tokens were hit."""
    model, length = engine.model, ids.shape[1]
    with engine.cache(ids) as cache:
        prompt = model(ids[:, cache.get_seq_length() :], cache=cache).logits[0]
        with cache.fork() as branch:
            tokens, steps = _greedy(model, cache, prompt)
            forked = model(torch.tensor(OTHER), cache=branch).logits[0]
        cache.truncate(length)
        other = model(torch.tensor(OTHER), cache=cache).logits[0]
        assert (other - forked).abs().max() < CLOSE
        (hit,) = cache.hit_tokens
        cache.truncate(length // 2)
        middle = model(torch.tensor(OTHER), cache=cache).logits[0]
    return Answer(prompt, tokens, steps, other, middle, []), hit


def _greedy(model: Any, cache: Any, prompt: torch.Tensor) -> tuple[list[int], torch.Tensor]:
    tokens = [int(prompt[-1].argmax())]
    steps = []
    while len(tokens) < NEW:
        steps.append(model(torch.tensor([tokens[-1:]]), cache=cache).logits[0, 0])
        tokens.append(int(steps[-1].argmax()))
    return tokens, torch.stack(steps)


class Oracle:
    """What transformers says to each prompt, worked out when it is first asked for."""

    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded
        self.prompts = recorded(loaded)
        self._answers: dict[int, Answer] = {}

    def __iter__(self) -> Iterator[tuple[torch.Tensor, Answer]]:
        for number, ids in enumerate(self.prompts):
            if number not in self._answers:
                self._answers[number] = told(self.loaded.model, ids)
            yield ids, self._answers[number]

    @property
    def tokens(self) -> int:
        """Of all prompts together."""
        return sum(ids.shape[1] for ids in self.prompts)


def house(loaded: Loaded, prompts_tokens: int, *, host: bool = False, disk: Path | None = None, **settings: Any) -> Engine:
    """The model on a node that holds so many tokens in each of its tiers, and what these tests add to them."""
    block = DeviceArena.block_bytes_of(layout_of(loaded.model), SIZE, "fp32")
    room = (prompts_tokens // SIZE + 128) * block
    node = node_for(
        loaded.model,
        device_bytes=room if host else 64 * block,  # a disk has the rest
        host_bytes=room if host else 0,
        disk=disk,
        disk_bytes=room + (16 << 20) if disk else 0,
        block_size=SIZE,
        on_disk={"deadline": 60} if disk else None,
        **settings,
    )
    return Engine(loaded.model, node, who=Identity("smollm2", weights=loaded.weights))


def empty_device(kv: Node) -> None:
    """Everything goes down, then leaves the device: the next hit comes from below."""
    kv.flush()
    kv.sequence(range(kv.frames * kv.block_size), Identity("nobody")).abort()
    assert kv.counts().cached == 0
