"""`tenure replay`: policies over traces at several capacities, as a table and a plot, or as JSON. The lab does
the work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from tenure.cli import options, show
from tenure.errors import ConfigError
from tenure.lab import bounds, plots
from tenure.lab.advice import advise, waits
from tenure.lab.replay import BASELINE, OPTIMUM, report, sweep
from tenure.lab.settings import capacities, policies


def command(
    traces: options.Traces,
    policy: Annotated[str, typer.Option(help="Policies, comma between; `all`; parameters as lfu:ageing=0.")] = "all",
    capacity: Annotated[
        str, typer.Option(help="Frames: 1000, 10k, 1m, 5% of the distinct blocks, 1k..64k (doubling); comma between.")
    ] = "1%,2%,5%,10%,20%,50%",
    interleave: options.Interleave = None,
    overlap: options.OverlapMode = options.Overlap.on,
    as_json: options.AsJson = False,
    plot: Annotated[
        Path | None,
        typer.Option(
            help="Write the plot to PLOT.png and PLOT.svg (PLOT with or without such an ending).",
            show_default="hit-rate; none with --json",
        ),
    ] = None,
    no_plot: Annotated[bool, typer.Option("--no-plot", help="Write no plot.")] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Replays at a time.")] = 1,
    format: options.FormatName = None,
    skip_bad: options.SkipBad = False,
    block_size: options.BlockSize = None,
    tokenizer: options.TokenizerFile = None,
    decode: options.Decode = 0.02,
    prefill: options.Prefill = 5e-5,
) -> None:
    """Replay traces through policies and see how far each is from the optimum."""
    chosen = policies(policy)
    capacities(capacity, 1_000_000)  # a typing mistake should show before a long read
    trace = options.read_traces(traces, format, skip_bad, interleave, block_size, tokenizer, decode, prefill)
    sizes = capacities(capacity, trace.distinct)
    together = overlap is options.Overlap.on
    runs = len({choice.label for choice in chosen} | {BASELINE, OPTIMUM}) * len(sizes)
    with show.progress(runs * trace.requests, quiet=as_json) as watch:
        rows = sweep(trace, chosen, sizes, overlap=together, jobs=jobs, watch=watch)
    written = []
    if not no_plot and (plot is not None or not as_json):
        try:
            written = plots.hit_rate(rows, bounds.ceiling(trace), plot or Path("hit-rate"), trace.name)
        except ConfigError as problem:
            if plot is not None:
                raise
            show.note(str(problem))
    if as_json:
        typer.echo(json.dumps(report(trace, rows, overlap=together)))
        return
    out = show.console()
    out.print(show.headline(trace))
    out.print()
    out.print(show.table(rows))
    out.print()
    for line in (*waits(rows, trace.requests), *advise(rows, bounds.ceiling(trace))):
        out.print(line)
    if written:
        out.print(f"Plot: {', '.join(map(str, written))}")
