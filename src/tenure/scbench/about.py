"""What a report says of how its rows came to be: models, grids, software, and the command. It measures nothing."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from typing import Any

import msgspec
import torch
import transformers

import tenure
from tenure.scbench.grid import Grid
from tenure.scbench.model import subject

__all__ = ["described"]


def described(grids: Sequence[Grid], command: str) -> dict[str, Any]:
    """As JSON takes it; the same on the same machine. Raises ConfigError for a model that is no longer there."""
    models = {}
    for grid in grids:
        one = subject(grid.model, grid.dtype)
        models[one.name] = {
            "weights": one.digest,
            "parameters": sum(part.numel() for part in one.model.parameters()),
            "layers": one.layers,
            "heads": one.heads,
            "kv_heads": one.kv_heads,
            "head_size": one.head_size,
            "grid": msgspec.to_builtins(grid),
        }
    software = {"tenure": tenure.__version__, "torch": str(torch.__version__), "transformers": transformers.__version__}
    return {"command": command, "models": models, "software": software | {"python": platform.python_version()}}
