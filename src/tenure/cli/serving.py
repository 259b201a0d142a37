"""A model that answers the steps of recorded chats twice: cold, by transformers' own cache, and warm, on a node. The two are
timed and compared here. `tenure demo` calls it; it prints nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from tenure.cli.recorded import Step
from tenure.cli.show import size
from tenure.cli.turns import Answer, Turn, Verdict
from tenure.engines.transformers import Engine, layout_of
from tenure.errors import ConfigError
from tenure.identity import Identity
from tenure.ledger import Counts
from tenure.models import Loaded
from tenure.node import Node
from tenure.tiers.device import DeviceArena

__all__ = ["TOLERANCE", "Prompt", "Serving", "compare", "distinct", "frames_for", "links", "prompts"]

TOLERANCE = 1e-3
"""How far fp32 logits (some 20 in size) may differ because the same sums were cut elsewhere; without the right KV they differ by
more than 1."""


class Prompt(NamedTuple):
    """A step in tokens, [1, tokens]."""

    step: Step
    ids: torch.Tensor

    @property
    def tokens(self) -> int:
        """How many."""
        return int(self.ids.shape[1])


class Run(NamedTuple):
    """What a model answered: seconds to the first token, the tokens, and the logits each was chosen from."""

    first: float
    tokens: list[int]
    logits: tuple[torch.Tensor, ...]


def prompts(loaded: Loaded, steps: list[Step], new: int) -> list[Prompt]:
    """The steps through the tokenizer's chat template. Raises ConfigError for one that leaves the model no room for `new`
    tokens."""
    room = loaded.model.config.max_position_embeddings
    made = []
    for step in steps:
        chat = [message._asdict() for message in step.messages]
        ids = loaded.tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=True, return_dict=True)["input_ids"]
        if len(ids) + new > room:
            raise ConfigError(
                f"turn {step.turn} of session {step.session} has {len(ids)} tokens, and {new} are to come: the model has "
                f"room for {room}",
                tokens=len(ids),
                room=room,
            )
        made.append(Prompt(step, torch.tensor([ids])))
    return made


def links(prompt: Prompt, block_size: int) -> Iterator[int]:
    """A number for each block that it fills, which is another for other tokens in it or before it."""
    tokens: list[int] = prompt.ids[0].tolist()
    link = 0
    for start in range(0, len(tokens) - block_size + 1, block_size):
        link = hash((link, tuple(tokens[start : start + block_size])))
        yield link


def distinct(made: list[Prompt], block_size: int) -> int:
    """How many different blocks they fill."""
    return len({link for prompt in made for link in links(prompt, block_size)})


def frames_for(loaded: Loaded, made: list[Prompt], new: int, block_size: int, device_bytes: int | None) -> tuple[int, int]:
    """Frames of a device, and bytes of each; None: a little more than the longest turn needs. Raises ConfigError when that turn
    has no room in device_bytes: nothing could be reused there."""
    block = DeviceArena.block_bytes_of(layout_of(loaded.model), block_size, loaded.model.dtype)
    longest = max(made, key=lambda prompt: prompt.tokens)
    needed = -(-(longest.tokens + new) // block_size)
    frames = needed + needed // 8 if device_bytes is None else device_bytes // block
    if frames < needed:
        raise ConfigError(
            f"--device has room for {frames} blocks: turn {longest.step.turn} of session {longest.step.session} needs {needed}, "
            f"which are {size(needed * block)}",
            frames=frames,
            needed=needed,
        )
    return frames, block


def compare(cold: Run, warm: Run, tolerance: float = TOLERANCE) -> Answer:
    """Token by token; what follows the first token that differs answers another text, and is not compared."""
    largest = 0.0
    for at, (one, other) in enumerate(zip(cold.logits, warm.logits, strict=False)):
        difference = float((one - other).abs().max())
        largest = max(largest, difference)
        if not difference <= tolerance:  # NaN is none either
            return Answer(Verdict.WRONG, at, difference)
        if cold.tokens[at] != warm.tokens[at]:
            return Answer(Verdict.TIE, at, largest)
    at = min(len(cold.tokens), len(warm.tokens))
    return Answer(Verdict.SAME if len(cold.tokens) == len(warm.tokens) else Verdict.WRONG, at, largest)


class Serving:
    """A model on a node. new: tokens to generate each time, greedily.

    Answering holds blocks of the node only while it runs; an interrupted answer gives them back.
    """

    def __init__(self, loaded: Loaded, kv: Node, new: int, name: str) -> None:
        self._loaded = loaded
        self._kv = kv
        self._new = new
        self._engine = Engine(loaded.model, kv, who=Identity(model=name, weights=loaded.weights))

    def warm_up(self) -> None:
        """The first passes of a process are slow: they should not count for either."""
        for _ in range(2):
            self._run(self._loaded.model.generate, torch.full((1, 128), 5))

    def turn(self, prompt: Prompt, halfway: Callable[[], None] = lambda: None) -> Turn:
        """Answers one prompt, cold and then warm. halfway: called between the two."""
        kv, step = self._kv, prompt.step
        cold = self._run(self._loaded.model.generate, prompt.ids)
        halfway()
        hit, loaded, evicted = self._books()
        at_end: list[tuple[Counts, int]] = []

        def look() -> None:
            at_end.append((kv.counts(), kv.totals()["swapped"]))

        warm = self._run(self._engine.generate, prompt.ids, look, session=step.session)
        hit_now, loaded_now, evicted_now = self._books()
        lower = {tier: loaded_now[tier] - loaded[tier] for tier in loaded}
        return Turn(
            step.session,
            step.turn,
            prompt.tokens,
            {"device": hit_now - hit - sum(lower.values())} | lower,
            cold.first,
            warm.first,
            *at_end[0],
            {tier: evicted_now[tier] - evicted[tier] for tier in evicted},
            compare(cold, warm),
            self._loaded.tokenizer.decode(warm.tokens, skip_special_tokens=True),
        )

    def _run(self, generate: Callable[..., Any], ids: torch.Tensor, look: Callable[[], None] = lambda: None, **more: Any) -> Run:
        watch = _Watch(look)
        started = time.perf_counter()
        found = generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=self._new,
            do_sample=False,
            return_dict_in_generate=True,
            output_logits=True,
            streamer=watch,
            **more,
        )
        return Run(watch.first - started, found.sequences[0, ids.shape[1] :].tolist(), found.logits)

    def _books(self) -> tuple[int, dict[str, int], dict[str, int]]:
        """Tokens hit, those of them that came from lower tiers, and blocks evicted, so far."""
        kv = self._kv
        hit = sum(tenant.tokens_hit for tenant in kv.stats().values())
        loaded = {tier: kv.tier_stats(tier).loaded * kv.block_size for tier in kv.tiers[1:]}
        return hit, loaded, {tier: kv.tier_stats(tier).evicted for tier in kv.tiers}


class _Watch:
    """A streamer, as generate() takes one: when did the first token come? `look` is called after the last, while the
    answer still has its blocks."""

    def __init__(self, look: Callable[[], None]) -> None:
        self.first = 0.0
        self._look = look
        self._puts = 0

    def put(self, value: Any) -> None:
        """The prompt, then each token."""
        self._puts += 1
        if self._puts == 2:
            self.first = time.perf_counter()

    def end(self) -> None:
        """No more."""
        self._look()
