"""Builds the core's own tests, in C++ and without Python, and runs them for a moment. With sanitisers and for longer: `make`."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
COMPILER = os.environ.get("CXX", "g++")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"no C++ compiler ({COMPILER})"),
    pytest.mark.skipif(not (HERE / "../../cpp/pool.hpp").exists(), reason="the core's sources are not here"),
]


@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        ("units", []),
        ("stress", ["--seed", "100", "--rounds", "40"]),
        ("stress", ["threads", "--seed", "100", "--seconds", "2"]),
    ],
    ids=["units", "stress", "threads"],
)
def test_the_core_by_itself(program: str, arguments: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    built = tmp_path_factory.getbasetemp() / program
    if not built.exists():
        flags = ["-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-ffp-contract=off", "-pthread"]
        subprocess.run([COMPILER, *flags, str(HERE / f"{program}.cpp"), "-o", str(built)], check=True)
    done = subprocess.run([str(built), *arguments], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
