"""What a report says of how its rows came to be: models, grids, software, and the command. It measures nothing."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import torch
import transformers

import tenure
from tenure.identity import content_digest
from tenure.scbench.model import Subject

if TYPE_CHECKING:
    from tenure.scbench.planning import Plan

__all__ = ["described", "made_of", "sized"]


def made_of(one: Subject, *files: Path) -> str:
    """What rows of a model, and of files of data and code, depend on: digests and versions. Raises OSError."""
    digest = content_digest(one.digest.encode(), *(file.read_bytes() for file in files))
    return f"{digest}, tenure {tenure.__version__}, torch {torch.__version__}, transformers {transformers.__version__}"


def sized(one: Subject) -> dict[str, Any]:
    """A model's own numbers."""
    return {
        "weights": one.digest,
        "parameters": sum(part.numel() for part in one.model.parameters()),
        "layers": one.layers,
        "heads": one.heads,
        "kv_heads": one.kv_heads,
        "head_size": one.head_size,
    }


def described(plans: Sequence[Plan], command: str) -> dict[str, Any]:
    """As JSON takes it; the same on the same machine."""
    models = {plan.name: plan.model | {"grid": msgspec.to_builtins(plan.grid)} for plan in plans}
    software = {"tenure": tenure.__version__, "torch": str(torch.__version__), "transformers": transformers.__version__}
    return {"command": command, "models": models, "software": software | {"python": platform.python_version()}}
