"""The measuring of one session of a grid: every mode, method and budget on the same questions. Workers call it; where rows go,
and who runs what, is theirs."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TypeVar

from tenure.checks import integer
from tenure.errors import ConfigError, TokenError
from tenure.scbench.contexts import Contexts
from tenure.scbench.grid import Cell, Grid, fitting_tokens
from tenure.scbench.methods import METHODS
from tenure.scbench.model import Subject, subject
from tenure.scbench.modes import MODES, Encode, Step, multi_turn
from tenure.scbench.original import ORIGINAL, Original
from tenure.scbench.reading import prefill
from tenure.scbench.results import Row
from tenure.scbench.runner import Asked, Lane, run, run_all
from tenure.scbench.serving import SERVED, Server
from tenure.scbench.session import Session
from tenure.scbench.tasks import TASKS, Task
from tenure.scbench.timing import now

__all__ = ["Measuring"]

T = TypeVar("T")
_HELD = 2 << 30
"""Bytes of KV that methods side by side hold at most, if each keeps all."""


class Measuring:
    """A grid in one process: its model, and what is shared between sessions. Close it. Raises ConfigError."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.subject: Subject = subject(grid.model, grid.dtype, grid.device)
        self._room = 0
        self._contexts: Contexts | None = None
        self._server: Server | None = None

    def close(self) -> None:
        """Ends what was begun."""
        if self._server is not None:
            self._server.close()
        self._server = self._contexts = None
        self._room = 0
        gc.collect()  # a node holds much memory, and itself in cycles

    def session(self, task: str, seed: int) -> list[Row]:
        """The rows of one session, a row a cell, in the cells' order. Raises ConfigError for a session that does not fit into the
        model's context."""
        grid, session = self.grid, self._session(task, seed)
        tokens = fitting_tokens(self.subject, session, grid.own)
        try:
            return self._rows(task, session, tokens)
        except TokenError as problem:
            raise ConfigError(f"session {seed} of {task} says nothing that {grid.model} can read: {problem}") from None

    def _rows(self, task: str, session: Session, tokens: int) -> list[Row]:
        grid, contexts, seed = self.grid, self._made(tokens), session.seed
        rows: list[Row] = []
        for mode in grid.modes:
            steps = multi_turn(session, own=grid.own) if mode == "multi_turn" else MODES[mode](session)
            cells = [cell for cell in grid.cells if cell.mode == mode]
            lanes = {cell: Lane(METHODS[cell.method], cell.budget) for cell in cells if cell.method in METHODS}
            alone = mode == "multi_turn" and grid.times(task, seed)
            runs = self._alone if alone else self._together
            found = dict(zip(lanes, runs(contexts, session, task, steps, [*lanes.values()], tokens), strict=True))
            served = [cell for cell in cells if cell.method in SERVED]
            if alone and served:
                self._served(session, task, steps, SERVED[0])  # warms up
            found |= {cell: self._served(session, task, steps, cell.method) for cell in self._turned(served, session)}
            rows += [self._row(task, session, cell, found[cell], alone) for cell in cells]
        return rows

    def _together(
        self, contexts: Contexts, session: Session, task: str, steps: Sequence[Step], lanes: Sequence[Lane], tokens: int
    ) -> list[Asked]:
        """Methods side by side, so many at once that what they hold stays within bounds."""
        most, kind, done = max(1, _HELD // (tokens * self.subject.token_bytes)), self._kind(task), list[Asked]()
        for first in range(0, len(lanes), most):
            done += run_all(contexts, session, kind, steps, lanes[first : first + most])
        return done

    def _alone(
        self, contexts: Contexts, session: Session, task: str, steps: Sequence[Step], lanes: Sequence[Lane], tokens: int
    ) -> list[Asked]:
        """One method after another, for their seconds: each session begins with other ones, after a run that only warms up, and
        no method finds what an earlier one computed. Those that begin with full attention have one plain prefill's seconds."""
        kind, dense, first = self._kind(task), METHODS["dense"], steps[0]
        run(contexts, session, kind, steps, dense, 1.0)
        assert isinstance(first, Encode)  # the modes' own
        ids = [*self.subject.start, *(one for text in first.texts for one in self.subject.encode(text))]
        began = now(self.subject.model)
        prefill(self.subject.model, ids, dense, 1.0, self.grid.block_size)
        encoding = now(self.subject.model) - began
        done: dict[int, Asked] = {}
        for place in self._turned(range(len(lanes)), session):
            contexts.forget()
            done[place] = run(contexts, session, kind, steps, *lanes[place])
            done[place].encoding = done[place].encoding or encoding
        return [done[place] for place in range(len(lanes))]

    def _turned(self, order: Sequence[T], session: Session) -> list[T]:
        """Begun with another one in each of a task's timed sessions."""
        timed = self.grid.seeds(session.task)[: self.grid.timed]
        first = timed.index(session.seed) * len(order) // len(timed) if session.seed in timed else 0
        return [*order[first:], *order[:first]]

    def _served(self, session: Session, task: str, steps: Sequence[Step], method: str) -> Asked:
        if self._server is None:
            self._server = Server(self.subject, self.grid.block_size, self._room)
        return self._server.run(session, self._kind(task), steps, method)

    def _made(self, tokens: int) -> Contexts:
        """What sessions share, with room for two of the first, or of one that is longer than two."""
        if self._contexts is None or self._room < tokens:
            self.close()
            self._room = 2 * tokens
            self._contexts = Contexts(self.subject, self.grid.block_size, self._room)
        return self._contexts

    def _kind(self, task: str) -> Task | Original:
        return ORIGINAL[task] if self.grid.data else TASKS[task]

    def _session(self, task: str, seed: int) -> Session:
        if not self.grid.data:
            return TASKS[task].seeded(seed, self.grid.sizes[task], self.grid.turns)
        found = _read(self.grid.data, task, self.grid.turns)
        return found[integer(f"session of {task}", seed, 0, len(found) - 1)]

    def _row(self, task: str, session: Session, cell: Cell, asked: Asked, timed: bool) -> Row:
        first = asked.outcomes[0]
        served = cell.method in SERVED
        return Row(
            model=self.subject.name,
            task=task,
            size=self.grid.sizes[task],
            seed=session.seed,
            mode=cell.mode,
            method=cell.method,
            stage="retrieval" if served else METHODS[cell.method].stage,
            memory="O(n)" if served else METHODS[cell.method].memory,
            budget=cell.budget,
            scores=tuple(one.score for one in asked.outcomes),
            kinds=tuple(one.kind for one in asked.outcomes),
            predictions=tuple(one.prediction for one in asked.outcomes),
            lengths=tuple(len(self.subject.encode(turn.enough or turn.answer)) for turn in session.turns),
            tokens=first.tokens,
            full=first.full,
            resident=first.resident,
            read=sum(one.read for one in asked.outcomes) / len(asked.outcomes),
            asked=asked.asked,
            prefilled=asked.prefilled,
            encoding=asked.encoding if timed and not served else None,
            seconds=asked.seconds if timed else None,
        )


@cache
def _read(folder: str, name: str, turns: int) -> list[Session]:
    return list(ORIGINAL[name].read(Path(folder), turns))
