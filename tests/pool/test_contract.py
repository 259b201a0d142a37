"""What every tier promises, of a pool on one server and on a cluster: there a frame is only what this node knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tenure.tiers import BlockLayout, Tier
from tests.pool.making import pool
from tests.tiers import test_contract
from tests.tiers.making import PAGED, block, codec, record

Make = Callable[..., Tier]

globals().update({name: value for name, value in vars(test_contract).items() if name.startswith("test_")})


@pytest.fixture(params=["one", "many", "signed"])
def make(request: pytest.FixtureRequest) -> Iterator[Make]:
    where = request.getfixturevalue("many" if request.param == "many" else "one")
    key = bytes(32) if request.param == "signed" else None
    made: list[Tier] = []

    def make(layout: BlockLayout = PAGED, name: str = "raw") -> Tier:
        made.append(pool(where.url, layout, frames=test_contract.FRAMES, codec=codec(name), chunk_bytes=1000, key=key))
        return made[-1]

    yield make
    for tier in made:
        tier.close()


@pytest.mark.parametrize("name", ["int8", "int4", "fp8"])
def test_a_block_that_cannot_be_encoded_leaves_its_frame_empty_and_the_others_alone(make: Make, name: str) -> None:
    """Of a block that the pool has already, nothing is encoded."""
    tier = make(PAGED, name)
    test_contract.filled(tier, [0, 2])
    infinite = block(tier.layout, 1)
    infinite[:2] = (0x80, 0x7F)  # bf16 infinity
    names = [record(tier.layout, frame) for frame in range(3)]
    assert test_contract.kinds(tier.write([0, 1, 2], [infinite, infinite, infinite], names)) == [None, "codec", None]
    assert test_contract.found(tier, [0, 1, 2]) == [None, "empty", None]
    assert tier.write([1], [block(tier.layout, 1)], [names[1]]) == [None]  # its claim was given back
    assert test_contract.found(tier, [0, 1, 2]) == [None] * 3


def test_there_are_tests_of_the_contract() -> None:
    assert sum(name.startswith("test_") for name in globals()) > 10
