"""`tenure tour`: generated traffic through every policy, with the optimum, plots, one block's life, one miss explained.
What it shows comes from the same calls that the other commands make."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from tenure.cli import life, show, why
from tenure.errors import ConfigError
from tenure.lab import bounds, plots
from tenure.lab.advice import advise, waits
from tenure.lab.explain import explain
from tenure.lab.generate import generate
from tenure.lab.replay import OPTIMUM, report, sweep
from tenure.lab.settings import capacities, policies


def command(
    out: Annotated[Path, typer.Option(help="Folder for the traffic, the rows and the plots.")] = Path("tour"),
    seconds: Annotated[float, typer.Option(help="How long the traffic lasts.")] = 900.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same tour.")] = 7,
) -> None:
    """Generate traffic of four tenants, replay it through every policy, and show what the pool can tell."""
    screen = show.console()
    made = generate("mixed", seconds=seconds, seed=seed)
    trace = made.trace()
    try:
        out.mkdir(parents=True, exist_ok=True)
        made.write(out / "traffic.jsonl", "hash_ids")
    except OSError as problem:
        raise ConfigError(f"{out}: cannot be written: {problem.strerror or problem}", file=str(out)) from None
    chosen = policies("all")
    sizes = capacities("3%,6%,12%,25%,50%", trace.distinct)
    screen.rule("Traffic", align="left")
    screen.print(f"{', '.join(f'{w.kind} ({t})' for t, w in made.workloads.items())}; {seconds:g} s, seed {seed}")
    screen.print(show.headline(trace))
    with show.progress((len(chosen) + 1) * len(sizes) * trace.requests, quiet=False) as watch:
        rows = sweep(trace, chosen, sizes, watch=watch)
    (out / "rows.json").write_text(json.dumps(report(trace, rows), indent=1) + "\n", encoding="utf-8")
    screen.rule(f"Every policy, and the {OPTIMUM}", align="left")
    screen.print(show.table(rows))
    for line in (*waits(rows, trace.requests), *advise(rows, bounds.ceiling(trace))):
        screen.print(line)
    written = plots.hit_rate(rows, bounds.ceiling(trace), out / "hit-rate", f"Four tenants, {trace.requests:,} requests")
    screen.rule("One block's life", align="left")
    for line in life.lines(life.story()):
        screen.print(line)
    screen.rule("One miss explained", align="left")
    told = explain(trace, sizes[1], chosen[0])
    screen.print(why.assumed(told))
    screen.print(show.reasons(told.reasons))
    screen.print(why.how_counted(told))
    for line in why.sentences(trace, told, told.worst()):
        screen.print(line)
    screen.rule("Written", align="left")
    for path in (out / "traffic.jsonl", out / "rows.json", *written):
        screen.print(str(path))
