"""What every tier promises, of a pool whose bulk is in Mooncake Store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from tenure.tiers import BlockLayout, Tier
from tenure.tiers.base import Outcome
from tenure.tiers.mooncake import MooncakePlane
from tests.pool import mooncakes, servers
from tests.pool import test_contract as of_pools
from tests.pool.making import pool
from tests.tiers import test_contract
from tests.tiers.making import PAGED, codec

Make = Callable[..., Tier]

mooncakes.needed()
servers.needed()
globals().update({name: value for name, value in vars(of_pools).items() if name.startswith("test_")})


class Shared:
    """A plane of several tiers, which none of them ends."""

    def __init__(self, plane: MooncakePlane) -> None:
        self._plane = plane

    def put(self, names: Sequence[bytes], payloads: Sequence[Sequence[memoryview]]) -> list[Outcome]:
        return self._plane.put(names, payloads)

    def get(self, names: Sequence[bytes], into: Sequence[Sequence[memoryview]]) -> list[Outcome]:
        return self._plane.get(names, into)

    def drop(self, names: Sequence[bytes]) -> None:
        self._plane.drop(names)

    def close(self) -> None:
        """It is ended with the module."""


@pytest.fixture(scope="module")
def shared() -> Iterator[Shared]:
    with mooncakes.master() as master:
        plane = MooncakePlane(master.address, segment_bytes=64 << 20, timeout=5.0)
        yield Shared(plane)
        plane.close()


@pytest.fixture
def make(one: servers.Server, shared: Shared) -> Iterator[Make]:
    made: list[Tier] = []

    def make(layout: BlockLayout = PAGED, name: str = "raw") -> Tier:
        made.append(pool(one.url, layout, frames=test_contract.FRAMES, codec=codec(name), data=shared))
        return made[-1]

    yield make
    for tier in made:
        tier.close()
