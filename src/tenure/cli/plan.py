"""`tenure plan`: the frames, and the memory, that a hit rate needs. The lab does the work."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from tenure.cli import options, show
from tenure.lab import bounds
from tenure.lab.advice import frames
from tenure.lab.plan import plan
from tenure.lab.settings import policies, share, size_in_bytes


def command(
    traces: options.Traces,
    hit_rate: Annotated[float, typer.Option(help="The part of the blocks asked for that must hit, 0 to 1.")],
    policy: Annotated[str, typer.Option(help="Policies to plan for, comma between.")] = "lru",
    bytes_per_block: Annotated[str | None, typer.Option(help="Size of a block, like 2MiB; gives the memory too.")] = None,
    interleave: options.Interleave = None,
    overlap: options.OverlapMode = options.Overlap.on,
    as_json: options.AsJson = False,
    format: options.FormatName = None,
    skip_bad: options.SkipBad = False,
    block_size: options.BlockSize = None,
    tokenizer: options.TokenizerFile = None,
    decode: options.Decode = 0.02,
    prefill: options.Prefill = 5e-5,
) -> None:
    """Find out how much memory a hit rate needs."""
    share(hit_rate, "hit rate")
    chosen = policies(policy)
    each = size_in_bytes(bytes_per_block) if bytes_per_block else None
    trace = options.read_traces(traces, format, skip_bad, interleave, block_size, tokenizer, decode, prefill)
    needs = [plan(trace, choice, hit_rate, overlap=overlap is options.Overlap.on)[0] for choice in chosen]
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "hit_rate": hit_rate,
                    "ceiling": round(bounds.ceiling(trace), 6),
                    "rows": [
                        {
                            "policy": choice.label,
                            "frames": need.frames,
                            "too_few": need.low if need.low < need.frames else None,
                            "bytes": None if each is None else need.frames * each,
                        }
                        for choice, need in zip(chosen, needs, strict=True)
                    ],
                }
            )
        )
        return
    out = show.console()
    out.print(show.headline(trace))
    for choice, need in zip(chosen, needs, strict=True):
        how = f"replayed; {need.low:,} are too few" if need.low < need.frames else "replayed"
        memory = f" = {show.size(need.frames * each)} of {show.size(each)} blocks" if each else ""
        out.print(f"{choice.label}: {frames(need.frames)}{memory} for a hit rate of {hit_rate:.2%} ({how}).")
