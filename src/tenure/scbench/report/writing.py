"""From rows to a folder: results.json, claims.md, plots and index.html. The command line calls it; it needs no PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from rich.table import Table

from tenure.errors import ConfigError
from tenure.scbench.report import sheets
from tenure.scbench.report.cells import Cell, cells, weak
from tenure.scbench.report.choices import Choice, choices
from tenure.scbench.report.claims import Claims, claims
from tenure.scbench.report.page import CAVEATS, READING, page
from tenure.scbench.report.plots import draw
from tenure.scbench.report.samples import Samples, gather
from tenure.scbench.report.statistics import DRAWS, SEED, TAIL
from tenure.scbench.report.table import table
from tenure.scbench.report.verdicts import FEWEST, MARGIN, USABLE
from tenure.scbench.results import Row
from tenure.scbench.scoring import LEAST_DENSE

__all__ = ["Report", "report", "write"]

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Report:
    """What a grid says. noise: each model, task and mode in which dense is under `LEAST_DENSE`."""

    about: Mapping[str, Any]
    samples: Samples
    noise: tuple[tuple[str, str, str], ...]
    cells: tuple[Cell, ...]
    claims: Claims
    choices: tuple[Choice, ...]

    def document(self) -> bytes:
        """results.json: the same bytes for the same rows, in whatever order they come."""
        how = {
            "draws": DRAWS,
            "seed": SEED,
            "tail": TAIL,
            "fewest": FEWEST,
            "margin": MARGIN,
            "usable": USABLE,
            "least_dense": LEAST_DENSE,
        }
        noise = [dict(zip(("model", "task", "mode"), place, strict=True)) for place in self.noise]
        whole = {
            "format": _FORMAT,
            "grid": self.about,
            "how": how,
            "noise": noise,
            "cells": self.cells,
            "claims": self.claims,
            "choices": self.choices,
        }
        return msgspec.json.format(msgspec.json.encode(whole), indent=1) + b"\n"

    def markdown(self) -> str:
        """claims.md: verdicts, the operator's table, and the numbers behind."""
        found = [*sheets.summary(self.claims), *sheets.operator(self.choices, self.claims), *sheets.claimed(self.claims)]
        notes = "\n".join(f"- {line}" for line in (*READING, *CAVEATS))
        return f"{sheets.answers(found)}\n{notes}\n"

    def tables(self) -> list[Table]:
        """For the terminal: every cell, then verdicts and the operator's table."""
        return [
            table(one)
            for one in (*sheets.full(self.cells), *sheets.summary(self.claims), *sheets.operator(self.choices, self.claims))
        ]


def report(rows: Iterable[Row], about: Mapping[str, Any]) -> Report:
    """The rows' report. about: the grid's description, kept as it is. Raises ConfigError without rows, for rows that contradict
    each other, and for a description that is no JSON."""
    try:
        msgspec.json.encode(about)
    except (TypeError, ValueError, OverflowError) as problem:
        raise ConfigError(f"the grid's description cannot be written as JSON: {problem}") from None
    samples = gather(rows)
    return Report(about, samples, weak(samples), cells(samples), claims(samples), choices(samples))


def write(rows: Iterable[Row], folder: Path, about: Mapping[str, Any]) -> Report:
    """The report, written into the folder (made if need be): results.json and claims.md, then plots/ and index.html. Raises
    ConfigError as `report` does, and, after the first two are written, where matplotlib is missing (extra `lab`)."""
    made = report(rows, about)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_bytes(made.document())
    (folder / "claims.md").write_text(made.markdown(), "utf-8")
    pictures = draw(made.samples, made.cells, folder / "plots")
    (folder / "index.html").write_text(page(made.about, made.cells, made.claims, made.choices, pictures), "utf-8")
    return made
