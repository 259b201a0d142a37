"""What a grid measures, and the measuring of one session of it: every mode, method and budget on the same questions.
Workers call it; where rows go, and who runs what, is theirs."""

from __future__ import annotations

import gc
from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from tenure.checks import integer, positive
from tenure.errors import ConfigError, TokenError
from tenure.scbench.contexts import Contexts
from tenure.scbench.methods import METHODS
from tenure.scbench.model import Subject, subject
from tenure.scbench.modes import MODES, Step, multi_turn
from tenure.scbench.original import ORIGINAL, Original
from tenure.scbench.results import Row
from tenure.scbench.runner import Asked, Lane, run, run_all
from tenure.scbench.serving import SERVED, Server
from tenure.scbench.session import Session
from tenure.scbench.tasks import TASKS, Task

__all__ = ["BUDGETS", "USUAL", "Cell", "Grid", "Measuring", "fitting_tokens", "prompt_tokens"]

BUDGETS = (0.5, 0.25, 0.125, 0.0625)
"""At 1 every method that has a budget is dense, to the bit."""
USUAL: tuple[str, ...] = tuple(name for name in (*METHODS, *SERVED) if name not in ("pyramidkv", "random-reads"))
"""The methods of a grid, unless others are asked for: without SnapKV by falling budgets, and a second control of loading."""

_HELD = 2 << 30
"""Bytes of KV that methods side by side hold at most, if each keeps all."""


class Cell(NamedTuple):
    """One column of a grid: asked in this mode, with this method, at this budget (1 for methods of one size)."""

    mode: str
    method: str
    budget: float


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions of one model, and all that is done with each.

    model, dtype, device: as `subject` takes them. use: files with methods and tasks of the user's own (`added.load` runs them).
    made_of: what rows depend on besides: digests of weights and data, versions of software; rows of another are another grid's.
    sizes: of each task's sessions, in its units (0 for data of SCBench's own). data: the folder of such data, then all tasks are
    of it. fitting: of such a task the sessions that fit into the model's context, by their number. budgets: for methods that have
    one. sessions: of each task at most, seeds from 0. own: in a conversation the model's own answers stay. timed: in how many of
    a task's sessions, the first ones, each method runs the conversation alone, for its seconds. Raises ConfigError.
    """

    model: str
    dtype: str = "fp32"
    device: str = "cpu"
    use: tuple[str, ...] = ()
    made_of: str = ""
    sizes: dict[str, int]
    data: str = ""
    fitting: dict[str, tuple[int, ...]] = {}
    methods: tuple[str, ...]
    budgets: tuple[float, ...] = BUDGETS
    modes: tuple[str, ...] = tuple(MODES)
    sessions: int = 30
    turns: int = 5
    block_size: int = 16
    own: bool = False
    timed: int = 2

    def __post_init__(self) -> None:
        _known("task", self.sizes, ORIGINAL if self.data else TASKS)
        _known("method", self.methods, (*METHODS, *SERVED))
        _known("mode", self.modes, MODES)
        for budget in self.budgets:
            positive("a budget", budget, 1.0)
        for name in ("sessions", "turns", "block_size"):
            integer(name, getattr(self, name), 1, 65535)
        integer("timed", self.timed, 0, self.sessions)
        if self.data and self.fitting.keys() != self.sizes.keys():
            raise ConfigError(
                f"fitting has {', '.join(self.fitting) or 'nothing'}: the sessions of {', '.join(self.sizes)} are needed"
            )
        if "dense" not in self.methods:
            raise ConfigError("methods lack dense: every other is compared with it")
        if not self.budgets and not all(_fixed(name) for name in self.methods):
            raise ConfigError("there are no budgets: methods need at least one, above 0 and at most 1")

    def seeds(self, task: str) -> tuple[int, ...]:
        """Of a task's sessions."""
        return tuple(self.fitting[task] if self.data else range(self.sessions))[: self.sessions]

    def times(self, task: str, seed: int) -> bool:
        """Whether seconds are taken in this session."""
        return seed in self.seeds(task)[: self.timed]

    @property
    def cells(self) -> list[Cell]:
        """What is done with each session."""
        pairs = [(name, budget) for name in self.methods for budget in ((1.0,) if _fixed(name) else self.budgets)]
        return [Cell(mode, *pair) for mode in self.modes for pair in pairs]


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
            for cell in cells:
                served = cell.method in SERVED
                asked = self._served(session, task, steps, cell.method) if served else found[cell]
                rows.append(self._row(task, session, cell, asked, alone))
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
        no method finds what an earlier one computed. Those that begin with full attention have the seconds of one such run."""
        kind, own = self._kind(task), [Contexts(self.subject, self.grid.block_size, tokens) for _ in range(2)]
        encoding = [run(each, session, kind, steps, METHODS["dense"], 1.0).encoding for each in own][-1]
        first = self.grid.seeds(task).index(session.seed) * len(lanes) // self.grid.timed
        done: dict[int, Asked] = {}
        for place in (*range(first, len(lanes)), *range(first)):
            own[-1].forget()
            done[place] = run(own[-1], session, kind, steps, *lanes[place])
            done[place].encoding = done[place].encoding or encoding
        return [done[place] for place in range(len(lanes))]

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
            lengths=tuple(len(self.subject.encode(turn.answer)) for turn in session.turns),
            tokens=first.tokens,
            full=first.full,
            resident=first.resident,
            read=sum(one.read for one in asked.outcomes) / len(asked.outcomes),
            asked=asked.asked,
            prefilled=asked.prefilled,
            encoding=asked.encoding if timed and not served else None,
            seconds=asked.seconds if timed or served else None,
        )


def prompt_tokens(subject: Subject, session: Session, own: bool = False) -> int:
    """Of the longest prompt of a session, with the longest answer to it. own: the model's answers stay in it."""
    tokens = len(subject.start) + len(subject.encode(session.context)) + len(subject.encode(session.primer))
    most = tokens
    for turn in session.turns:
        tokens += len(subject.encode(turn.query))
        most = max(most, tokens + turn.limit)
        tokens += (turn.limit if own else len(subject.encode(turn.answer))) + len(subject.encode(session.close))
    return most


def fitting_tokens(subject: Subject, session: Session, own: bool = False) -> int:
    """`prompt_tokens`. Raises ConfigError where they are more than the model's context has."""
    tokens = prompt_tokens(subject, session, own)
    if tokens > subject.context:
        raise ConfigError(
            f"session {session.seed} of {session.task} takes {tokens} tokens: {subject.name} was made for {subject.context}"
        )
    return tokens


@cache
def _read(folder: str, name: str, turns: int) -> list[Session]:
    return list(ORIGINAL[name].read(Path(folder), turns))


def _fixed(method: str) -> bool:
    return method in SERVED or METHODS[method].fixed


def _known(what: str, names: Collection[str], known: Collection[str]) -> None:
    if not names:
        raise ConfigError(f"there is no {what}: at least one is needed")
    if strange := [name for name in names if name not in known]:
        raise ConfigError(f"{what} {strange[0]!r} is not known: one of {', '.join(known)} is needed")
    if len(set(names)) < len(names):
        raise ConfigError(f"a {what} is named twice: {', '.join(names)}")
