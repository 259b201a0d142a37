"""Tri-shape (arXiv 2412.10319): A-shape, but the last tokens of a prefill, where the question is, attend to all."""

from __future__ import annotations

from tenure.scbench.methods.a_shape import AShape

__all__ = ["TriShape"]


class TriShape(AShape):
    """A-shape with a dense tail."""

    name = "tri_shape"

    def __init__(self, tail: int = 100) -> None:
        self.tail = tail
