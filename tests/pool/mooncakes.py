"""Real Mooncake masters for tests, and nodes in processes of their own that share a pool with its bulk in Mooncake.
Used by tests and benchmarks; every process that is started here is ended here. All of it comes with Mooncake's package."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tenure.tiers.mooncake import MooncakePlane
from tests.pool.making import pool, read, write
from tests.pool.servers import free_port, until
from tests.tiers.making import PAGED, record

LIVES, SOON = 60, 2
"""Seconds after which a master takes a node that does not call for dead: a busy machine's, and a test's that waits for it."""


@cache
def missing() -> str | None:
    """Why Mooncake cannot be used here; None when it can. Nothing of it is loaded into this process."""
    if importlib.util.find_spec("mooncake") is None:
        return "Mooncake is not installed: pip install 'tenure[mooncake]'"
    tried = subprocess.run([sys.executable, "-c", "import mooncake.store"], capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"Mooncake cannot be loaded (apt-get install libibverbs1?): {tried.stderr.strip().splitlines()[-1]}"
    return None


def needed() -> None:
    """The module's tests are skipped without Mooncake."""
    if (why := missing()) is not None:
        pytest.skip(why, allow_module_level=True)


class Master:
    """One mooncake_master on a loopback port."""

    def __init__(self, port: int | None = None, lives: int = LIVES) -> None:
        self.lives = lives
        self.port = port or free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Master:
        """Begins knowing of nothing."""
        spec = importlib.util.find_spec("mooncake")
        assert spec is not None
        binary = Path(next(iter(spec.submodule_search_locations or []))) / "mooncake_master"
        words = [str(binary), "--rpc_address=127.0.0.1", f"--rpc_port={self.port}", f"--client_ttl={self.lives}"]
        words += ["--metrics_host=127.0.0.1", f"--metrics_port={free_port()}"]
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def listens() -> bool:
            socket.create_connection(("127.0.0.1", self.port), 1.0).close()
            return True

        until(f"the master on port {self.port} answers", listens)
        return self

    def kill(self) -> None:
        """SIGKILL. Once more is no harm."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def pause(self) -> None:
        """See `stop`."""
        assert self.process is not None, "the master does not run"
        stop(self.process.pid)

    def resume(self) -> None:
        """After `pause`."""
        assert self.process is not None, "the master does not run"
        os.kill(self.process.pid, signal.SIGCONT)


def stop(process: int) -> None:
    """SIGSTOP: it answers nothing, and its connections stay. Returns when each of its threads has stopped."""
    os.kill(process, signal.SIGSTOP)

    def stopped() -> bool:
        states = [(task / "stat").read_text().rpartition(")")[2].split()[0] for task in Path(f"/proc/{process}/task").iterdir()]
        return set(states) == {"T"}

    until("all of its threads have stopped", stopped)


@contextlib.contextmanager
def master(lives: int = LIVES) -> Iterator[Master]:
    """A running master, ended at the end."""
    made = Master(lives=lives)
    try:
        yield made.start()
    finally:
        made.kill()


def helper(plane: MooncakePlane) -> int:
    """The process in which a plane has its client."""
    assert plane._link is not None
    return plane._link._process.pid


class Node:
    """A process with a tier on the pool: what it writes and reads are the blocks of the tests by their numbers."""

    def __init__(self, url: str, prefix: str, master: str, segment_bytes: int) -> None:
        words = [sys.executable, "-m", "tests.pool.mooncakes", url, prefix, master, str(segment_bytes)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.helper = int(self._answer())

    def write(self, *frames: int) -> list[str | None]:
        """See making.write."""
        return list(self._asked("write", frames))

    def read(self, *frames: int) -> list[str | None]:
        """Looks the blocks up in the pool and reads what was found; "unknown" for those without a head. See making.read."""
        return list(self._asked("read", frames))

    def end(self) -> None:
        """As it should end: the master need not find out that its memory has gone, and gives nobody a place there."""
        try:
            self.process.communicate(timeout=30)
        except (subprocess.TimeoutExpired, ValueError):  # it hangs, or was killed before
            self.kill_all()

    def kill(self) -> None:
        """SIGKILL for the node alone; its helper sees that and leaves."""
        self.process.kill()
        self.process.communicate()

    def kill_all(self) -> None:
        """SIGKILL for the node and its helper."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.helper, signal.SIGKILL)
        self.kill()

    def _asked(self, what: str, frames: tuple[int, ...]) -> Any:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([what, frames]) + "\n")
        self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())


def _serve(url: str, prefix: str, master: str, segment_bytes: str) -> None:
    plane = MooncakePlane(master, segment_bytes=int(segment_bytes), timeout=5.0)
    with pool(url, prefix=prefix, data=plane) as tier:
        print(helper(plane), flush=True)
        for line in sys.stdin:
            what, frames = json.loads(line)
            if what == "write":
                kinds = write(tier, *frames)
            else:
                names = [record(PAGED, frame) for frame in frames]
                heads = [tier.look([name.digest], []).heads for name in names]
                for frame, name, found in zip(frames, names, heads, strict=True):
                    tier.erase([frame])
                    for head in found:
                        tier.know(frame, name, head)
                kinds = [kind if found else "unknown" for kind, found in zip(read(tier, *frames), heads, strict=True)]
            print(json.dumps(kinds), flush=True)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
