"""`tenure scbench`: what dropping, rounding, selecting or sharing KV costs a model over turns and across requests. It shows how
far a grid is; the benchmark's own package plans, measures and reports."""

from __future__ import annotations

import importlib.util
import os
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from tenure.checks import integer
from tenure.cli import show
from tenure.errors import ConfigError, TenureError

if TYPE_CHECKING:
    from tenure.scbench.planning import Plan

app = typer.Typer(invoke_without_command=True, help="Measure what shortcuts on KV cost over turns and across requests.")

_INTERRUPTED = 130
_MODELS = ("induction", "smollm2")
_WIDE = 180
_QUICK = {"sessions": 4, "turns": 3, "budgets": (0.25,), "timed": 1}
_QUICK_METHODS = (
    "dense",
    "streaming",
    "snapkv",
    "random",
    "kivi-int4",
    "codec-int8",
    "quest",
    "oracle",
    "cacheblend",
    "prefix",
    "swapped",
    "recompute",
)


@app.callback()
def command(
    ctx: typer.Context,
    model: Annotated[
        list[str] | None,
        typer.Option(help="induction, smollm2, or a folder of a llama-like model; again for more.", show_default="both"),
    ] = None,
    task: Annotated[list[str] | None, typer.Option(help="A task; again for more.", show_default="those the model can do")] = None,
    method: Annotated[list[str] | None, typer.Option(help="A method besides dense; again for more.", show_default="all")] = None,
    budget: Annotated[
        list[float] | None, typer.Option(help="A fraction of the KV's bytes; again for more.", show_default="1/2 to 1/16")
    ] = None,
    mode: Annotated[list[str] | None, typer.Option(help="multi_turn or multi_request.", show_default="both")] = None,
    sessions: Annotated[int | None, typer.Option(help="Sessions a task.", show_default="30; 4 with --quick")] = None,
    turns: Annotated[int | None, typer.Option(help="Questions a session.", show_default="5; 3 with --quick")] = None,
    size: Annotated[
        list[str] | None,
        typer.Option(metavar="TASK=N", help="How long a task's sessions are, in its units.", show_default="found out"),
    ] = None,
    tokens: Annotated[int, typer.Option(help="The longest context that is tried when a size is found out.")] = 2048,
    block_size: Annotated[int, typer.Option(help="Tokens per block.")] = 16,
    dtype: Annotated[str | None, typer.Option(help="bf16, fp16 or fp32.", show_default="bf16; induction: fp32")] = None,
    device: Annotated[str, typer.Option(help="Where models run, as torch names it.")] = "cpu",
    data: Annotated[Path | None, typer.Option(help="A folder of SCBench's own scbench_*.jsonl: its tasks instead.")] = None,
    use: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="A Python file with methods or tasks, which --method and --task then name."),
    ] = None,
    own: Annotated[bool, typer.Option("--self", help="Keep the model's own answers, instead of the true ones.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A few sessions and methods, in some minutes.")] = False,
    jobs: Annotated[int | None, typer.Option(help="Processes of one thread each.", show_default="one a core")] = None,
    out: Annotated[Path, typer.Option(help="Folder for rows and report; run again to go on.")] = Path("out/scbench"),
) -> None:
    """Run sessions with every method and budget in both modes, and report what each costs, with intervals."""
    if ctx.invoked_subcommand is not None:
        return
    _needed()
    from tenure.scbench.added import load
    from tenure.scbench.kept import Kept
    from tenure.scbench.planning import Wanted, planned
    from tenure.scbench.working import measure

    console = Console(stderr=True)
    usual: dict[str, Any] = dict(_QUICK) if quick else {}
    usual |= {name: value for name, value in (("sessions", sessions), ("turns", turns)) if value is not None}
    usual |= {"budgets": tuple(sorted(set(budget), reverse=True))} if budget else {}
    usual |= {"modes": tuple(mode)} if mode else {}
    usual |= {"block_size": block_size, "own": own, "device": device, "methods": _methods(method, quick)}
    usual |= {"use": tuple(map(str, use or ()))}
    load(usual["use"])
    integer("--tokens", tokens, 64, 1 << 31)
    processes = _jobs(device) if jobs is None else integer("--jobs", jobs, 1, 1024)
    wanted = Wanted(tuple(model or _MODELS), task, dict(map(_size, size or ())), tokens, dtype, data, usual)
    plans = planned(wanted, console.print)
    grids = [plan.grid for plan in plans]
    try:
        with Kept(out, grids) as kept:
            try:
                with _bar(console) as bar:
                    going = bar.add_task("sessions", total=len(kept.units), completed=len(kept.units) - len(kept.missing))
                    measure(kept, grids, processes, lambda unit: bar.advance(going))
            except KeyboardInterrupt:
                console.print(f"{len(kept.missing)} of {len(kept.units)} sessions are left: run it again to go on.")
                raise typer.Exit(_INTERRUPTED) from None
            report(kept.rows, out, plans, _command(ctx))
    except OSError as problem:
        raise TenureError(f"{out}: {problem.strerror or problem}") from None


@app.command()
def train(seed: Annotated[int, typer.Option(help="Of its first weights and its lessons.")] = 0) -> None:
    """Train the induction model, in minutes on two cores, unless this machine has it already."""
    _needed()
    from tenure.scbench.train import Progress, train

    with _bar(Console(stderr=True)) as bar:
        going = bar.add_task("training")

        def progress(step: Progress) -> None:
            bar.update(going, total=step.steps, completed=step.step)

        folder = train(seed, progress)
    typer.echo(folder)


def report(rows: Iterable[Any], out: Path, plans: list[Plan], command: str) -> None:
    """Writes the report of what there is, and prints its tables."""
    from tenure.scbench import about
    from tenure.scbench.report import write

    made = write(rows, out, about.described(plans, command))
    for table in made.tables():
        show.console(_WIDE).print(table)
    typer.echo(f"{out / 'index.html'}")


def _methods(asked: list[str] | None, quick: bool) -> tuple[str, ...]:
    from tenure.scbench.grid import USUAL

    if asked is not None:
        return ("dense", *(name for name in asked if name != "dense"))
    return _QUICK_METHODS if quick else USUAL


def _size(text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    if not (number.isascii() and number.isdigit() and len(number) < 10):
        raise ConfigError(f"--size is {text!r}: TASK=N is needed, like retr_kv=128")
    return name, int(number)


def _command(ctx: typer.Context) -> str:
    """What was typed, with options by their long names."""
    words = ["tenure", "scbench"]
    for part in ctx.command.params:
        source = ctx.get_parameter_source(part.name) if part.name else None
        if part.name and source is not None and source.name == "COMMANDLINE":
            value = ctx.params[part.name]
            for one in value if isinstance(value, list | tuple) else [value]:
                words += [part.opts[0]] if one is True else [part.opts[0], str(one)]
    return shlex.join(words)


def _jobs(device: str) -> int:
    """A process a core; one on another device, which would have to hold the model once for each."""
    return (os.cpu_count() or 1) if device == "cpu" else 1


def _bar(console: Console) -> Bar:
    parts = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    return Bar(*parts, console=console)


def _needed() -> None:
    if missing := [
        name for name in ("torch", "transformers", "safetensors", "matplotlib") if importlib.util.find_spec(name) is None
    ]:
        raise TenureError(f"scbench needs {', '.join(missing)}: pip install 'tenure[cli,lab,model]'")
