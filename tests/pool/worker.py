"""A node's process: a toy engine that serves random requests of many tenants, and writes down what it was served.
Started by the driver, which tells it on standard input what to bump and when to stop. The product is behind an Adapter."""

from __future__ import annotations

import contextlib
import importlib
import random
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from tests.pool.board import Board
from tests.pool.content import Space, kv, links, look
from tests.pool.history import Bump, Life, Over, Recorder, Request


class Held(Protocol):
    """An admitted request. `hits`: of its leading blocks, the tier that each came from and its bytes."""

    hits: Sequence[tuple[str, Any]]

    def fill(self, blocks: Sequence[bytes]) -> None:
        """Puts down the KV of all full blocks after the hits."""

    def release(self) -> None: ...


class Adapter(Protocol):
    """What the engine asks of the product. `refusals`: what its calls may raise."""

    refusals: tuple[type[Exception], ...]

    def admit(self, space: Space, tokens: list[int]) -> Held: ...

    def bump(self, family: str) -> bool:
        """Whether it is confirmed: lasting whichever server goes."""

    def close(self) -> None: ...


class Settings(msgspec.Struct, frozen=True):
    """Of a run, the same for all its nodes. adapter: "module:callable", called with `own[node]`; deadline: seconds that a call
    may take; pace: seconds between the requests of one thread, in the mean."""

    seed: int
    nodes: list[str]
    adapter: str
    own: dict[str, dict[str, Any]]
    size: int
    nbytes: int
    deadline: float
    tenants: tuple[str, ...] = ("acme", "umbrella")
    models: tuple[str, ...] = ("m0", "m1")
    weights: tuple[str, ...] = ("w0", "w1")
    branches: int = 3
    depth: int = 4
    threads: int = 2
    pace: float = 0.01

    @property
    def families(self) -> list[str]:
        """Every epoch that can be bumped."""
        return [
            f"{name}={value}"
            for name, values in zip(Space._fields, (self.tenants, self.models, self.weights), strict=True)
            for value in values
        ]

    def board(self, folder: Path) -> Board:
        return Board(folder / "board", [*self.families, *(f"served {node}" for node in self.nodes)])


class Worker:
    """One life of one node."""

    def __init__(self, folder: Path, node: str, boot: int) -> None:
        self.settings = msgspec.json.decode((folder / "settings.json").read_bytes(), type=Settings)
        self.node = node
        self.boot = boot
        self.board = self.settings.board(folder)
        self.recorder = Recorder(folder / f"{node}-{boot}.jsonl", node, boot)
        module, made = self.settings.adapter.split(":")
        self.adapter: Adapter = getattr(importlib.import_module(module), made)(**self.settings.own[node])
        self._ending = threading.Event()
        self._gate = threading.Lock()

    def run(self) -> None:
        """Serves until it is told to stop."""
        self.recorder.write(Life(self.node, self.boot, time.monotonic()))
        threads = [
            threading.Thread(target=self._serve_on, args=(number,), daemon=True) for number in range(self.settings.threads)
        ]
        for thread in threads:
            thread.start()
        print("ready", flush=True)
        for line in sys.stdin:
            what, *rest = line.split()
            if what == "bump":  # in a thread of its own: a call that hangs must not keep the rest waiting
                threads.append(threading.Thread(target=self._bump, args=(rest[0], int(rest[1])), daemon=True))
                threads[-1].start()
            elif what == "stop":
                break
        self._ending.set()
        for thread in threads:
            thread.join(10 * self.settings.deadline)
        with self.recorder.call("close", 10 * self.settings.deadline):
            self.adapter.close()
        if not any(thread.is_alive() for thread in threads):
            self.recorder.write(Over(self.node, self.boot, time.monotonic()))

    def _serve_on(self, number: int) -> None:
        r = random.Random(f"{self.settings.seed} {self.node} {self.boot} {number}")
        while not self._ending.wait(r.uniform(0, 2 * self.settings.pace)):
            with contextlib.suppress(Exception):  # the recorder has it
                self._serve(*self._some_request(r))

    def _some_request(self, r: random.Random) -> tuple[Space, list[int]]:
        """Prompts are paths in one tree, the same for all: what is whose is in nothing but the space."""
        ours = self.settings
        space = Space(r.choice(ours.tenants), r.choice(ours.models), r.choice(ours.weights))
        tokens: list[int] = []
        name = 0
        for _ in range(r.randint(1, ours.depth)):
            name = name * (ours.branches + 1) + r.randint(1, ours.branches)
            tokens += [name * ours.size + i for i in range(ours.size)]
        return space, tokens

    def _serve(self, space: Space, tokens: list[int]) -> None:
        ours, start = self.settings, time.monotonic()
        known = self._labels(space)
        with self.recorder.call("admit", ours.deadline, *self.adapter.refusals):
            held = self.adapter.admit(space, tokens)
        labels = self._labels(space)  # read now: a label goes up before its bump begins, so that nothing that was admitted under
        # the bumped epoch can be stamped with an older one
        hits = [(tier, *look(data)) for tier, data in held.hits]
        names = links(space, tokens, ours.size)
        made = [kv(space, labels, depth, names[depth], ours.nbytes) for depth in range(len(hits), len(names))]
        with self.recorder.call("fill", ours.deadline):
            held.fill(made)
        with self.recorder.call("release", ours.deadline):
            held.release()
        self.recorder.write(Request(self.node, self.boot, start, time.monotonic(), space, tokens, known, hits))
        with self._gate:
            self.board.add(f"served {self.node}")

    def _labels(self, space: Space) -> tuple[int, ...]:
        return tuple(self.board[family] for family in space.families)

    def _bump(self, family: str, label: int) -> None:
        start, acknowledged, confirmed = time.monotonic(), None, False
        with contextlib.suppress(Exception):
            with self.recorder.call("bump", self.settings.deadline, *self.adapter.refusals):
                confirmed = self.adapter.bump(family)
            acknowledged = time.monotonic()
        self.recorder.write(Bump(self.node, self.boot, family, label, start, acknowledged, confirmed))


if __name__ == "__main__":
    Worker(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])).run()
