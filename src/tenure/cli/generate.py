"""`tenure generate`: traffic from a seed, as JSONL that holds its own parameters. The lab does the work."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from tenure.errors import ConfigError
from tenure.lab.generate import generate
from tenure.lab.workloads import KINDS


class What(str, Enum):
    """What a request holds: its tokens, or an id per full block."""

    tokens = "tokens"
    hash_ids = "hash_ids"


def command(
    out: Annotated[Path, typer.Argument(help="The JSONL file to write.")],
    kind: Annotated[str, typer.Option(help=f"The traffic: {', '.join(KINDS)}, or mixed (a tenant of each).")] = "mixed",
    seconds: Annotated[float, typer.Option(help="How long the traffic lasts.")] = 600.0,
    requests: Annotated[int | None, typer.Option(help="At most this many requests.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same file.")] = 0,
    block_size: Annotated[int, typer.Option(help="Tokens per block.")] = 16,
    what: Annotated[What, typer.Option(help="Prompts as tokens, or as block ids (smaller).")] = What.tokens,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A parameter of the kind, as turns=8; may come several times.")
    ] = None,
) -> None:
    """Write synthetic traffic: chat, agents with tool pauses, RAG with hot documents, one-off scans, mixed tenants."""
    parameters: dict[str, float] = {}
    for pair in set_ or []:
        name, _, value = pair.partition("=")
        try:
            parameters[name] = float(value)
        except ValueError:
            raise ConfigError(f"no parameter: {pair!r} (like turns=8)", parameter=pair) from None
    reserved = sorted({"kind", "seconds", "seed", "block_size", "requests", "tenants"} & parameters.keys())
    if reserved:
        raise ConfigError(f"{reserved[0]} has an option of its own", parameter=reserved[0])
    made = generate(kind, seconds=seconds, seed=seed, block_size=block_size, requests=requests, **parameters)  # type: ignore[arg-type]
    try:
        count = made.write(out, what.value)
    except OSError as problem:
        raise ConfigError(f"{out}: cannot be written: {problem.strerror or problem}", file=str(out)) from None
    typer.echo(f"{out}: {count:,} requests of {kind} traffic over {seconds:g} s, seed {seed}")
