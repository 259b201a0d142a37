"""Fixtures of the benchmark's tests; they skip where the packages of `tenure[model]` are missing."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(scope="session")
def tiny() -> Any:
    """A small Llama in fp32."""
    from .making import llama

    return llama()
