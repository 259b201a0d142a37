"""`tenure scbench`: what dropping, rounding, selecting or sharing KV costs a model over turns and across requests. It plans the
grids and shows how far they are; the benchmark's own package measures and reports."""

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
    from tenure.scbench.grid import Grid
    from tenure.scbench.model import Subject

app = typer.Typer(invoke_without_command=True, help="Measure what shortcuts on KV cost over turns and across requests.")

_INTERRUPTED = 130
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
    own: Annotated[bool, typer.Option("--self", help="Keep the model's own answers, instead of the true ones.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A few sessions and methods, in some minutes.")] = False,
    jobs: Annotated[int | None, typer.Option(help="Processes of one thread each.", show_default="one a core")] = None,
    out: Annotated[Path, typer.Option(help="Folder for rows and report; run again to go on.")] = Path("out/scbench"),
) -> None:
    """Run sessions with every method and budget in both modes, and report what each costs, with intervals."""
    if ctx.invoked_subcommand is not None:
        return
    _needed()
    from tenure.scbench.kept import Kept
    from tenure.scbench.working import measure

    console = Console(stderr=True)
    usual: dict[str, Any] = dict(_QUICK) if quick else {}
    usual |= {name: value for name, value in (("sessions", sessions), ("turns", turns)) if value is not None}
    usual |= {"budgets": tuple(sorted(set(budget), reverse=True))} if budget else {}
    usual |= {"modes": tuple(mode)} if mode else {}
    usual |= {"block_size": block_size, "own": own, "device": device, "methods": _methods(method, quick)}
    integer("--tokens", tokens, 64, 1 << 31)
    grids = _planned(console, model or ["induction", "smollm2"], task, dict(map(_size, size or ())), tokens, dtype, data, usual)
    try:
        with Kept(out, grids) as kept:
            try:
                with _bar(console) as bar:
                    going = bar.add_task("sessions", total=len(kept.units), completed=len(kept.units) - len(kept.missing))
                    measure(kept, grids, _jobs(device) if jobs is None else jobs, lambda unit: bar.advance(going))
            except KeyboardInterrupt:
                console.print(f"{len(kept.missing)} of {len(kept.units)} sessions are left: run it again to go on.")
                raise typer.Exit(_INTERRUPTED) from None
            report(kept.rows, out, grids, _command(ctx))
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


def report(rows: Iterable[Any], out: Path, grids: list[Grid], command: str) -> None:
    """Writes the report of what there is, and prints its tables."""
    from tenure.scbench import about
    from tenure.scbench.report import write

    made = write(rows, out, about.described(grids, command))
    for table in made.tables():
        show.console().print(table)
    typer.echo(f"{out / 'index.html'}")


def _planned(
    console: Console,
    models: list[str],
    tasks: list[str] | None,
    sizes: dict[str, int],
    tokens: int,
    dtype: str | None,
    data: Path | None,
    usual: dict[str, Any],
) -> list[Grid]:
    """A grid a model, with sizes that the model can do. Raises ConfigError when there is nothing that it can."""
    from tenure.scbench.about import made_of
    from tenure.scbench.grid import Grid
    from tenure.scbench.induction import trained
    from tenure.scbench.model import subject
    from tenure.scbench.original import ORIGINAL
    from tenure.scbench.scoring import LEAST_DENSE
    from tenure.scbench.sizes import KNOWN, chosen
    from tenure.scbench.tasks import TASKS

    grids: list[Grid] = []
    for model in models:
        if model == "induction" and not trained():
            console.print("The induction model is trained first; this takes some minutes, once.")
            train(0)
        kind = dtype or ("fp32" if model == "induction" else "bf16")
        one = subject(model, kind, usual["device"])
        if data is not None:
            there = tasks or [name for name in ORIGINAL if (data / f"scbench_{name}.jsonl").is_file()]
            fitting = _fitting(console, one, data, there, usual)
            settings = usual | {"made_of": made_of(one, *(data / f"scbench_{name}.jsonl" for name in fitting))}
            grids.append(
                Grid(model=model, dtype=kind, data=str(data), sizes=dict.fromkeys(fitting, 0), fitting=fitting, **settings)
            )
            continue
        known = KNOWN.get(model, {})
        found: dict[str, int] = {}
        for name in tasks or list(known or TASKS):
            if name not in TASKS:
                raise ConfigError(f"task {name!r} is not known: one of {', '.join(TASKS)} is needed")
            if name in sizes or name in known:
                found[name] = sizes.get(name, known.get(name, 0))
                continue
            tried = chosen(one, name, tokens, usual.get("turns", 5))
            for size in tried:
                console.print(f"{model}, {name} of {size.size} {TASKS[name].unit} ({size.tokens} tokens): dense {size.dense:.2f}")
            if tried[-1].dense >= LEAST_DENSE:
                found[name] = tried[-1].size
            else:
                console.print(f"{model} cannot do {name}: what a method loses there would be noise. It is left out.")
        if not found:
            raise ConfigError(f"{model} can do none of these tasks, so there is nothing to measure: try another model")
        if spare := sizes.keys() - found.keys():
            raise ConfigError(f"--size is given for {', '.join(sorted(spare))}, which is not measured: {', '.join(found)} are")
        grids.append(Grid(model=model, dtype=kind, sizes=found, made_of=made_of(one), **usual))
    return grids


def _fitting(console: Console, one: Subject, data: Path, tasks: list[str], usual: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Of each of SCBench's own tasks the sessions that fit into the model's context. Raises ConfigError when there are none."""
    from tenure.scbench.grid import prompt_tokens
    from tenure.scbench.original import ORIGINAL

    found: dict[str, tuple[int, ...]] = {}
    for name in tasks:
        if name not in ORIGINAL:
            raise ConfigError(f"task {name!r} is none of SCBench's: one of {', '.join(ORIGINAL)} is needed")
        every = list(ORIGINAL[name].read(data, usual.get("turns", 5)))
        fit = [each.seed for each in every if prompt_tokens(one, each, usual["own"]) <= one.context]
        console.print(f"{name}: {len(fit)} of {len(every)} sessions fit into the {one.context} tokens of {one.name}")
        if fit:
            found[name] = tuple(fit)
    if not found:
        raise ConfigError(
            f"no session of {data} can be measured: scbench_NAME.jsonl with contexts of at most {one.context} tokens are needed"
        )
    return found


def _methods(asked: list[str] | None, quick: bool) -> tuple[str, ...]:
    from tenure.scbench.grid import USUAL

    if asked is not None:
        return ("dense", *(name for name in asked if name != "dense"))
    return _QUICK_METHODS if quick else USUAL


def _size(text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    if not (number.isascii() and number.isdigit()):
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
