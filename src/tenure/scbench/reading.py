"""What a runner does with a method: prefill a context once, then read it for one question or turn after another.
It knows no task and no text; the shared context never changes, what a reading adds is its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from tenure.checks import integer, positive
from tenure.errors import ConfigError
from tenure.scbench.attend import Ask, Choose, run
from tenure.scbench.kv import KV, Context
from tenure.scbench.methods.base import Method
from tenure.scbench.methods.dense import Dense

__all__ = ["Reading", "prefill", "settle"]

_DENSE = Dense()


def prefill(
    model: Any, ids: Sequence[int], method: Method = _DENSE, budget: float = 1.0, block_size: int = 16, observe: int | None = None
) -> Context:
    """Runs the model over a context the method's way, and has the method compress the KV.

    observe: for how many of the last tokens queries are recorded, in place of what the method needs: so that several methods can
    `settle` one dense context. None are recorded where the method puts the context together. Raises TokenError, ConfigError.
    """
    positive("budget", budget, 1.0)
    found = method.assemble(model, ids, budget, block_size)
    if found is not None:
        return settle(found, method, budget)
    wanted = method.observes if observe is None else observe
    done = run(model, ids, allow=method.allow(len(ids), budget), observe=wanted, block_size=block_size)
    return settle(Context(done.kv, done.queries, done.logits), method, budget)


def settle(context: Context, method: Method, budget: float = 1.0) -> Context:
    """The context after the method has compressed its KV; the one that is given stays as it is. Raises ConfigError."""
    positive("budget", budget, 1.0)
    return replace(context, kv=method.compress(context, budget))


class Reading:
    """Tokens fed after a context, which they read by the method's choice. Any number of readings may share one context.

    logits: of the token to come [vocabulary], where known. newer: KV of what was fed. metadata: bytes that the method keeps
    beside the context's KV, all of which each token reads. Raises ConfigError.
    """

    def __init__(self, model: Any, context: Context, method: Method = _DENSE, budget: float = 1.0) -> None:
        positive("budget", budget, 1.0)
        self._model, self._context, self._observes = model, context, method.observes
        self._choice = method.choose(context, budget)
        self._queries = context.queries if self._observes else None  # else they would lag behind what is fed
        self._bytes = self._tokens = 0
        self.metadata = 0 if self._choice is None else self._choice.metadata
        self.logits = context.logits
        self.newer: KV | None = None

    def feed(self, ids: Sequence[int]) -> torch.Tensor:
        """Runs tokens; gives the logits of the one to come. Raises TokenError."""
        kv = self._context.kv
        choose = None if self._choice is None else partial(self._counted, self._choice)
        done = run(self._model, ids, kv, self.newer, choose=choose, observe=self._observes, block_size=kv.block_size)
        self._tokens += len(ids)
        self._bytes += len(ids) * (kv.resident if choose is None else self.metadata)
        self.newer = done.kv if self.newer is None else self.newer.extended(done.kv)
        if self._queries is not None and done.queries is not None:
            self._queries = self._queries.extended(done.queries, self._observes)
        self.logits = done.logits
        return done.logits

    def greedy(self, most: int, ends: Callable[[list[int]], bool] = lambda ids: False, *, keep: bool = False) -> list[int]:
        """The likeliest token, again and again, at most `most`, no further once `ends` says so of what there is. The answer's KV
        is thrown away; with `keep` it is there for what comes next. Raises ConfigError when there are no logits to go on from."""
        integer("most", most, 1, 1 << 31)
        if self.logits is None:
            raise ConfigError("there are no logits to go on from: feed tokens first")
        newer, queries, logits = self.newer, self._queries, self.logits
        ids = [int(logits.argmax())]
        while len(ids) < most and not ends(ids):
            ids.append(int(self.feed(ids[-1:]).argmax()))
        if keep:
            self.feed(ids[-1:])
        else:
            self.newer, self._queries, self.logits = newer, queries, logits
        return ids

    def joined(self) -> Context:
        """The context with what was fed: for the next turn to share, or for the method to compress again."""
        kv = self._context.kv if self.newer is None else self._context.kv.extended(self.newer)
        return Context(kv, self._queries, self.logits)

    @property
    def read(self) -> float:
        """Bytes of the context, metadata counted, that each token read on average; 0 before anything was fed."""
        return self._bytes / self._tokens if self._tokens else 0.0

    def _counted(self, choice: Choose, ask: Ask) -> torch.Tensor | None:
        """The choice, and how many bytes it makes the layer's tokens read."""
        mask, kv, layer = choice(ask), self._context.kv, ask.layer
        heads, new, size = kv.keys[layer].shape[0], ask.queries.shape[1], kv.keys[layer].shape[2]
        slots = heads * new * kv.slots(layer)
        if mask is not None:
            slots = int(mask.sum()) * kv.block_size + heads * new * (kv.slots(layer) % kv.block_size)
        self._bytes += 2 * slots * size * kv.keys[layer].element_size()
        return mask
