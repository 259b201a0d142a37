"""One run against faults: node processes on a world of servers and lines, a seeded nemesis, and the history that they leave.
Used by the tests; what the world is made of is the world's own."""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

import msgspec

from tests.pool.history import Phase, Recorder
from tests.pool.nemesis import Harm, Nemesis, Target, schedule
from tests.pool.worker import Settings

ROOT = Path(__file__).parent.parent.parent
_PATIENCE = 60.0
"""Seconds that a process may take to be ready, to end, or to serve what a phase needs."""


class World(Protocol):
    """What the nodes share: it runs, and is ended by whoever made it."""

    def targets(self) -> list[Target]:
        """What of it can be harmed."""

    def healed(self) -> None:
        """Waits until it is whole again, all harm undone."""


@dataclass(frozen=True)
class Plan:
    """How long a run is. seconds: of faults, one after every `every` or so, each as long as `lasting` says. bumps: seconds
    from one to the next. calm: requests of each phase without faults. settle: seconds after the faults before what is served
    counts. nodes_at_once: how many nodes are harmed at a time; kills: they are killed too."""

    seconds: float
    every: float = 1.0
    bumps: float = 1.0
    lasting: tuple[float, float] = (0.5, 3.0)
    calm: int = 300
    settle: float = 0.0
    nodes_at_once: int = 2
    kills: bool = True


class NodeProcess:
    """A node's process, started again after each kill."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self._folder = folder
        self._boot = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] | None = None
        self._stopped = False

    def start(self) -> None:
        """Returns when it serves. Raises RuntimeError with what it said when it does not."""
        self._boot += 1
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
        command = [sys.executable, "-m", "tests.pool.worker", str(self._folder), self.name, str(self._boot)]
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (it outlives this call; a pipe that nobody reads would stop the process)
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, env=environment, cwd=ROOT, bufsize=0
        )
        out = self._process.stdout
        assert out is not None
        if not select.select([out], [], [], _PATIENCE)[0] or out.readline() != b"ready\n":
            self.kill()
            raise RuntimeError(f"{self.name} does not serve: {self.said()}")

    @property
    def serves(self) -> bool:
        return self._process is not None and not self._stopped

    def say(self, *words: object) -> None:
        """A line on its standard input; to one that has gone, nothing."""
        if self._process is not None and self._process.stdin is not None:
            with suppress(BrokenPipeError):  # the checker finds that it has died
                self._process.stdin.write((" ".join(map(str, words)) + "\n").encode())

    def said(self) -> str:
        """What its last process said on standard error."""
        if self._said is None:
            return ""
        self._said.seek(0)
        return self._said.read().decode(errors="replace")

    def kill(self) -> None:
        """SIGKILL. Once more is no harm."""
        process, self._process = self._process, None
        self._stopped = False
        if process is not None:
            process.kill()  # reaches a stopped process too
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()

    def pause(self) -> None:
        assert self._process is not None
        self._stopped = True
        os.kill(self._process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        if self._process is not None and self._stopped:
            os.kill(self._process.pid, signal.SIGCONT)
        self._stopped = False

    def stop(self) -> None:
        """As it should end; it is killed if it does not."""
        if self._process is not None:
            self.say("stop")
            with suppress(subprocess.TimeoutExpired):  # the checker finds it: it has not said that it ended
                self._process.wait(_PATIENCE)
        self.kill()

    def target(self, at_once: int, kills: bool) -> Target:
        harms = {"pause": Harm(self.pause, self.resume)}
        if kills:
            harms["kill"] = Harm(self.kill, self.start)
        return Target(self.name, "node", harms, at_once)


class Bumper:
    """Bumps epochs by way of nodes that serve. A label goes up before its bump begins: what was made under an older epoch may
    bear it, and nothing that was made under the new one can bear an older label."""

    def __init__(self, settings: Settings, folder: Path, nodes: Sequence[NodeProcess]) -> None:
        self._board = settings.board(folder)
        self._nodes = nodes
        self._random = random.Random(settings.seed)

    def bump(self, family: str) -> None:
        label = self._board.add(family)
        serving = [node for node in self._nodes if node.serves]
        if not serving:
            raise RuntimeError("no node serves that could bump")
        self._random.choice(serving).say("bump", family, label)

    def target(self, families: Sequence[str]) -> Target:
        bumps = {f"bump {family}": Harm(lambda family=family: self.bump(family)) for family in families}
        return Target("epochs", "epochs", bumps)


def run(folder: Path, settings: Settings, world: World, plan: Plan) -> None:
    """Leaves the history in the folder, which must be empty. Every process that it starts has ended when it returns."""
    (folder / "settings.json").write_bytes(msgspec.json.encode(settings))
    board = settings.board(folder)
    nodes = [NodeProcess(folder, name) for name in settings.nodes]
    bumper = Bumper(settings, folder, nodes)
    recorder = Recorder(folder / "driver.jsonl")

    def calm(name: str, seconds: float = 0.0) -> None:
        """A phase that lasts so long, and until every node has served its part."""
        start = time.monotonic()
        goal = {node: board[f"served {node}"] + plan.calm // len(nodes) + 1 for node in settings.nodes}
        time.sleep(seconds)
        while any(board[f"served {node}"] < least for node, least in goal.items()) and time.monotonic() < start + _PATIENCE:
            time.sleep(0.02)
        recorder.write(Phase(name, start, time.monotonic()))

    harmed = [*(node.target(plan.nodes_at_once, plan.kills) for node in nodes), *world.targets()]
    bumped = bumper.target(settings.families)
    steps = schedule(settings.seed, plan.seconds, harmed, every=plan.every, lasting=plan.lasting)
    steps += schedule(settings.seed, plan.seconds, [bumped], every=plan.bumps)
    with ExitStack() as ended:
        for node in nodes:
            ended.callback(node.kill)
            node.start()
        calm("warm")
        calm("before")
        start = time.monotonic()
        Nemesis([*harmed, bumped], recorder.write).run(steps)
        recorder.write(Phase("faults", start, time.monotonic()))
        world.healed()
        calm("settle", plan.settle)
        calm("after")
        for node in nodes:
            node.stop()
            (folder / f"{node.name}.log").write_text(node.said())
    recorder.close()
