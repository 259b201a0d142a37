"""Trains the induction model on the tasks' own sessions, seeded, in minutes on one core. `tenure scbench train` calls it.
It never sees the sessions of a benchmark: those are drawn by other seeds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import torch

from tenure.scbench.induction import fresh, kept
from tenure.scbench.lexicon import Lexicon
from tenure.scbench.session import Session
from tenure.scbench.tasks import TASKS

__all__ = ["Plan", "Progress", "row", "teach", "train"]


@dataclass(frozen=True)
class Plan:
    """How long to train, and on what. In the first `climb` steps the most units of a context grow from `least` to `most`, by the
    same factor each step; after that sizes are mixed and the rate falls. A model that only climbs forgets what is short."""

    steps: int = 700
    climb: int = 160
    least: int = 8
    most: int = 400
    tokens: int = 4096
    rate: float = 2e-3
    tasks: tuple[tuple[str, float], ...] = (
        ("retr_kv", 2.0),
        ("prefix_suffix", 2.0),
        ("multi_hop", 2.0),
        ("kv_needle", 1.0),
    )


class Progress(NamedTuple):
    """Where training is: steps done, of how many, the loss per answer token, and what was learnt from."""

    step: int
    steps: int
    loss: float
    task: str
    size: int


def train(seed: int = 0, progress: Callable[[Progress], None] | None = None) -> Path:
    """The folder of the model that this seed gives, trained now if it is not there yet. Uses one thread of torch's.

    Raises ConfigError for a seed that is none.
    """
    return kept(seed, lambda: teach(fresh(seed), seed, Plan(), progress))


def teach(model: Any, seed: int, plan: Plan, progress: Callable[[Progress], None] | None = None) -> Any:
    """The same model, trained: modifies it in place. Equal seeds and plans give equal weights on one machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # tensors this small; and sums in one order
    try:
        model.train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=plan.rate, betas=(0.9, 0.98), weight_decay=0.01)
        random = Random(f"induction:{seed}")
        for step in range(plan.steps):
            for group in optimizer.param_groups:
                group["lr"] = plan.rate * _fall(step, plan)
            task, size = _drawn(random, step, plan)
            loss = _loss(model, *_batch(random, task, size, plan.tokens))
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if progress is not None:
                progress(Progress(step + 1, plan.steps, float(loss.detach()), task, size))
    finally:
        torch.set_num_threads(threads)
    return model.eval()


def row(session: Session, lexicon: Lexicon) -> tuple[list[int], list[int]]:
    """A session as the conversation that it is with true answers: its ids, and the places of the ids that answers are made of."""
    ids = lexicon.encode(session.context)
    asked: list[int] = []
    opening = session.primer
    for turn in session.turns:
        ids += lexicon.encode(opening + turn.query)
        answer = lexicon.encode(turn.answer + session.close)
        asked += range(len(ids), len(ids) + len(answer))
        ids += answer
        opening = ""
    return ids, asked


def _fall(step: int, plan: Plan) -> float:
    """The factor on the rate: rises for 20 steps, stays, and falls to nothing as a cosine once sizes are mixed."""
    if step < plan.climb:
        return min(1.0, (step + 1) / 20)
    return 0.5 + 0.5 * math.cos(math.pi * (step - plan.climb) / (plan.steps - plan.climb))


def _drawn(random: Random, step: int, plan: Plan) -> tuple[str, int]:
    """The task of a step, and how many units its contexts have."""
    (task,) = random.choices([name for name, _ in plan.tasks], [weight for _, weight in plan.tasks])
    grown = plan.least * (plan.most / plan.least) ** min(1.0, step / max(1, plan.climb))
    if step < plan.climb:
        return task, round(grown * random.uniform(0.5, 1.0))
    return task, round(plan.least * (grown / plan.least) ** random.random())


def _batch(random: Random, task: str, size: int, tokens: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of about so many tokens in all, padded on the right: ids [rows, length], and whether each is one of an answer's."""
    lexicon, length = Lexicon(), 0
    rows: list[tuple[list[int], list[int]]] = []
    turns = max(1, min(TASKS[task].most_turns, size // 2))
    while TASKS[task].least(turns) > size and turns > 1:
        turns -= 1
    size = max(size, TASKS[task].least(turns))
    while not rows or (len(rows) + 1) * length <= tokens:
        rows.append(row(TASKS[task].session(random, size, turns), lexicon))
        length = max(length, len(rows[-1][0]))
    ids, asked = torch.zeros((len(rows), length), dtype=torch.long), torch.zeros((len(rows), length), dtype=torch.bool)
    for place, (these, answers) in enumerate(rows):
        ids[place, : len(these)] = torch.tensor(these)
        asked[place, answers] = True
    return ids, asked


def _loss(model: Any, ids: torch.Tensor, asked: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of the answers' tokens, each given all that stands before it."""
    hidden = model.model(ids, use_cache=False).last_hidden_state
    logits = model.lm_head(hidden[:, :-1][asked[:, 1:]])
    return torch.nn.functional.cross_entropy(logits, ids[:, 1:][asked[:, 1:]])
