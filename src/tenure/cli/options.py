"""Options that several commands share: how traces are read and replayed. The commands use them. It reads nothing until
`read_traces` is called."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from tenure.cli import show
from tenure.errors import TraceError
from tenure.lab.builder import Timing
from tenure.lab.readers import FORMATS, read
from tenure.lab.trace import Trace


class Overlap(str, Enum):
    """Whether requests run at the same time, as the trace says, or one after the other."""

    on = "on"
    off = "off"


Traces = Annotated[list[Path], typer.Argument(help="Trace files, folders of them, or - for standard input.", metavar="TRACE...")]
FormatName = Annotated[
    str | None, typer.Option("--format", help=f"Format of the traces: {', '.join(FORMATS)}. Found out if not given.")
]
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Count bad lines and go on, instead of stopping.")]
Interleave = Annotated[
    float | None, typer.Option(help="For sessions of one file each: file i begins at i times this many seconds.")
]
BlockSize = Annotated[
    int | None, typer.Option(help="Tokens per block, where the trace does not say; refused where it says otherwise.")
]
TokenizerFile = Annotated[str | None, typer.Option("--tokenizer", help="For traces of text: a tokenizer.json, or `bytes`.")]
OverlapMode = Annotated[Overlap, typer.Option(help="on: requests overlap as in the trace; off: one is served after the other.")]
Decode = Annotated[float, typer.Option(help="Seconds per generated token, where the trace has no duration.")]
Prefill = Annotated[float, typer.Option(help="Seconds per prompt token, where the trace has no duration.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document and nothing else.")]


def read_traces(
    paths: list[Path],
    format: str | None,
    skip_bad: bool,
    interleave: float | None,
    block_size: int | None,
    tokenizer: str | None,
    decode: float,
    prefill: float,
) -> Trace:
    """Read the traces; with `skip_bad`, say on stderr how many lines were bad, and the first of them."""
    skipped: list[TraceError] = []
    trace = read(
        paths,
        format,
        skip_bad=skip_bad,
        interleave=interleave,
        block_size=block_size,
        tokenizer=tokenizer,
        timing=Timing(decode, prefill),
        on_bad=skipped.append,
    )
    if skipped:
        show.note(f"skipped {len(skipped)} bad line{'s' if len(skipped) > 1 else ''}; the first: {skipped[0]}")
    return trace
