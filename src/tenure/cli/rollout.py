"""`tenure rollout`: a new version of a model, from its announcement until nothing of the old one is left, or back. The steps are
those of `cluster.rollouts`; this asks for them and shows how far they are."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from tenure.checks import positive
from tenure.cli import options, rollout_show, show
from tenure.cluster.rollout import Phase, Rollout, Version
from tenure.cluster.rollouts import Rollouts
from tenure.errors import ConfigError

if TYPE_CHECKING:
    from tenure.tiers.pool import PoolTier

app = typer.Typer(no_args_is_help=True, help="Change a model's version on all nodes of a pool, step by step, or go back.")

Url = Annotated[str, typer.Option("--url", envvar="TENURE_POOL", help="The pool: valkey://host:port, or TENURE_POOL.")]
Prefix = Annotated[str, typer.Option("--prefix", help="The pool's prefix, as the nodes have it.")]
Model = Annotated[str | None, typer.Option("--model", help="Of which model, where several rollouts go on.")]
Fields = Annotated[
    list[str], typer.Option(metavar="FIELD=VALUE", help="weights=, adapter=, tokenizer= (digests), quantisation=.")
]
_NEXT = {
    Phase.ANNOUNCED: "warm, or shift 0.05",
    Phase.WARMING: "shift 0.05",
    Phase.SHIFTING: "shift, or drain; or leave it so: an A/B test",
    Phase.DRAINING: "reclaim --wait",
    Phase.RECLAIMING: "reclaim --wait",
}


def pool_at(url: str, prefix: str) -> PoolTier:
    """The pool that the nodes share; only its small entries are asked for. Raises ConfigError."""
    if url == "embedded":
        raise ConfigError("an embedded pool is of one process: give the address of the pool that the nodes share")
    try:
        from tenure.tiers.layout import BlockLayout
        from tenure.tiers.valkey import ValkeyTier
    except ImportError:
        raise ConfigError("a pool needs more packages: pip install 'tenure[cli,valkey]'") from None
    return ValkeyTier(BlockLayout.of("bf16", 1, 1, 1, 1), url, frames=1, prefix=prefix)


@app.command()
def start(
    model: Annotated[str, typer.Argument(help="The model's name, as requests ask for it.")],
    old: Fields,
    new: Fields,
    url: Url,
    prefix: Prefix = "tenure",
) -> None:
    """Announce a new version; nobody gets it yet."""
    with _operator(url, prefix) as operator:
        _say(operator.announce(model, _fields("--old", old), _fields("--new", new)))


@app.command()
def warm(
    url: Url,
    prefixes: Annotated[int, typer.Option(help="How many prefixes each node is to compute ahead.")] = 64,
    model: Model = None,
    prefix: Prefix = "tenure",
) -> None:
    """Have the nodes compute their hottest prefixes under the new version."""
    with _operator(url, prefix) as operator:
        _say(operator.warm(_model(operator, model), prefixes))


@app.command()
def shift(
    share: Annotated[float, typer.Argument(help="The part of the sessions that gets the new version, from 0 to 1.")],
    url: Url,
    model: Model = None,
    prefix: Prefix = "tenure",
) -> None:
    """Give the new version to a part of the sessions."""
    with _operator(url, prefix) as operator:
        _say(operator.shift(_model(operator, model), share))


@app.command()
def drain(url: Url, model: Model = None, prefix: Prefix = "tenure") -> None:
    """Give the old version to nobody any more."""
    with _operator(url, prefix) as operator:
        _say(operator.drain(_model(operator, model)))


@app.command()
def back(url: Url, model: Model = None, prefix: Prefix = "tenure") -> None:
    """Roll back: give the new version to nobody any more; `reclaim` ends it."""
    with _operator(url, prefix) as operator:
        _say(operator.roll_back(_model(operator, model)))


@app.command()
def reclaim(
    url: Url,
    wait: Annotated[bool, typer.Option("--wait", help="Go on until nothing is left.")] = False,
    every: Annotated[float, typer.Option(help="Seconds between two looks.")] = 1.0,
    model: Model = None,
    prefix: Prefix = "tenure",
) -> None:
    """End the version that goes: raise its epoch, and see its last sequences and blocks out."""
    positive("every", every)
    with _operator(url, prefix) as operator:
        name = _model(operator, model)
        if not wait:
            _say(operator.reclaim(name))
            return
        with rollout_show.bar() as tell:
            while not _reclaimed(operator, name, tell):
                time.sleep(every)
        _say(operator.get(name))


@app.command()
def status(
    url: Url,
    model: Annotated[str | None, typer.Option("--model", help="Of this model only.")] = None,
    as_json: options.AsJson = False,
    prefix: Prefix = "tenure",
) -> None:
    """Show how far rollouts are, by node."""
    with _operator(url, prefix) as operator:
        found = operator.all() if model is None else [operator.get(model)]
        told = [operator.progress(rollout.model) for rollout in found]
    if as_json:
        typer.echo(json.dumps([rollout_show.document(progress) for progress in told]))
        return
    out = show.console()
    for progress in told:
        out.print(rollout_show.line(progress.rollout))
        if progress.nodes:
            out.print(rollout_show.table(progress))
        out.print()
    if not told:
        out.print("There is no rollout.")


def _reclaimed(operator: Rollouts, model: str, tell: Callable[[str, int], None]) -> bool:
    """One step on, and a word on what it waits for; True when nothing is left."""
    progress = operator.progress(model)
    if progress.behind and progress.rollout.phase is Phase.DRAINING:
        tell(f"waiting for {', '.join(progress.behind)} to hear of it", 0)
        return False
    if operator.reclaim(model).phase is Phase.DONE:
        return True
    left = [progress.left(node) for node in progress.nodes]
    sequences, blocks = sum(each.sequences for each in left), sum(each.blocks for each in left)
    names = f" on {', '.join(progress.holding)}" if progress.holding else ""
    tell(f"left: {sequences:,} sequences, {blocks:,} blocks{names}", blocks)
    return False


@contextlib.contextmanager
def _operator(url: str, prefix: str) -> Iterator[Rollouts]:
    with contextlib.closing(pool_at(url, prefix)) as pool:
        yield Rollouts(pool)


def _model(operator: Rollouts, model: str | None) -> str:
    """The model that is meant: the only one that is being rolled out, where none is named."""
    if model is not None:
        return model
    going = [rollout.model for rollout in operator.all() if rollout.phase is not Phase.DONE]
    if len(going) != 1:
        raise ConfigError(f"which rollout? {', '.join(going) or 'none'} {'go' if len(going) > 1 else 'goes'} on: give --model")
    return going[0]


def _fields(option: str, given: list[str]) -> Version:
    fields: Version = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or name in fields:
            raise ConfigError(f"{option} is given {each!r}: FIELD=VALUE is needed, once for each field")
        fields[name] = value
    return fields


def _say(rollout: Rollout) -> None:
    typer.echo(rollout_show.line(rollout))
    if rollout.phase in _NEXT:
        typer.echo(f"Next: {_NEXT[rollout.phase]}")
