"""Fixtures of the engine tests; they skip where the packages of `tenure[model]` are missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def tiny() -> Any:
    """A small Llama in fp32."""
    from .making import llama

    return llama()


@pytest.fixture
def serve(tiny: Any) -> Iterator[Callable[..., Any]]:
    """Puts a model on Tenure; whatever the test did, nothing may be in use at its end."""
    from .making import Served, served

    made: list[Served] = []

    def make(model: Any = None, **settings: Any) -> Served:
        made.append(served(tiny if model is None else model, **settings))
        return made[-1]

    yield make
    for one in made:
        one.at_rest()
