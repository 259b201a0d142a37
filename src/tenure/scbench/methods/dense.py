"""Dense attention over all KV: what every other method is compared with."""

from __future__ import annotations

from tenure.scbench.methods.base import Method

__all__ = ["Dense"]


class Dense(Method):
    """Nothing is dropped, rounded or left unread."""

    name = "dense"
    stage = "none"
    fixed = True
