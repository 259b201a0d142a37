"""Methods that keep every token with fewer bits: each rounds sealed blocks and says what they take.
They extend this; the budget plays no part, and what is read is what rounding left."""

from __future__ import annotations

from abc import ABC, abstractmethod

from tenure.scbench.kv import KV, Context
from tenure.scbench.methods.base import Method

__all__ = ["Rounding"]


class Rounding(Method, ABC):
    """Compression by rounding: O(n), of one size."""

    stage = "compression"
    fixed = True

    @abstractmethod
    def transform(self, kv: KV) -> KV:
        """The KV as it reads after rounding, with the bytes that it then takes."""

    def compress(self, context: Context, budget: float) -> KV:
        """The rounded KV."""
        return self.transform(context.kv)
