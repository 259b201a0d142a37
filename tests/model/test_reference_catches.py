"""The model-based test can fail: a manager with any one of these faults is told from a right one within a few programs."""

from __future__ import annotations

import random

import pytest

from tenure import BlockManager

from .faults import FAULTS
from .policies import Policy
from .program import LENGTH
from .records import DisagreementError, Node
from .registry import BUILT_IN
from .runner import Build, run, trouble

FEW = [random.Random(number).randbytes(LENGTH) for number in range(10)]
"""programs within which a fault must show"""


def shows(policy: str, build: Build = BlockManager) -> bool:
    """Does one of the programs fail?"""
    for data in FEW:
        try:
            run(data, policy, build=build)
        except DisagreementError:
            return True
    return False


def test_a_right_manager_is_not_suspected() -> None:
    assert not shows("lru")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_manager_is_found_out(fault: str) -> None:
    assert shows("lru", FAULTS[fault])


@pytest.mark.parametrize("policy", [name for name, made in BUILT_IN.items() if name != "hazard"])
def test_another_order_is_found_out(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here the reference is the one that is wrong: the newest goes."""

    def newest(self: Policy, leaves: list[Node], now: float) -> list[Node]:
        return [max(leaves, key=lambda leaf: leaf.stamp)]

    monkeypatch.setattr(BUILT_IN[policy], "candidates", newest)
    assert shows(policy)


def test_a_failing_program_is_made_small() -> None:
    [report] = next(filter(None, (trouble(data, "lru", build=FAULTS["HitsOneTokenMore"]) for data in FEW)))
    assert "hit tokens: the manager tells" in report
    assert len(report.splitlines()) < 8
