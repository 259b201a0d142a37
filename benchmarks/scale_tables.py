"""The tables of docs/scale.md, of the JSON that `benchmarks.scale` saves; each stands between two marks in the page.
Called by it, and by the test that compares page and JSON; it reckons nothing."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.report import ROOT

PAGE = ROOT / "docs" / "scale.md"
_MARK = re.compile(r"<!-- (\w+) -->\n(.*?)<!-- end -->\n", re.DOTALL)


def digits(value: float) -> str:
    """Three of them, never in powers of ten."""
    places = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{places}f}" if value >= 0.01 or not value else f"{value:.1g}"


def size(value: float) -> str:
    for name, one in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if value >= one:
            return f"{digits(value / one)} {name}"
    return f"{value:,.0f} B" if value < 1e4 else f"{digits(value / 1e3)} kB"


def time(value: float) -> str:
    for name, one in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= one:
            return f"{digits(value / one)} {name}"
    return f"{digits(value * 1e9)} ns" if value else "0"


def count(value: float) -> str:
    return f"{value:,.0f}"


def share(value: float) -> str:
    return f"{digits(100 * value)} %"


def table(rows: Sequence[Any], columns: Mapping[str, Callable[[Any], str]]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(cell(row) for cell in columns.values()) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _of(name: str, shown: Callable[[float], str]) -> Callable[[Any], str]:
    return lambda row: shown(row[name])


def _text(name: str) -> Callable[[Any], str]:
    return lambda row: str(row[name])


def tables(costs: dict[str, Any], found: dict[str, Any]) -> dict[str, str]:
    """Every table by the name of its mark. costs, found: the two JSON files."""
    shown: dict[str, Callable[[float], str]] = {"s": time, "bytes": size, "ratio": digits}

    def spread(row: dict[str, Any]) -> str:
        show = shown[row["unit"]]
        return "" if row["least"] == row["most"] else f"{show(row['least'])} to {show(row['most'])}"

    measured = {
        "of": lambda row: row["what"],
        "median": lambda row: shown[row["unit"]](row["value"]),
        "from, to": spread,
    }
    work = {
        "requests a second": _of("requests", count),
        "round trips a second": _of("trips", count),
        "batches that shards get": _of("batches", count),
        "shards": _of("shards", count),
        "busiest": _of("busiest", share),
        "work a request": _of("work", time),
        "look-up, median": _of("p50", time),
        "99 %": _of("p99", time),
    }
    return {
        "costs": table(list(costs["units"].values()), measured),
        "checks": table(list(costs["checks"].values()), measured),
        "memory": table(
            found["memory"],
            {
                "blocks": _of("blocks", count),
                "heads": _of("heads", size),
                "shards of 32 GiB": _of("shards", count),
                "payload": _of("payload", size),
                "beside the heads: more than it": _of("beside", size),
                "router's index": _of("index", size),
                "expiry, threads": _of("expiry", digits),
            },
        ),
        "loads": table(found["loads"], {"nodes": _of("nodes", count), "": _text("variant")} | work),
        "spread": table(
            found["spread"],
            {
                "": _text("variant"),
                "requests a second": _of("requests", count),
                "shards": _of("shards", count),
                "work a request": _of("work", time),
                "busiest": _of("busiest", share),
                "families' shard ÷ the others": _of("families", digits),
                "look-up, 99 %": _of("p99", time),
            },
        ),
        "beside": table(found["beside"], {"nodes": _of("nodes", count), "payload a second": _of("bytes", size)} | work),
        "limits": table(
            [
                (
                    "look-ups a second that ask for families, at half of the time of the shard that has them",
                    count(found["limits"]["families"]),
                ),
                (
                    "nodes that read a request's families every second, at half of that shard's time",
                    count(found["limits"]["polls"]),
                ),
                (
                    "look-ups a second that ask every shard twice, at half of each one's time",
                    count(found["limits"]["every_shard"]),
                ),
                ("a new epoch, of that shard's time", time(found["limits"]["bump"])),
                ("a node's own time to name the blocks of a prompt", time(found["limits"]["digests"])),
            ],
            {"what": lambda row: row[0], "": lambda row: row[1]},
        ),
        "events": table(
            found["events"],
            {
                "nodes": _of("nodes", count),
                "events a second": _of("events", count),
                "to each router": lambda row: f"{size(row['bytes'])}/s",
                "a router's threads for them": _of("apply", digits),
                "a node's": _of("mirror", digits),
                "index": _of("index", size),
                "one decision": _of("decide", time),
                "threads for all": _of("threads", digits),
            },
        ),
        "incidents": table(
            found["incidents"],
            {
                "": _text("case"),
                "not computed, before": _of("usual", share),
                "at the least": _of("least", share),
                "back to nine tenths after": _of("back", time),
                "requests without the pool in 5 s": _of("failed", share),
                "the last of them after": _of("failing", time),
                "busiest shard, at most": _of("busiest", share),
                "blocks computed twice": _of("wasted", count),
            },
        ),
    }


def filled(page: str, made: dict[str, str]) -> str:
    """The page with these tables between its marks. Raises KeyError for a mark that has none."""
    return _MARK.sub(lambda found: f"<!-- {found[1]} -->\n{made[found[1]]}<!-- end -->\n", page)


def marks(page: str) -> list[str]:
    return [found[1] for found in _MARK.finditer(page)]


def write_page(costs: dict[str, Any], found: dict[str, Any]) -> None:
    PAGE.write_text(filled(PAGE.read_text(), tables(costs, found)))
