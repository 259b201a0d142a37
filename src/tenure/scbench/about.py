"""What a report says of how its rows came to be: models, grids, software, and the command. It measures nothing."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
import transformers

import tenure
from tenure.identity import content_digest
from tenure.scbench.grid import Grid
from tenure.scbench.model import Subject, subject

__all__ = ["described", "made_of"]


def made_of(one: Subject, *files: Path) -> str:
    """What rows of a model, and of files of data, depend on: digests and versions. Raises OSError."""
    digest = content_digest(one.digest.encode(), *(file.read_bytes() for file in files))
    return f"{digest}, tenure {tenure.__version__}, torch {torch.__version__}, transformers {transformers.__version__}"


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
