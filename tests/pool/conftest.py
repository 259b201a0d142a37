"""Servers that the tests of a module share; each test has a prefix of its own on them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.pool import servers

for package in ("xxhash", "zstandard", "ml_dtypes"):
    pytest.importorskip(package, reason=f"{package} is not installed: pip install 'tenure[tiers]'")


@pytest.fixture(scope="session")
def one() -> Iterator[servers.Server]:
    """A server that nobody harms."""
    with servers.server() as made:
        yield made


@pytest.fixture(scope="session")
def many() -> Iterator[servers.Cluster]:
    """A cluster that nobody harms."""
    with servers.cluster(cluster_node_timeout=60_000) as made:  # who stalls is not replaced
        yield made


@pytest.fixture
def own() -> Iterator[servers.Server]:
    """A server for this test, to be harmed."""
    with servers.server() as made:
        yield made


@pytest.fixture
def fresh(request: pytest.FixtureRequest) -> Callable[[], str]:
    """A prefix that no other test has."""
    return lambda: f"test-{abs(hash(request.node.nodeid)):x}"
