"""Settings: capacities, policies, sizes and rates as people type them."""

from __future__ import annotations

import pytest

from tenure import _core
from tenure.errors import ConfigError
from tenure.lab.settings import POLICIES, capacities, policies, share, size_in_bytes


@pytest.mark.parametrize(
    ("text", "frames"),
    [
        ("1000", [1000]),
        ("1k", [1000]),
        ("10k,1k", [1000, 10_000]),
        ("1.5k", [1500]),
        ("1m", [1_000_000]),
        ("1_000", [1000]),
        ("5%", [100]),
        ("0.5%,100%", [10, 2000]),
        ("0.001%", [1]),
        ("1k..8k", [1000, 2000, 4000, 8000]),
        ("1k..5k", [1000, 2000, 4000, 5000]),
        ("5%..1k", [100, 200, 400, 800, 1000]),
        ("7..7", [7]),
        (" 1K , 1k,", [1000]),
    ],
)
def test_capacities(text: str, frames: list[int]) -> None:
    assert capacities(text, distinct=2000) == frames


@pytest.mark.parametrize(
    "text", ["", ",", "many", "0", "-5", "1kk", "1k..", "..4k", "8k..1k", "5%%", "1e5", "3g", "0k", "1k...2k"]
)
def test_capacities_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        capacities(text, distinct=2000)
    assert caught.value.numbers


def test_policies_are_those_of_the_core() -> None:
    assert (*POLICIES, "optimum") == _core.POLICIES


def test_policies() -> None:
    assert [choice.name for choice in policies("lru,Hazard")] == ["lru", "hazard"]
    assert [choice.name for choice in policies("all")] == list(POLICIES)
    (choice,) = policies("lfu:half_life=60:floor=1")
    assert (choice.name, choice.params) == ("lfu", {"half_life": 60.0, "floor": 1.0})
    assert choice.label == "lfu:half_life=60:floor=1"
    assert len(policies("lfu,lfu:half_life=60,lfu")) == 2


@pytest.mark.parametrize("text", ["", "nru", "lru,nru", "optimum", "lfu:half_life", "lfu:half_life=long"])
def test_unknown_policies_are_refused(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        policies(text)
    assert caught.value.numbers


@pytest.mark.parametrize(("text", "size"), [("4096", 4096), ("2MiB", 2 << 20), ("1.5k", 1536), ("3 GB", 3 << 30), ("7b", 7)])
def test_sizes(text: str, size: int) -> None:
    assert size_in_bytes(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "2 apples", "1e9"])
def test_sizes_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        size_in_bytes(text)


@pytest.mark.parametrize("value", [-0.1, 1.01, float("nan"), float("inf")])
def test_a_rate_lies_between_0_and_1(value: float) -> None:
    with pytest.raises(ConfigError, match="between 0 and 1") as caught:
        share(value, "hit rate")
    assert "hit_rate" in caught.value.numbers
