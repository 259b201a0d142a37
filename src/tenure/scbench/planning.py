"""From what is asked for to a grid a model: which tasks, how long their sessions are, which sessions fit. The command line calls
it; it measures nothing but whether dense attention can do a task."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tenure.errors import ConfigError
from tenure.scbench.about import made_of, sized
from tenure.scbench.grid import Grid, fitting_tokens, prompt_tokens
from tenure.scbench.induction import trained
from tenure.scbench.model import Subject, subject
from tenure.scbench.original import ORIGINAL
from tenure.scbench.scoring import LEAST_DENSE
from tenure.scbench.sizes import KNOWN, Size, chosen
from tenure.scbench.tasks import TASKS
from tenure.scbench.train import train

__all__ = ["Plan", "Wanted", "planned"]

Say = Callable[[str], None]


class Wanted(NamedTuple):
    """What is asked for. tasks: None for those that a model can do. sizes: of tasks' sessions, as far as they are given. tokens:
    of the longest context that is tried. dtype: None for the models' usual one. data: a folder of SCBench's own. usual: the
    other settings of a `Grid`, the same for all models."""

    models: tuple[str, ...]
    tasks: list[str] | None
    sizes: dict[str, int]
    tokens: int
    dtype: str | None
    data: Path | None
    usual: dict[str, Any]


class Plan(NamedTuple):
    """A grid, with its model's name in rows and the model's own numbers."""

    grid: Grid
    name: str
    model: dict[str, Any]


def planned(wanted: Wanted, say: Say) -> list[Plan]:
    """A grid a model; `say` is told what was found out. Raises ConfigError when there is nothing that a model can do."""
    known = ORIGINAL if wanted.data is not None else TASKS
    for name in (*(wanted.tasks or ()), *wanted.sizes):
        if name not in known:
            raise ConfigError(f"task {name!r} is not known: one of {', '.join(known)} is needed")
    usual = Grid(**wanted.usual, model="any", sizes=dict.fromkeys(TASKS, 1))  # what is wrong is said before any work
    plans = []
    for model in wanted.models:
        if model == "induction" and not trained():
            say("The induction model is trained first; this takes some minutes, once.")
            train(0)
        dtype = wanted.dtype or ("fp32" if model == "induction" else "bf16")
        one = subject(model, dtype, usual.device)
        settings = wanted.usual | {"model": model, "dtype": dtype}
        files = [Path(file) for file in usual.use]
        if wanted.data is not None:
            fitting = _fitting(one, wanted.data, wanted.tasks, usual, say)
            files += [ORIGINAL[name].path(wanted.data) for name in fitting]
            settings |= {"data": str(wanted.data), "sizes": dict.fromkeys(fitting, 0), "fitting": fitting}
        else:
            settings["sizes"] = _sizes(one, model, wanted, usual, say)
        plans.append(Plan(Grid(**settings, made_of=made_of(one, *files)), one.name, sized(one)))
    return plans


def _sizes(one: Subject, model: str, wanted: Wanted, usual: Grid, say: Say) -> dict[str, int]:
    """How long the sessions of each task are."""
    known = KNOWN.get(model, {})
    found: dict[str, int] = {}
    for name in wanted.tasks or list(known or TASKS):
        if name in wanted.sizes or name in known:
            found[name] = wanted.sizes.get(name, known.get(name, 0))
            fitting_tokens(one, TASKS[name].seeded(0, found[name], usual.turns), usual.own)
            continue
        say(f"{model}, {name}: looking for a size at which it can do it (--size {name}=N names one)")
        tried: list[Size] = []
        for size in chosen(one, name, wanted.tokens, usual.turns):
            say(f"{model}, {name} of {size.size} {TASKS[name].unit} ({size.tokens} tokens): dense {size.dense:.2f}")
            tried.append(size)
        if tried[-1].dense >= LEAST_DENSE:
            found[name] = tried[-1].size
        else:
            say(f"{model} cannot do {name}: what a method loses there would be noise. It is left out.")
    if not found:
        raise ConfigError(f"{model} can do none of these tasks, so there is nothing to measure: try another model")
    if spare := wanted.sizes.keys() - found.keys():
        raise ConfigError(f"--size is given for {', '.join(sorted(spare))}, which is not measured: {', '.join(found)} are")
    return found


def _fitting(one: Subject, data: Path, tasks: list[str] | None, usual: Grid, say: Say) -> dict[str, tuple[int, ...]]:
    """Of each of SCBench's own tasks the sessions that fit into the model's context."""
    found: dict[str, tuple[int, ...]] = {}
    for name in tasks or [name for name in ORIGINAL if ORIGINAL[name].path(data).is_file()]:
        every = list(ORIGINAL[name].read(data, usual.turns))
        fit = [each.seed for each in every if prompt_tokens(one, each, usual.own) <= one.context]
        say(f"{name}: {len(fit)} of {len(every)} sessions fit into the {one.context} tokens of {one.name}")
        if fit:
            found[name] = tuple(fit)
    if not found:
        raise ConfigError(
            f"no session of {data} can be measured: scbench_NAME.jsonl with contexts of at most {one.context} tokens is needed, "
            f"NAME one of {', '.join(ORIGINAL)}"
        )
    return found
