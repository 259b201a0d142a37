"""Rows as a grid leaves them, without a model."""

from __future__ import annotations

from tenure.scbench.results import Row


def row(**changes: object) -> Row:
    """A row of five turns."""
    fields: dict[str, object] = {
        "model": "smollm2",
        "task": "retr_kv",
        "size": 128,
        "seed": 0,
        "mode": "multi_turn",
        "method": "snapkv",
        "stage": "compression",
        "memory": "O(k)",
        "budget": 0.25,
        "scores": (1.0, 0.0, 1.0, 0.0, 0.5),
        "kinds": ("",) * 5,
        "predictions": (" 1", " \u00e9", "\n", "", '"'),
        "lengths": (2,) * 5,
        "tokens": 1200,
        "full": 4800,
        "resident": 1200,
        "read": 1200.5,
        "asked": 7000,
        "prefilled": 1500,
        "encoding": 1.5,
        "seconds": 2.5,
    }
    return Row(**(fields | changes))  # type: ignore[arg-type]
