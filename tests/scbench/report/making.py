"""A whole grid of made-up rows: what a method keeps is a chance that falls with its budget and over turns, drawn with a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator

from tenure.scbench.results import Row

from ..rows import row

METHODS: dict[str, tuple[str, str, bool]] = {
    "dense": ("none", "O(n)", True),
    "a_shape": ("generation", "O(n)", False),
    "tri_shape": ("generation", "O(n)", False),
    **dict.fromkeys(
        ("streaming", "snapkv", "pyramidkv", "h2o", "tova", "expected", "keydiff", "random"), ("compression", "O(k)", False)
    ),
    **dict.fromkeys(
        ("kivi-int8", "kivi-int4", "kivi-int2", "codec-int8", "codec-int4", "codec-fp8"), ("compression", "O(n)", True)
    ),
    **dict.fromkeys(("quest", "inf_llm", "oracle", "random-reads"), ("loading", "O(n)", False)),
    "cacheblend": ("retrieval", "O(n)", False),
    **dict.fromkeys(("prefix", "swapped", "recompute", "pieces"), ("retrieval", "O(n)", True)),
}
BUDGETS = (0.5, 0.25, 0.125, 0.0625)
ABOUT = {
    "models": {"induction": {"digest": "ab" * 16, "dtype": "float32"}, "smollm2": {"digest": "cd" * 16, "dtype": "bfloat16"}},
    "tasks": {"retr_kv": {"size": 128, "tokens": 1161}, "multi_hop": {"size": 30, "tokens": 900}},
    "methods": list(METHODS),
    "budgets": list(BUDGETS),
    "modes": ["multi_turn", "multi_request"],
    "sessions": 20,
    "turns": 5,
    "block_size": 16,
    "software": {"python": "3.11", "torch": "2.13.0"},
    "command": "tenure scbench --out out/scbench",
}


def chance(method: str, budget: float, mode: str, turn: int) -> float:
    """Of a right answer: a made-up world in which dropping fails once the question was not seen."""
    stage, memory, _ = METHODS[method]
    if method in ("dense", "prefix", "swapped", "recompute", "codec-int8", "kivi-int8", "codec-fp8"):
        return 0.97
    if stage == "compression" and memory == "O(n)":
        return 0.9 if method == "kivi-int4" else 0.84 if method == "codec-int4" else 0.05
    worth = {"random": 0.3, "random-reads": 0.3, "oracle": 1.0, "pieces": 0.25}.get(method, 0.8)
    if memory == "O(k)":
        seen = mode == "multi_turn" and turn == 0
        return 0.95 * worth * (budget ** (0.1 if seen else 1.2))
    return 0.97 * worth ** (1 - budget) * budget**0.05


def grid(
    models: tuple[str, ...] = ("induction", "smollm2"),
    tasks: tuple[str, ...] = ("retr_kv", "multi_hop"),
    modes: tuple[str, ...] = ("multi_turn", "multi_request"),
    methods: tuple[str, ...] = tuple(METHODS),
    budgets: tuple[float, ...] = BUDGETS,
    sessions: int = 20,
    turns: int = 5,
) -> Iterator[Row]:
    """Its rows."""
    for model in models:
        for task in tasks:
            for mode in modes:
                for method in methods:
                    stage, memory, fixed = METHODS[method]
                    for budget in (1.0,) if fixed else budgets:
                        for seed in range(sessions):
                            yield _row(model, task, mode, method, stage, memory, budget, seed, turns)


def _row(model: str, task: str, mode: str, method: str, stage: str, memory: str, budget: float, seed: int, turns: int) -> Row:
    like = "dense" if method in ("prefix", "swapped", "recompute") else method  # the same answers
    draw = random.Random(f"{model} {task} {seed} {mode} {like} {budget}")
    scores = tuple(float(draw.random() < chance(method, budget, mode, turn)) for turn in range(turns))
    bits = {"8": 0.52, "4": 0.28, "2": 0.16}.get(method[-1], budget if memory == "O(k)" else 1.0)
    asked = 1200 * turns
    prefilled = {"recompute": asked, "prefix": 1300, "swapped": 1300, "cacheblend": 300 + int(900 * budget)}.get(
        method, 1200 + 20 * turns
    )
    return row(
        model=model,
        task=task,
        mode=mode,
        method=method,
        stage=stage,
        memory=memory,
        budget=budget,
        seed=seed,
        scores=scores,
        kinds=("",) * turns,
        lengths=(2,) * turns,
        predictions=tuple(f" {score:g}" for score in scores),
        full=4800,
        resident=int(4800 * bits),
        read=4800 * (budget if stage == "loading" else bits),
        asked=asked,
        prefilled=prefilled,
        encoding=1.0 + 0.1 * draw.random(),
        seconds=(0.5 + 0.1 * draw.random()) * (4 if method == "recompute" else 1),
    )


def answered(
    method: str,
    scores: dict[int, tuple[float, ...]],
    budget: float = 1.0,
    mode: str = "multi_turn",
    length: int = 2,
    **changes: object,
) -> list[Row]:
    """Rows of a method with these scores by session; each turn's prediction tells its score. length: of the true answers."""
    stage, memory, _ = METHODS[method]
    return [
        row(
            method=method,
            stage=stage,
            memory=memory,
            budget=budget,
            mode=mode,
            seed=seed,
            scores=each,
            kinds=("",) * len(each),
            lengths=(length,) * len(each),
            predictions=tuple(f"{one:g}" for one in each),
            **changes,
        )
        for seed, each in scores.items()
    ]
