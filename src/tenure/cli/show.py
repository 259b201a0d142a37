"""What the commands print: the trace's headline, the table of rows, a progress bar on stderr. The commands call it. It
computes nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tenure.lab import bounds
from tenure.lab.replay import Row
from tenure.lab.trace import Trace
from tenure.ledger import Reason

_PIPE_WIDTH = 120


def console(pipe: int = _PIPE_WIDTH) -> Console:
    """Standard output; a pipe gets wide tables, of `pipe` characters, and unwrapped lines."""
    return Console(
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=not sys.stdout.isatty(),
        width=None if sys.stdout.isatty() else pipe,
    )


def note(text: str) -> None:
    """A line on stderr."""
    print(f"tenure: {text}", file=sys.stderr)


def size(nbytes: float) -> str:
    """Bytes as people read them."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if nbytes < 1024:
            return f"{nbytes:.4g} {unit}"
        nbytes /= 1024
    return f"{nbytes:.4g} TiB"


def headline(trace: Trace) -> str:
    """The trace in one line."""
    return (
        f"{trace.name}: {trace.requests:,} requests, {trace.asked:,} blocks asked for, {trace.distinct:,} distinct, "
        f"ceiling {bounds.ceiling(trace):.2%}"
    )


def table(rows: Sequence[Row]) -> Table:
    """Rows as a table: one section a capacity."""
    out = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("frames", "policy", "hit rate", "optimum", "gap closed", "prefill saved", "evictions", "seconds"):
        out.add_column(name, justify="left" if name == "policy" else "right", no_wrap=True)
    last = None
    for row in sorted(rows, key=lambda row: row.capacity):
        if last not in (None, row.capacity):
            out.add_row()
        out.add_row(
            f"{row.capacity:,}" if row.capacity != last else "",
            row.policy,
            f"{row.hit_rate:.2%}",
            "" if row.optimum is None else f"{row.optimum:.2%}",
            "-" if row.gap_closed is None else f"{row.gap_closed:.0%}".replace("-0%", "0%"),
            f"{row.tokens_saved:,}",
            f"{row.evictions:,}",
            f"{row.seconds:.2f}",
        )
        last = row.capacity
    return out


@contextmanager
def progress(total: int, quiet: bool) -> Iterator[Callable[[str, int, int], None]]:
    """A bar on stderr over `total` requests; yields what `sweep` calls as (policy, capacity, requests done)."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=quiet or not sys.stderr.isatty(),
    )
    done: dict[tuple[str, int], int] = {}

    with bar:
        task = bar.add_task("replay", total=total)

        def tell(policy: str, capacity: int, requests: int) -> None:
            done[policy, capacity] = requests
            bar.update(task, description=f"{policy} at {capacity:,}", completed=sum(done.values()))

        yield tell


def reasons(rows: Sequence[tuple[Reason, int, int]]) -> Table:
    """Why look-ups ended: (reason, look-ups, tokens missed)."""
    out = Table(box=None, pad_edge=False, header_style="bold")
    out.add_column("look-ups ended because")
    for name in ("requests", "tokens missed"):
        out.add_column(name, justify="right")
    for reason, ended, missed in rows:
        out.add_row(reason.value.replace("_", " "), f"{ended:,}", f"{missed:,}")
    return out
