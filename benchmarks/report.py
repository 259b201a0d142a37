"""What a benchmark found: rows with a ratio and what was wanted, printed, saved as JSON, and written into docs/benchmarks.md."""

from __future__ import annotations

import json
import platform
import statistics
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"


@dataclass(frozen=True)
class Row:
    """`ratio` = median(theirs) / median(ours) unless `what` says otherwise; `wanted` with its sense, e.g. (">=", 30)."""

    what: str
    ratio: float | None
    wanted: tuple[str, float] | None = None
    samples: dict[str, list[float]] = field(default_factory=dict)
    note: str = ""

    @property
    def met(self) -> bool | None:
        if self.wanted is None or self.ratio is None:
            return None
        sense, bound = self.wanted
        return self.ratio >= bound if sense == ">=" else self.ratio <= bound


def ratio(theirs: Iterable[float], ours: Iterable[float]) -> float:
    return statistics.median(theirs) / statistics.median(ours)


def machine() -> dict[str, str | int | None]:
    import os

    model = ""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        model = next(
            (line.split(":")[1].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")), ""
        )
    return {"processor": model, "cores": os.cpu_count(), "python": platform.python_version(), "system": platform.system()}


def save(name: str, title: str, rows: list[Row]) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    body = {"title": title, "machine": machine(), "rows": [asdict(row) | {"met": row.met} for row in rows]}
    (RESULTS / f"{name}.json").write_text(json.dumps(body, indent=1) + "\n")
    print(table(title, rows))


def table(title: str, rows: list[Row]) -> str:
    lines = [f"### {title}", "", "| | ratio | wanted | |", "|---|---|---|---|"]
    for row in rows:
        wanted = "" if row.wanted is None else f"{row.wanted[0]} {row.wanted[1]:g}"
        shown = "not run" if row.ratio is None else f"{row.ratio:.3g}"
        mark = {True: "yes", False: "**no**", None: ""}[row.met]
        lines.append(f"| {row.what}{' (' + row.note + ')' if row.note else ''} | {shown} | {wanted} | {mark} |")
    return "\n".join([*lines, ""])


def write_page() -> None:
    """docs/benchmarks.md from the JSON of every benchmark that has been run."""
    parts = [
        "# Benchmarks\n",
        "Written by `make bench`. Each figure is a ratio of medians measured side by side in one run; machines are shared",
        "and noisy, so no absolute time is quoted. The samples are in `benchmarks/results/`.\n",
    ]
    for path in sorted(RESULTS.glob("*.json")):
        body = json.loads(path.read_text())
        rows = [
            Row(r["what"], r["ratio"], tuple(r["wanted"]) if r["wanted"] else None, {}, r["note"])  # type: ignore[arg-type]
            for r in body["rows"]
        ]
        m = body["machine"]
        parts.append(table(body["title"], rows))
        parts.append(f"<sub>{m['processor']}, {m['cores']} cores, Python {m['python']}, {m['system']}</sub>\n")
    (ROOT / "docs" / "benchmarks.md").write_text("\n".join(parts))
