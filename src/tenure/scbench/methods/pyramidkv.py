"""PyramidKV (arXiv 2406.02069): SnapKV's scores, with more room in the first layers than in the last."""

from __future__ import annotations

from tenure.checks import positive
from tenure.scbench.kv import KV
from tenure.scbench.methods.snapkv import SnapKV

__all__ = ["PyramidKV"]


class PyramidKV(SnapKV):
    """A layer's budget falls by equal steps from (2 - 1/`slope`) to 1/`slope` of the whole's. What is above 1 is not used."""

    name = "pyramidkv"

    def __init__(self, window: int = 32, kernel: int = 5, slope: float = 20) -> None:
        super().__init__(window, kernel)
        self.slope = slope

    def room(self, kv: KV, layer: int, budget: float) -> int:
        """More for lower layers."""
        positive("budget", budget, 1.0)
        least, depth = 1 / self.slope, layer / max(1, kv.layers - 1)
        share = 2 - least - depth * (2 - 2 * least) if kv.layers > 1 else 1.0
        return kv.room(layer, budget if budget == 1 else min(1.0, budget * share))
