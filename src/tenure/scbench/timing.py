"""The clock of whatever is timed here. It measures nothing itself."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import torch

__all__ = ["now"]


def now(model: Any) -> float:
    """Seconds, once what was given to the model's device is done: a GPU works on after a call has returned."""
    if model.device.type == "cuda":
        torch.cuda.synchronize(model.device)
    return perf_counter()
