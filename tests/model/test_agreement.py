"""Random programs: the manager and the reference agree after every step, for every policy."""

from __future__ import annotations

import os
import zlib

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from .program import LENGTH
from .registry import BUILT_IN
from .runner import trouble

PROGRAMS = int(os.environ.get("TENURE_PROGRAMS", "200"))
"""programs of 200 steps for each policy"""
SEED = int(os.environ.get("TENURE_PROGRAMS_SEED", "0"))
"""another one gives other programs"""


def try_programs(policy: str, changing: bool) -> None:
    """Runs the programs; they are the same each time."""
    failed: list[str] = []

    @seed(zlib.crc32(f"{policy} {changing} {SEED}".encode()))
    @settings(
        max_examples=PROGRAMS,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],  # a program that fails is made small by the runner, step by step
        suppress_health_check=list(HealthCheck),
    )
    @given(st.binary(min_size=LENGTH, max_size=LENGTH))
    def programs(data: bytes) -> None:
        if not failed:
            failed.extend(trouble(data, policy, changing=changing))

    programs()
    if failed:
        pytest.fail(failed[0], pytrace=False)


@pytest.mark.parametrize("policy", [*BUILT_IN, "custom"])
def test_manager_and_reference_agree(policy: str) -> None:
    try_programs(policy, changing=False)


@pytest.mark.parametrize("policy", ["lru", "custom"])
def test_they_agree_while_policies_change(policy: str) -> None:
    try_programs(policy, changing=True)
