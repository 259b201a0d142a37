"""What a grid is: which sessions, and every mode, method and budget on the questions of each. It measures nothing itself."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import msgspec

from tenure.checks import integer, positive
from tenure.errors import ConfigError
from tenure.scbench.methods import METHODS
from tenure.scbench.model import Subject
from tenure.scbench.modes import MODES
from tenure.scbench.original import ORIGINAL
from tenure.scbench.serving import SERVED
from tenure.scbench.session import Session
from tenure.scbench.tasks import TASKS

__all__ = ["BUDGETS", "USUAL", "Cell", "Grid", "fitting_tokens", "prompt_tokens"]

BUDGETS = (0.5, 0.25, 0.125, 0.0625)
"""At 1 every method that has a budget is dense, to the bit."""
USUAL: tuple[str, ...] = tuple(name for name in (*METHODS, *SERVED) if name not in ("pyramidkv", "random-reads"))
"""The methods of a grid, unless others are asked for: without SnapKV by falling budgets, and a second control of loading."""


class Cell(NamedTuple):
    """One column of a grid: asked in this mode, with this method, at this budget (1 for methods of one size)."""

    mode: str
    method: str
    budget: float


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions of one model, and all that is done with each.

    model, dtype, device: as `subject` takes them. use: files with methods and tasks of the user's own (`added.load` runs them).
    made_of: what rows depend on besides: digests of weights, data and code, versions of software; another is another grid.
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
        integer("timed", self.timed, 0, 65535)
        if taken := METHODS.keys() & {*SERVED}:
            raise ConfigError(f"a method is called {min(taken)}, which is what the server does: it needs another name")
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


def _fixed(method: str) -> bool:
    return method in SERVED or METHODS[method].fixed


def _known(what: str, names: Collection[str], known: Collection[str]) -> None:
    if not names:
        raise ConfigError(f"there is no {what}: at least one is needed")
    if strange := [name for name in names if name not in known]:
        raise ConfigError(f"{what} {strange[0]!r} is not known: one of {', '.join(known)} is needed")
    if len(set(names)) < len(names):
        raise ConfigError(f"a {what} is named twice: {', '.join(names)}")
