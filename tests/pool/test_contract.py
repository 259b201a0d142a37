"""What every tier promises, of a pool on one server and on a cluster: there a frame is only what this node knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tenure.tiers import BlockLayout, Tier
from tests.pool.making import pool
from tests.tiers import test_contract
from tests.tiers.making import PAGED, codec

globals().update({name: value for name, value in vars(test_contract).items() if name.startswith("test_")})


@pytest.fixture(params=["one", "many", "signed"])
def make(request: pytest.FixtureRequest) -> Iterator[Callable[..., Tier]]:
    where = request.getfixturevalue("many" if request.param == "many" else "one")
    key = bytes(32) if request.param == "signed" else None
    made: list[Tier] = []

    def make(layout: BlockLayout = PAGED, name: str = "raw") -> Tier:
        made.append(pool(where.url, layout, frames=test_contract.FRAMES, codec=codec(name), chunk_bytes=1000, key=key))
        return made[-1]

    yield make
    for tier in made:
        tier.close()


def test_there_are_tests_of_the_contract() -> None:
    assert sum(name.startswith("test_") for name in globals()) > 10
