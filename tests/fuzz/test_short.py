"""A short run of every fuzz target; `make fuzz` is the long one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from . import targets
from .seeds import seeds
from .targets import TARGETS

SEEDS = seeds()


def mutations(target: str) -> st.SearchStrategy[bytes]:
    """A seed with some bytes changed, cut or repeated."""
    change = st.tuples(st.integers(0, 2000), st.binary(max_size=9), st.integers(0, 9))

    def apply(parts: tuple[bytes, list[tuple[int, bytes, int]]]) -> bytes:
        data, changes = parts
        for at, new, gone in changes:
            at %= len(data) + 1
            data = data[:at] + new + data[at + gone :]
        return data

    return st.tuples(st.sampled_from(SEEDS[target]), st.lists(change, max_size=4)).map(apply)


def test_the_seeds_reach_what_counts() -> None:
    """Or the index would be fuzzed with entries that it refuses anyway."""
    frames = []
    real = targets.Index.scan

    def watching(self: targets.Index) -> Iterator[tuple[dict[int, object], dict[int, object]]]:
        for found, refused in real(self):
            frames.extend(found)
            yield found, refused

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(targets.Index, "scan", watching)
        for seed in SEEDS["index"]:
            targets.index(seed)
    assert len(frames) == (1 + 3 + 1) * 4  # each looked at twice, as it is and repaired


@pytest.mark.parametrize("target", TARGETS)
def test_noise(target: str) -> None:
    @settings(deadline=None, max_examples=100)
    @given(st.binary(max_size=1500))
    def run(data: bytes) -> None:
        TARGETS[target](data)

    run()


@pytest.mark.parametrize("target", TARGETS)
def test_mutations_of_what_is_right(target: str) -> None:
    for seed in SEEDS[target]:
        TARGETS[target](seed)

    @settings(deadline=None, max_examples=200)
    @given(mutations(target))
    def run(data: bytes) -> None:
        TARGETS[target](data)

    run()
