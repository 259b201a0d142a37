"""Rows of a grid in their file: they read back as themselves, a torn end costs one row, damage is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenure.errors import TraceError
from tenure.scbench.results import read_rows

from .rows import row


def test_rows_read_back_and_a_torn_end_costs_one(tmp_path: Path) -> None:
    rows = [row(seed=seed) for seed in range(3)]
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"".join(one.line() for one in rows))
    assert list(read_rows(path)) == rows
    whole = path.read_bytes()
    for cut in (1, 20, len(rows[-1].line()) - 1):
        path.write_bytes(whole[:-cut])
        assert list(read_rows(path)) == rows[:2]


def test_no_file_has_no_rows_and_damage_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    assert list(read_rows(path)) == []
    path.write_bytes(row().line() + b"{}\n" + row().line())
    with pytest.raises(TraceError, match=r"rows\.jsonl:2"):
        list(read_rows(path))
