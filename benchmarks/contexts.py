"""Contexts of the life-cycle benchmark: run once for all methods, budgets and modes, in Tenure's blocks, or once for each."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks.model import missing, timed
from benchmarks.ours import no_collection
from benchmarks.report import Row, ratio, save

if TYPE_CHECKING:
    from tenure.scbench.grid import Grid
    from tenure.scbench.model import Subject

ROUNDS = 3
MODELS = {"smollm2": ("bf16", "retr_kv"), "induction": ("fp32", "retr_kv")}
WANTED = 5.0


def run() -> None:
    if missing():
        return
    import torch

    from tenure.scbench.grid import USUAL, Grid
    from tenure.scbench.induction import trained
    from tenure.scbench.measuring import Measuring
    from tenure.scbench.sizes import KNOWN

    torch.set_num_threads(1)
    rows: list[Row] = []
    for model, (dtype, task) in MODELS.items():
        if model == "induction" and not trained():
            print("the induction model is not trained here: left out")
            continue
        grid = Grid(model=model, dtype=dtype, sizes={task: KNOWN[model][task]}, methods=USUAL)
        one = Measuring(grid).subject
        samples: dict[str, list[float]] = {"each": [], "once": []}
        tokens, shared = {"each": 0, "once": 0}, 0
        with no_collection():
            for seed in range(ROUNDS):
                for way, seconds in samples.items():
                    spent, ran, shared = _encode(one, grid, task, seed, once=way == "once")
                    seconds.append(spent)
                    tokens[way] += ran
        what = f"a context run for each of the {shared} cells that begin with full attention ÷ run once for all"
        note = f"{model} {dtype}, {task}: tokens run {tokens['each'] / tokens['once']:.1f} to 1"
        rows.append(Row(what, ratio(samples["each"], samples["once"]), (">=", WANTED), samples, note))
    save("contexts", "The life-cycle benchmark's shared contexts, on the CPU, one thread", rows)


def _encode(one: Subject, grid: Grid, task: str, seed: int, once: bool) -> tuple[float, int, int]:
    """Seconds to have the context of every cell of a session that can share it, the tokens that were run, and how many cells."""
    from tenure.scbench.contexts import Contexts
    from tenure.scbench.methods import METHODS
    from tenure.scbench.modes import MODES, Encode
    from tenure.scbench.tasks import TASKS

    session = TASKS[task].seeded(seed, grid.sizes[task], grid.turns)
    shared = Contexts(one)
    spent, ran, cells = 0.0, 0, 0
    for cell in grid.cells:
        if cell.method not in METHODS:
            continue  # the engine's rows: they serve whole prompts
        method = METHODS[cell.method]
        first = MODES[cell.mode](session)[0]
        assert isinstance(first, Encode)
        texts = [one.encode(text) for text in first.texts]
        ids = [token for text in texts for token in text]
        if method.attention(len(ids), cell.budget) != "full":
            continue  # what computes in its own way shares nothing either way
        cells += 1
        contexts = shared if once else Contexts(one)
        before = contexts.encoded
        spent += timed(partial(contexts.of, ids, METHODS["dense"], 1.0, shared=len(texts[0])))
        ran += contexts.encoded - before
    return spent, ran, cells
