"""What `tenure rollout` prints: a rollout in one line, its nodes as a table or a document, a bar while it is reclaimed.
The command calls it; it asks no pool."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar
from rich.table import Table

from tenure.cli import show
from tenure.cluster.rollout import Phase, Rollout, Version
from tenure.cluster.rollouts import Progress


def line(rollout: Rollout) -> str:
    """A rollout in one line: how far it is, and who gets what."""
    kept, retired = _short(rollout.kept), _short(rollout.retired)
    if rollout.phase is Phase.DONE:
        return f"{rollout.model}: done{', rolled back' if rollout.back else ''}; {kept} stays, {retired} is gone"
    going = " back" if rollout.back else ""
    if rollout.phase in (Phase.DRAINING, Phase.RECLAIMING):
        return f"{rollout.model}: {rollout.phase.value}{going}; all sessions get {kept}, {retired} goes"
    return f"{rollout.model}: {rollout.phase.value}; {rollout.share:.4g} of the sessions get {kept}, the others {retired}"


def table(progress: Progress) -> Table:
    """The nodes, and what each has of either version."""
    out = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("node", "heard", "old: sequences", "blocks", "new: sequences", "blocks", "warmed", "epochs read"):
        out.add_column(name, justify="left" if name in ("node", "heard") else "right", no_wrap=True)
    behind = set(progress.behind)
    for node in progress.nodes:
        part = progress.part(node)
        counts = [f"{count:,}" for count in (*part.old, *part.new, part.warmed)]
        age = "never" if node.age is None else f"{node.age:.0f} s ago"
        out.add_row(node.name, "not yet" if node.name in behind else "yes", *counts, age)
    return out


def document(progress: Progress) -> dict[str, Any]:
    """The same for machines."""
    rollout = progress.rollout
    behind = set(progress.behind)
    return {
        "model": rollout.model,
        "phase": rollout.phase.value,
        "share": rollout.share,
        "back": rollout.back,
        "old": {name: _text(value) for name, value in rollout.old.items()},
        "new": {name: _text(value) for name, value in rollout.new.items()},
        "nodes": [
            {
                "name": node.name,
                "heard": node.name not in behind,
                "old": progress.part(node).old._asdict(),
                "new": progress.part(node).new._asdict(),
                "warmed": progress.part(node).warmed,
                "epochs_age": node.age,
            }
            for node in progress.nodes
        ],
    }


@contextlib.contextmanager
def bar() -> Iterator[Callable[[str, int], None]]:
    """A bar on stderr that fills as blocks go; where nobody watches, a line for every change."""
    watched = sys.stderr.isatty()
    columns = TextColumn("{task.description}", markup=False), BarColumn()
    shown = Bar(*columns, console=Console(stderr=True), transient=True, disable=not watched)
    most, last = 0, ""
    with shown:
        task = shown.add_task("reclaiming", total=None)

        def tell(text: str, blocks: int) -> None:
            nonlocal most, last
            most = max(most, blocks)
            shown.update(task, description=text, total=most or None, completed=most - blocks)
            if not watched and text != last:
                show.note(text)
            last = text

        yield tell


def _short(version: Version) -> str:
    """A version as people read it: digests by their beginnings."""
    return " ".join(f"{name}={_text(value)[:12] or 'none'}" for name, value in sorted(version.items()))


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.hex()
