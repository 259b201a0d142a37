"""What a runner does with a method: prefill a context once, then read it for one question or turn after another.
It knows no task and no text; the shared context never changes, what a reading adds is its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from tenure.checks import integer, positive
from tenure.errors import ConfigError
from tenure.scbench.attend import Ask, Choose, Job, Pass, run, run_all
from tenure.scbench.kv import KV, Context
from tenure.scbench.methods.base import Method
from tenure.scbench.methods.dense import Dense

__all__ = ["Reading", "feed", "greedy", "prefill", "settle"]

_AT_ONCE = 2048
"""Tokens of a pass over several readings, at most: so much memory do activations take."""

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
    """The context after the method has compressed its KV; the one that is given stays as it is. Raises ConfigError, also for a
    method that writes into what others read."""
    positive("budget", budget, 1.0)
    with _shared(context, method):
        kv = method.compress(context, budget)
    return replace(context, kv=kv, known={})


@contextmanager
def _shared(context: Context, method: Method) -> Iterator[None]:
    """Raises ConfigError where the method wrote into what it was given meanwhile."""
    tensors = [*context.kv.keys, *context.kv.values, *context.kv.positions]
    tensors += [] if context.queries is None else context.queries.vectors
    tensors += [] if context.logits is None else [context.logits]
    before = [one._version for one in tensors]
    yield
    if [one._version for one in tensors] != before:
        raise ConfigError(f"method {method.name} changes what it is given, which others read: it has to make its own")


class Reading:
    """Tokens fed after a context, which they read by the method's choice. Any number of readings may share one context.

    logits: of the token to come [vocabulary], where known. newer: KV of what was fed. metadata: bytes that the method keeps
    beside the context's KV, all of which each token reads. Raises ConfigError.
    """

    def __init__(self, model: Any, context: Context, method: Method = _DENSE, budget: float = 1.0) -> None:
        positive("budget", budget, 1.0)
        self._model, self._context, self._observes = model, context, method.observes
        with _shared(context, method):
            self._choice = method.choose(context, budget)
        self._queries = context.queries if self._observes else None  # else they would lag behind what is fed
        self._bytes = self._tokens = 0
        self.metadata = 0 if self._choice is None else self._choice.metadata
        self.logits = context.logits
        self.newer: KV | None = None

    def feed(self, ids: Sequence[int]) -> torch.Tensor:
        """Runs tokens; gives the logits of the one to come. Raises TokenError."""
        feed([self], [ids])
        assert self.logits is not None  # just made
        return self.logits

    def greedy(self, most: int, ends: Callable[[list[int]], bool] = lambda ids: False) -> list[int]:
        """The likeliest token, again and again, at most `most`, no further once `ends` says so of what there is. The answer's KV
        is thrown away: feed the answer to keep it. Raises ConfigError when there are no logits to go on from, or no numbers."""
        return greedy([self], most, ends)[0]

    def again(self) -> Reading:
        """Another reading that goes on from where this one is; they share what was fed so far, and nothing later."""
        return copy(self)

    def joined(self) -> Context:
        """The context with what was fed: for the next turn to share, or for the method to compress again."""
        kv = self._context.kv if self.newer is None else self._context.kv.extended(self.newer)
        return Context(kv, self._queries, self.logits)

    @property
    def read(self) -> float:
        """Bytes of the context, metadata counted, that each token read on average; 0 before anything was fed."""
        return self._bytes / self._tokens if self._tokens else 0.0

    @property
    def block_size(self) -> int:
        """Tokens of a block."""
        return self._context.kv.block_size

    def _likeliest(self) -> int:
        assert self.logits is not None  # callers have seen to it
        if self.logits.isnan().any():
            raise ConfigError("logits are not numbers: the weights are damaged, the dtype is too narrow, or a method is wrong")
        return int(self.logits.argmax())

    def _job(self, ids: Sequence[int]) -> Job:
        choose = None if self._choice is None else partial(self._counted, self._choice)
        return Job(ids, self._context.kv, self.newer, choose, None, self._observes)

    def _take(self, done: Pass, tokens: int) -> None:
        self._tokens += tokens
        self._bytes += tokens * (self._context.kv.resident if self._choice is None else self.metadata)
        self.newer = done.kv if self.newer is None else self.newer.extended(done.kv)
        if self._queries is not None and done.queries is not None:
            self._queries = self._queries.extended(done.queries, self._observes)
        self.logits = done.logits

    def _counted(self, choice: Choose, ask: Ask) -> torch.Tensor | None:
        """The choice, and how many bytes it makes the layer's tokens read."""
        mask, kv, layer = choice(ask), self._context.kv, ask.layer
        heads, new, size = kv.keys[layer].shape[0], ask.queries.shape[1], kv.keys[layer].shape[2]
        slots = heads * new * kv.slots(layer)
        if mask is not None:
            slots = int(mask.sum()) * kv.block_size + heads * new * (kv.slots(layer) % kv.block_size)
        self._bytes += 2 * slots * size * kv.keys[layer].element_size()
        return mask


def feed(readings: Sequence[Reading], ids: Sequence[Sequence[int]]) -> None:
    """Runs tokens in several readings of one model at once, `ids` of each. Each is as if it were alone, up to rounding. Raises
    TokenError for tokens that cannot be run."""
    most = max(1, _AT_ONCE // max(1, *map(len, ids)))
    for first in range(0, len(readings), most):
        part, tokens = readings[first : first + most], ids[first : first + most]
        jobs = [one._job(some) for one, some in zip(part, tokens, strict=True)]
        for one, job, done in zip(part, jobs, run_all(part[0]._model, jobs, part[0].block_size), strict=True):
            one._take(done, len(job.ids))


def greedy(readings: Sequence[Reading], most: int, ends: Callable[[list[int]], bool] = lambda ids: False) -> list[list[int]]:
    """`Reading.greedy` of several readings of one model at once. Raises ConfigError as it does."""
    integer("most", most, 1, 1 << 31)
    if any(one.logits is None for one in readings):
        raise ConfigError("there are no logits to go on from: feed tokens first")
    before = [(one.newer, one._queries, one.logits) for one in readings]
    said = [[one._likeliest()] for one in readings]
    while going := [row for row, ids in enumerate(said) if len(ids) < most and not ends(ids)]:
        feed([readings[row] for row in going], [said[row][-1:] for row in going])
        for row in going:
            said[row].append(readings[row]._likeliest())
    for one, state in zip(readings, before, strict=True):
        one.newer, one._queries, one.logits = state
    return said
