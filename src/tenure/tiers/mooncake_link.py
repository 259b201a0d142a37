"""This process's end of a Mooncake client in a process of its own: memory that both see, cut into lanes, one call a lane.
Used by the data plane; a call waits no longer than its deadline, and what comes late is thrown away."""

from __future__ import annotations

import contextlib
import mmap
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from tenure.errors import ConfigError
from tenure.tiers.mooncake_process import DROPPED_AT_ONCE, MOST_MESSAGE, Request, Settings

__all__ = ["Lane", "Link"]

_LOADING = 60.0
"""Seconds that the process may take to load the client."""


class Lane:
    """memory: of this lane, writable, for whoever has taken it."""

    def __init__(self, end: socket.socket, memory: memoryview) -> None:
        self.end = end
        self.memory = memory


class Link:
    """lanes: how many calls at a time, lane_bytes: the most that one moves. environment: of the process; client: the rest of its
    Settings.

    Raises ConfigError when the client cannot be loaded, OSError when the system has no process or memory for it.
    """

    def __init__(self, lanes: int, lane_bytes: int, environment: Mapping[str, str], **client: Any) -> None:
        with contextlib.ExitStack() as theirs:
            self._control, control = _pair(theirs)
            self._control.setblocking(False)
            ends = [_pair(theirs) for _ in range(lanes)]
            memory = os.memfd_create("tenure-mooncake")
            theirs.callback(os.close, memory)
            os.ftruncate(memory, lanes * lane_bytes)
            shared = memoryview(mmap.mmap(memory, lanes * lane_bytes))
            given = [control.fileno(), memory, *(their.fileno() for _, their in ends)]
            settings = Settings(
                **client, lane_bytes=lane_bytes, control=given[0], memory=given[1], lanes=given[2:], parent=os.getpid()
            )
            self._process = subprocess.Popen(
                [sys.executable, "-c", "from tenure.tiers.mooncake_process import main; main()", msgspec.json.encode(settings)],
                env={**environment, "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path)},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=None if "MC_LOG_LEVEL" in environment else subprocess.DEVNULL,
                pass_fds=given,
                start_new_session=True,  # a terminal's interrupt is for this process alone
            )
        self._turn = threading.Condition()
        self._free = [Lane(ours, shared[n * lane_bytes : (n + 1) * lane_bytes]) for n, (ours, _) in enumerate(ends)]
        self._late: list[Lane] = []  # in calls that nobody waits for any more
        self._lanes = lanes
        self._closed = False

    def loaded(self) -> None:
        """Waits until the process has the client. Raises ConfigError when it cannot be loaded."""
        self._control.settimeout(_LOADING)
        try:
            said = self._control.recv(MOST_MESSAGE)
        except TimeoutError:
            said = b"it takes too long"
        self._control.setblocking(False)
        if said != b"+":
            self.close(0.0)
            raise ConfigError(
                f"Mooncake's client cannot be loaded: {said.decode() or 'its process has ended'}; it needs "
                "pip install 'tenure[mooncake]' and the system's libibverbs (Debian: apt-get install libibverbs1)"
            )

    def ended(self) -> str | None:
        """Why the process is no more; None while it runs."""
        status = self._process.poll()
        if status is None:
            return None
        why = f"its process ended with {status}"
        with contextlib.suppress(OSError):
            while said := self._control.recv(MOST_MESSAGE):
                why = why if said == b"+" else said.decode(errors="replace")
        return why

    def take(self, deadline: float) -> Lane | None:
        """A lane, to be given back by `give`; None when there is none in time, or all are stuck."""
        with self._turn:
            while True:
                self._late = [lane for lane in self._late if not self._answered(lane)]
                left = deadline - time.monotonic()
                if left <= 0 or self._closed or len(self._late) == self._lanes:
                    return None
                if self._free:
                    return self._free.pop()
                self._turn.wait(left)

    def give(self, lane: Lane, late: bool = False) -> None:
        """Gives a lane back. late: it is still in a call; it is free when that has come to its end."""
        with self._turn:
            if self._closed:
                lane.end.close()
                return
            (self._late if late else self._free).append(lane)
            self._turn.notify_all()

    def ask(self, lane: Lane, request: Request) -> list[int] | None:
        """The reply to a request; None when there is none in time, or ever: the lane is late then."""
        try:
            lane.end.settimeout(max(1e-3, request.deadline - time.monotonic()))
            lane.end.send(msgspec.msgpack.encode(request))
            packet = lane.end.recv(MOST_MESSAGE)
        except OSError:
            return None
        return msgspec.msgpack.decode(packet, type=list[int]) if packet else None

    def drop(self, names: Sequence[str]) -> None:
        """Has payloads removed, soon, if it can be."""
        for start in range(0, len(names), DROPPED_AT_ONCE):
            with contextlib.suppress(OSError):
                self._control.send(msgspec.msgpack.encode(names[start : start + DROPPED_AT_ONCE]))

    def close(self, patience: float) -> None:
        """Has the process end by itself, and kills it when it has not in so many seconds. What is asked from now on fails."""
        with self._turn:
            self._closed = True
            idle = [*self._free, *self._late]
            self._free, self._late = [], []
            self._turn.notify_all()
        self._control.close()
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for lane in idle:
            lane.end.close()

    def _answered(self, lane: Lane) -> bool:
        """Whether a late lane's call has come to its end; it is free then."""
        try:
            lane.end.setblocking(False)
            lane.end.recv(MOST_MESSAGE)
        except BlockingIOError:
            return False
        except OSError:
            pass  # the process has ended
        self._free.append(lane)
        return True


def _pair(theirs: contextlib.ExitStack) -> tuple[socket.socket, socket.socket]:
    ours, their = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.enter_context(their)
    return ours, their
