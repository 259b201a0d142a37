"""What a method is: where in the life cycle it acts, and its hooks, each of which leaves everything as it is unless overridden.
Prefills and readings call the hooks; a method keeps nothing between calls, and what it decides depends on its input alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from tenure.errors import ConfigError
from tenure.scbench.attend import Allow, Ask
from tenure.scbench.kv import KV, Context

__all__ = ["ALL", "Choice", "Method", "best"]

ALL = 1 << 40
"""As `observes`: the queries of every token."""


class Choice(Protocol):
    """Which blocks are read, for one context."""

    @property
    def metadata(self) -> int:
        """Bytes that it keeps for that, all of which every token reads."""

    def __call__(self, ask: Ask) -> torch.Tensor | None:
        """Bool [kv_heads, new, sealed blocks]; None: all."""


class Method:
    """One method. A new one overrides a hook (or a score of `Dropping`, `Loading` or `Rounding`) and joins `METHODS`. What hooks
    are given is shared, and not written to.

    stage: "generation", "retrieval", "compression" or "loading". memory: of what stays, "O(k)" or "O(n)". observes: of how many
    of the last tokens it needs the queries. fixed: it has one size, whatever the budget. Budgets are fractions of the bytes of a
    KV that is kept and read whole, in retrieval of the tokens that are run; at 1 every method that is not fixed is exactly dense
    attention.
    """

    name: str
    stage: str
    memory: str = "O(n)"
    observes: int = 0
    fixed: bool = False

    def allow(self, tokens: int, budget: float) -> Allow | None:
        """What the prefill of a context of `tokens` tokens computes; None: all."""
        return None

    def assemble(self, model: Any, ids: Sequence[int], budget: float, block_size: int) -> Context | None:
        """The context put together from KV that other requests left; None: it is computed."""
        return None

    def compress(self, context: Context, budget: float) -> KV:
        """What stays of the KV after the prefill."""
        return context.kv

    def choose(self, context: Context, budget: float) -> Choice | None:
        """How tokens that are fed choose what they read; None: they read all."""
        return None

    def attention(self, tokens: int, budget: float) -> str:
        """`Identity.attention` of the KV that a prefill of `tokens` tokens makes: what another attention computed is another
        namespace's."""
        return "full"


def best(scores: torch.Tensor, room: int) -> torch.Tensor:
    """The `room` highest along the last dimension, as a mask; of equals the first. Raises ConfigError for what is no number."""
    if scores.isnan().any():
        raise ConfigError("scores are not all numbers: nothing can be chosen by them")
    order = scores.argsort(dim=-1, descending=True, stable=True)[..., :room]
    return torch.zeros_like(scores, dtype=torch.bool).scatter(-1, order, True)
