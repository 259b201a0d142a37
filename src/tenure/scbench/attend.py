"""One forward pass of a causal language model over KV that is handed in: whole, thinned, rounded, or read in part.
Called by prefills and readings; for that pass it stands in for the model's attention, by transformers' interface."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from transformers import AttentionInterface

from tenure.checks import integer
from tenure.engines.support import layout_of, refuse_unsupported
from tenure.errors import ConfigError, TokenError
from tenure.scbench.kv import KV, Queries, Rotation, by_slot

__all__ = ["Allow", "Ask", "Choose", "Job", "Pass", "Work", "attention", "forward", "rotation_of", "run", "run_all"]

_NAME = "tenure_scbench"
_OTHER_ATTENTION = ("sliding_window", "softcap", "s_aux", "position_bias")
"""Arguments by which a model asks for attention that is not computed here."""
_FEW = 8
"""Tokens for which attention is plain products in fp32: on a CPU, the library's own takes several times as long for them."""


class Ask(NamedTuple):
    """What a pass asks a loading method in one layer. queries: [heads, new, head_size]. keys: [kv_heads, context + newer + new,
    head_size], the context's slots first. scale: what scores are multiplied by."""

    layer: int
    queries: torch.Tensor
    keys: torch.Tensor
    scale: float


Choose = Callable[[Ask], "torch.Tensor | None"]
"""Which sealed blocks of the context each new token reads: bool [kv_heads, new, sealed blocks]; None: all."""
Allow = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Positions of queries [n, 1] and of keys [1, n] to bool [n, n]: what a prefill computes. Causality is added."""


class Work(Protocol):
    """What answers each layer's attention in one pass, in the order of the layers."""

    def layer(self, layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float) -> torch.Tensor:
        """Queries [heads, n, head_size] and keys and values [kv_heads, n, head_size] of the pass's tokens, RoPE applied, to what
        they attend to [heads, n, head_size]."""


class Pass(NamedTuple):
    """What a forward pass gives: logits of the last token [vocabulary], the KV of its own tokens, and recorded queries."""

    logits: torch.Tensor
    kv: KV
    queries: Queries | None


@dataclass(frozen=True, eq=False)
class Job:
    """What a pass runs: `ids` at the positions that follow `newer` (which follows `context`), with attention over both and
    causally over themselves.

    choose: reads only some of the context's sealed blocks; open blocks and `newer` are always read. allow: narrows the attention
    among `ids`. observe: for how many of the last tokens queries are recorded.
    """

    ids: Sequence[int]
    context: KV | None = None
    newer: KV | None = None
    choose: Choose | None = None
    allow: Allow | None = None
    observe: int = 0

    @property
    def past(self) -> KV | None:
        """What stands right before the tokens."""
        return self.newer if self.newer is not None else self.context

    @property
    def start(self) -> int:
        """The first token's position."""
        return 0 if self.past is None else self.past.length


def run(
    model: Any,
    ids: Sequence[int],
    context: KV | None = None,
    newer: KV | None = None,
    *,
    choose: Choose | None = None,
    allow: Allow | None = None,
    observe: int = 0,
    block_size: int = 16,
) -> Pass:
    """Runs one job. Raises TokenError for no tokens or ids that the model does not know, ConfigError for a model whose attention
    is not plain."""
    return run_all(model, [Job(ids, context, newer, choose, allow, observe)], block_size)[0]


def run_all(model: Any, jobs: Sequence[Job], block_size: int = 16) -> list[Pass]:
    """Runs several jobs as one batch, each as if it were alone, up to rounding. Raises what `run` raises."""
    refuse_unsupported(model)
    layout, config = layout_of(model), model.config.get_text_config(decoder=True)
    for job in jobs:
        if not len(job.ids):
            raise TokenError("there are no tokens to run: at least one is needed")
        for token in job.ids:
            integer("a token", token, 0, config.vocab_size - 1, TokenError)
        if job.context is not None and job.context.layers != layout.layers:
            raise ConfigError(f"the KV has {job.context.layers} layers: the model has {layout.layers}")
    work = [_Work(layout.layers, job) for job in jobs]
    places = [torch.arange(job.start, job.start + len(job.ids)) for job in jobs]
    logits = forward(model, [job.ids for job in jobs], places, work)
    if any(None in one.keys for one in work):
        raise ConfigError(f"{type(model).__name__} does not use transformers' attention interface: nothing can be read for it")
    return [one.done(last, model, block_size) for one, last in zip(work, logits, strict=True)]


def forward(model: Any, ids: Sequence[Sequence[int]], positions: Sequence[torch.Tensor], work: Sequence[Work]) -> torch.Tensor:
    """Runs rows of ids at their positions, with each row's `work` in the place of the model's attention; gives the logits of each
    row's last token [rows, vocabulary]. Checks nothing: `run` does. What `work` raises comes through."""
    width = max(map(len, ids))
    tokens = torch.zeros((len(ids), width), dtype=torch.long)
    places = torch.zeros_like(tokens)
    for row, (these, at) in enumerate(zip(ids, positions, strict=True)):  # rows end together: the last column is all rows' last
        tokens[row, width - len(these) :] = torch.tensor(list(these))
        places[row, width - len(these) :] = at
    asked = {"input_ids": tokens.to(model.device), "position_ids": places.to(model.device)}
    rows = [(one, slice(width - len(these), width)) for one, these in zip(work, ids, strict=True)]
    with torch.no_grad(), _in_place(model.config.get_text_config(decoder=True)):
        logits: torch.Tensor = model(**asked, use_cache=False, logits_to_keep=1, tenure_work=rows).logits
    return logits[:, -1]


def attention(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float, mask: torch.Tensor | None, causal: bool = False
) -> torch.Tensor:
    """Attention of queries [heads, n, head_size] over keys and values [kv_heads, slots, head_size], each KV head for as many
    query heads. mask: bool [1 or kv_heads, n, slots], True where read. Gives [heads, n, head_size]."""
    heads, groups = keys.shape[0], queries.shape[0] // keys.shape[0]
    if queries.shape[1] <= _FEW and not causal:
        asked = queries.reshape(heads, -1, queries.shape[2]).float()
        scores = (asked @ keys.float().transpose(1, 2) * scale).view(heads, groups, queries.shape[1], -1)
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None], -torch.inf)
        weights = scores.softmax(-1).flatten(1, 2)
        return (weights @ values.float()).view(queries.shape).to(queries.dtype)
    found = torch.nn.functional.scaled_dot_product_attention(
        queries.view(heads, groups, *queries.shape[1:]),
        keys[:, None].expand(-1, groups, -1, -1),
        values[:, None].expand(-1, groups, -1, -1),
        attn_mask=None if mask is None else mask[:, None],
        is_causal=causal,
        scale=scale,
    )
    return found.reshape(queries.shape)


def rotation_of(model: Any) -> Rotation:
    """The model's RoPE."""
    body = model.get_decoder()

    def rotation(positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        cosine, sine = body.rotary_emb(torch.zeros(1, dtype=torch.float32, device=positions.device), positions[None])
        return cosine[0], sine[0]

    return rotation


class _Work:
    """The state of one job's pass: it answers each layer's attention and keeps the layer's keys, values and queries."""

    def __init__(self, layers: int, job: Job) -> None:
        self.keys: list[Any] = [None] * layers
        self.values: list[Any] = [None] * layers
        self.new = len(job.ids)
        self._queries: list[Any] = [None] * layers
        self._scale = 0.0
        self._job = job
        self._past = [part for part in (job.context, job.newer) if part is not None]
        self._context = job.context
        self._choose, self._allow, self._observe = job.choose, job.allow, job.observe

    def done(self, logits: torch.Tensor, model: Any, block_size: int) -> Pass:
        """What the pass gives."""
        job = self._job
        exact = job.choose is None and job.allow is None and (job.past is None or job.past.exact == job.past.length)
        kv = KV.of(self.keys, self.values, block_size, job.start, exact)
        if not job.observe:
            return Pass(logits, kv, None)
        first = job.start + self.new - self._queries[0].shape[1]
        return Pass(logits, kv, Queries(tuple(self._queries), first, self._scale, rotation_of(model)))

    def layer(self, layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float) -> torch.Tensor:
        self.keys[layer], self.values[layer], self._scale = keys, values, scale
        self._queries[layer] = queries[:, max(0, queries.shape[1] - self._observe) :].clone() if self._observe else None
        new = keys.shape[1]
        keys = torch.cat([*(part.keys[layer] for part in self._past), keys], 1)
        values = torch.cat([*(part.values[layer] for part in self._past), values], 1)
        chosen = None
        if self._choose is not None and self._context is not None:
            chosen = self._choose(Ask(layer, queries, keys, scale))
        if chosen is None and self._allow is None:
            if new == keys.shape[1]:
                return attention(queries, keys, values, scale, None, causal=True)
            if new == 1:
                return attention(queries, keys, values, scale, None)
        return attention(queries, keys, values, scale, self._mask(layer, new, keys, chosen))

    def _mask(self, layer: int, new: int, keys: torch.Tensor, chosen: torch.Tensor | None) -> torch.Tensor:
        places = torch.arange(new, device=keys.device)
        own = places[:, None] >= places[None]
        if self._allow is not None:
            own = own & self._allow(places[:, None], places[None])
        mask = torch.nn.functional.pad(own, (keys.shape[1] - new, 0), value=True)[None]
        if chosen is None or self._context is None:
            return mask
        read = by_slot(chosen, self._context.slots(layer), self._context.block_size)
        rest = mask[:, :, read.shape[-1] :].expand(read.shape[0], -1, -1)
        return torch.cat([read, rest], -1)


def _attention_of_model(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, scaling: float, **settings: Any
) -> tuple[torch.Tensor, None]:
    """What transformers calls in each layer: [jobs, heads, n, head_size] in, [jobs, n, heads, head_size] out."""
    asked = [name for name in _OTHER_ATTENTION if settings.get(name) is not None]
    if asked:
        raise ConfigError(f"{type(module).__name__} asks for {', '.join(asked)}: only plain attention is measured")
    work: list[tuple[Work, slice]] = settings["tenure_work"]
    out = torch.zeros_like(query)
    for row, (one, own) in enumerate(work):
        out[row, :, own] = one.layer(module.layer_idx, query[row, :, own], key[row, :, own], value[row, :, own], scaling)
    return out.transpose(1, 2).contiguous(), None


AttentionInterface.register(_NAME, _attention_of_model)


@contextmanager
def _in_place(config: Any) -> Iterator[None]:
    """Puts this attention in the model's place. It has no mask function in transformers, so that no mask is made for it."""
    before = config._attn_implementation
    config._attn_implementation = _NAME
    try:
        yield
    finally:
        config._attn_implementation = before
