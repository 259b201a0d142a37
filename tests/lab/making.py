"""Small traces for tests."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from tenure.lab.trace import Trace


def trace_of(
    paths: Sequence[Sequence[int]],
    *,
    arrival: Sequence[float] | None = None,
    block_size: int = 4,
    tenant: Sequence[int] | None = None,
    tenants: tuple[str, ...] = ("",),
    **columns: object,
) -> Trace:
    """A Trace with these block paths, a request a second unless said otherwise."""
    n = len(paths)
    values: dict[str, object] = {
        "name": "small",
        "block_size": block_size,
        "arrival": np.array(arrival if arrival is not None else range(n), dtype=float),
        "duration": np.full(n, 0.5),
        "offsets": np.array([0, *accumulate(map(len, paths))]),
        "blocks": np.array([block for path in paths for block in path], dtype=np.uint32),
        "output": np.full(n, 8),
        "tenant": np.array(tenant if tenant is not None else [0] * n),
        "session": np.full(n, -1),
        "input_tokens": np.array([len(path) * block_size for path in paths], dtype=np.int64),
        "tenants": tenants,
    }
    return Trace(**{**values, **columns})  # type: ignore[arg-type]


def random_paths(rng: np.random.Generator, requests: int, branching: int = 3, depth: int = 4) -> list[list[int]]:
    """Random walks down one random tree, as dense path ids in order of first use."""
    ids: dict[tuple[int, ...], int] = {}
    paths = []
    for _ in range(requests):
        walk = tuple(rng.integers(branching, size=int(rng.integers(1, depth + 1))).tolist())
        paths.append([ids.setdefault(walk[: k + 1], len(ids)) for k in range(len(walk))])
    return paths
