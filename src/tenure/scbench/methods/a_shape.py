"""A-shape: each token of a prefill attends to the first tokens and to those just before it. All KV is kept."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tenure.checks import positive
from tenure.scbench.attend import Allow, Ask
from tenure.scbench.kv import KV, Context
from tenure.scbench.methods.base import Choice, Method

__all__ = ["AShape"]


class AShape(Method):
    """The budget is the fraction of a context that a token attends to at most: 1/32 of it the first tokens, else the last.
    tail: how many of a prefill's last tokens attend to all (Tri-shape)."""

    name = "a_shape"
    stage = "generation"
    tail = 0

    def allow(self, tokens: int, budget: float) -> Allow | None:
        """Sink and window, in the prefill of the context."""
        sink, window = _sizes(tokens, budget)
        if window >= tokens:
            return None
        dense = tokens - self.tail

        def shape(rows: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
            return (columns < sink) | (rows - columns < window) | (rows >= dense)

        return shape

    def choose(self, context: Context, budget: float) -> Choice | None:
        """The same, in whole blocks, for several tokens that are fed at once: a query's prefill. One token alone reads all."""
        sink, window = _sizes(context.kv.length, budget)
        return None if window >= context.kv.length else _Shape(context.kv, sink, window, self.tail)

    def attention(self, tokens: int, budget: float) -> str:
        """Its own, with all that the shape depends on, unless the budget does not bind."""
        sink, window = _sizes(tokens, budget)
        if window >= tokens:
            return "full"
        return f"{self.name}({sink},{window}" + (f",{tokens - self.tail})" if self.tail else ")")


@dataclass(frozen=True, eq=False)
class _Shape:
    """Which blocks of a whole KV are in the shape, if only in part."""

    kv: KV
    sink: int
    window: int
    tail: int
    metadata: int = 0

    def __call__(self, ask: Ask) -> torch.Tensor | None:
        heads, total, new = ask.keys.shape[0], ask.keys.shape[1], ask.queries.shape[1]
        if new <= max(1, self.tail):
            return None
        rows = torch.arange(total - new, total, device=ask.keys.device)[:, None]
        starts = torch.arange(self.kv.sealed(ask.layer), device=ask.keys.device)[None] * self.kv.block_size
        near = rows - (starts + self.kv.block_size - 1) < self.window
        return ((starts < self.sink) | near | (rows >= total - self.tail)).expand(heads, -1, -1)


def _sizes(tokens: int, budget: float) -> tuple[int, int]:
    """Tokens of the sink and of the window; the window is all where the budget does not bind."""
    room = int(positive("budget", budget, 1.0) * tokens)
    return (0, tokens) if room >= tokens else (room // 32, max(1, room - room // 32))
