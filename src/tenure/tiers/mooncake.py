"""A pool's bulk in Mooncake Store: payloads in memory that the nodes lend to each other, moved over RDMA or TCP.
Called by a pool tier, from any thread; a master or a node that is away, slow or empty makes outcomes, never errors or waits."""

from __future__ import annotations

import itertools
import logging
import math
import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Literal

from tenure.breaker import Breaker
from tenure.checks import integer, positive
from tenure.errors import ConfigError, TierError
from tenure.tiers.base import Outcome
from tenure.tiers.mooncake_link import Lane, Link
from tenure.tiers.mooncake_process import LATE, Request

__all__ = ["MooncakePlane"]

_LOG = logging.getLogger("tenure")
_TOGETHER = 256
"""Payloads of one request, so that their names fit into a packet."""
_FULL = frozenset({-10, -200})
"""Mooncake's codes for no space: of a buffer, of all segments."""
_EMPTY = frozenset({-702, -703, -704, -710, -712})
"""No such object, one that was never finished, or one whose memory has gone."""
_SMALLER = -600
"""The object is larger than the memory that it was to be read into."""


class MooncakePlane:
    """master: host:port of a mooncake_master. segment_bytes: memory that this node lends to all, 0 for none. protocol: "tcp", or
    "rdma" over `devices` (their names, with commas; empty for all). hostname: where other nodes reach this one, None for its
    address on the way to the master. timeout: seconds that a call may take in all. calls: how many go on at a time, buffer_bytes:
    the most that one payload and one trip of a call may have; so much memory is taken for each.

    Mooncake's client runs in a process of its own, because some of its calls hold the interpreter's lock for as long as they
    hang. A master that cannot be reached is no error: every outcome is `io`, and it is tried again after a second, then two, up
    to half a minute. Where the environment has MC_LOG_LEVEL, Mooncake's own log goes to stderr; other MC_ variables are heeded.

    Raises ConfigError for a bad setting, and when the client cannot be loaded.
    """

    def __init__(
        self,
        master: str,
        *,
        segment_bytes: int = 1 << 30,
        protocol: Literal["tcp", "rdma"] = "tcp",
        devices: str = "",
        hostname: str | None = None,
        timeout: float = 2.0,
        calls: int = 4,
        buffer_bytes: int = 16 << 20,
    ) -> None:
        if sys.platform != "linux":
            raise ConfigError(f"Mooncake needs Linux: this is {sys.platform}")
        self.master = master
        self._timeout = positive("timeout", timeout, 3600)
        if protocol not in ("tcp", "rdma"):
            raise ConfigError(f"protocol is {protocol!r}: 'tcp' or 'rdma' is needed")
        if not isinstance(devices, str) or not (hostname is None or (isinstance(hostname, str) and hostname)):
            raise ConfigError(f"devices is {devices!r}, hostname {hostname!r}: text is needed, for hostname it may be None")
        self._lane_bytes = integer("buffer_bytes", buffer_bytes, 1 << 12, 1 << 40)
        self._start = partial(
            Link,
            integer("calls", calls, 1, 256),
            self._lane_bytes,
            _environment(self._timeout),
            master=_address(master),
            hostname=hostname,
            protocol=protocol,
            devices=devices,
            segment_bytes=integer("segment_bytes", segment_bytes, 0, 1 << 50),
        )
        self._gate = threading.Lock()
        self._tries = Breaker(time.monotonic, failures=1, first=1.0, most=30.0)
        self._closed = False
        self._why = ""
        try:
            self._link: Link | None = self._start()
        except OSError as error:
            raise ConfigError(f"Mooncake's process cannot be started: {error}") from None
        self._link.loaded()

    def put(self, names: Sequence[bytes], payloads: Sequence[Sequence[memoryview]]) -> list[Outcome]:
        """See DataPlane.put. A payload that does not fit into `buffer_bytes` is `full`."""
        return self._moved("put", names, payloads)

    def get(self, names: Sequence[bytes], into: Sequence[Sequence[memoryview]]) -> list[Outcome]:
        """See DataPlane.get."""
        return self._moved("get", names, into)

    def drop(self, names: Sequence[bytes]) -> None:
        """See DataPlane.drop. It waits for nothing."""
        with self._gate:
            if self._link is not None:
                self._link.drop([_text(name) for name in names])

    def close(self) -> None:
        """Ends the process, within the timeout; what this node lent is gone, and with it the payloads there."""
        with self._gate:
            self._closed = True
            link, self._link = self._link, None
        if link is not None:
            link.close(self._timeout)

    # -- inside

    def _moved(
        self, kind: Literal["put", "get"], names: Sequence[bytes], buffers: Sequence[Sequence[memoryview]]
    ) -> list[Outcome]:
        deadline = time.monotonic() + self._timeout
        sizes = [sum(map(len, parts)) for parts in buffers]
        outcomes: list[Outcome] = [self._fits(size) for size in sizes]
        down: TierError | None = None
        fitting = [n for n, outcome in enumerate(outcomes) if outcome is None]
        for places in _trips(fitting, names, sizes, self._lane_bytes):
            request = Request(kind, [_text(names[n]) for n in places], [sizes[n] for n in places], deadline)
            came = down or self._trip(request, [buffers[n] for n in places])
            if isinstance(came, TierError):
                down = came
            for at, place in enumerate(places):
                outcomes[place] = came if isinstance(came, TierError) else came[at]
        return outcomes

    def _fits(self, size: int) -> Outcome:
        if size <= self._lane_bytes:
            return None
        return TierError("full", f"a payload of {size} bytes, buffer_bytes is {self._lane_bytes}", found=size)

    def _trip(self, request: Request, buffers: Sequence[Sequence[memoryview]]) -> list[Outcome] | TierError:
        """One call's worth; why there was none."""
        link = self._running()
        if isinstance(link, TierError):
            return link
        lane = link.take(request.deadline)
        if lane is None:
            return TierError("io", f"Mooncake does not answer: all calls to {self.master} hang, or wait behind others")
        pieces = list(_pieces(lane, buffers))
        if request.kind == "put":
            for piece, mine in itertools.chain(*pieces):
                piece[:] = mine
        codes = link.ask(lane, request)
        if codes is None or len(codes) != len(buffers):
            link.give(lane, late=codes is None)
            return TierError("io", f"Mooncake at {self.master} does not answer in {self._timeout:g} s")
        self._tries.succeeded()
        if request.kind == "put":
            outcomes = [_put(code) for code in codes]
        else:
            outcomes = [_got(code, size) for code, size in zip(codes, request.sizes, strict=True)]
            good = [parts for parts, outcome in zip(pieces, outcomes, strict=True) if outcome is None]
            for piece, mine in itertools.chain(*good):
                mine[:] = piece
        link.give(lane)
        return outcomes

    def _running(self) -> Link | TierError:
        """The process, started again when it has ended and enough time has passed."""
        with self._gate:
            if self._closed:
                return TierError("closed", "the data plane is closed")
            if self._link is not None and (why := self._link.ended()) is not None:
                self._link.close(0.0)
                self._link = None
                if self._tries.failed():
                    _LOG.warning("Mooncake at %s is left alone for a while: %s", self.master, why)
                self._why = why
            if self._link is None and self._tries.allows():
                try:
                    self._link = self._start()
                except OSError as error:
                    self._tries.failed()
                    self._why = str(error)
            return self._link or TierError("io", f"Mooncake at {self.master} is away: {self._why}")


def _pieces(lane: Lane, buffers: Sequence[Sequence[memoryview]]) -> Iterator[list[tuple[memoryview, memoryview]]]:
    """Of each payload its buffers, each with its piece of the lane's memory."""
    start = 0
    for parts in buffers:
        ends = list(itertools.accumulate(map(len, parts), initial=start))
        yield [(lane.memory[a:b], mine) for a, b, mine in zip(ends, ends[1:], parts, strict=False)]
        start = ends[-1]


def _trips(places: Sequence[int], names: Sequence[bytes], sizes: Sequence[int], most: int) -> Iterator[list[int]]:
    """Consecutive places whose payloads go together. Mooncake fills one buffer alone of those that a request has for one name."""
    together: list[int] = []
    seen: set[bytes] = set()
    total = 0
    for place in places:
        if together and (total + sizes[place] > most or len(together) == _TOGETHER or names[place] in seen):
            yield together
            together, seen, total = [], set(), 0
        together.append(place)
        seen.add(names[place])
        total += sizes[place]
    yield from [together] if together else []


def _put(code: int) -> Outcome:
    if code == 0:
        return None
    return TierError("full", f"Mooncake has no space: code {code}") if code in _FULL else _failed(code)


def _got(code: int, size: int) -> Outcome:
    if code == size:
        return None
    if code in _EMPTY:
        return TierError("empty", f"Mooncake does not have the payload: code {code}")
    if code >= 0 or code == _SMALLER:
        return TierError("torn", f"the payload in Mooncake is not of {size} bytes", wanted=size)
    return _failed(code)


def _failed(code: int) -> TierError:
    return TierError("io", "Mooncake was too late" if code == LATE else f"Mooncake failed: code {code}")


def _text(name: bytes) -> str:
    return name.decode("latin-1")


def _address(master: str) -> tuple[str, int]:
    host, _, port = master.rpartition(":") if isinstance(master, str) else ("", "", "")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(f"master is {master!r}: host:port of a mooncake_master is needed")
    return host, int(port)


def _environment(timeout: float) -> dict[str, str]:
    """With Mooncake's own timeouts, so that calls that are given up come to an end soon; what the environment says goes first."""
    ms, whole = str(math.ceil(timeout * 1000)), str(math.ceil(timeout))
    ours = {
        "MC_RPC_TIMEOUT_MS": ms,
        "MC_RPC_CONNECT_TIMEOUT_MS": ms,
        "MC_TCP_PROGRESS_TIMEOUT_SEC": whole,
        "MC_TCP_STATUS_TIMEOUT_SEC": whole,
        "MC_STORE_CLIENT_SETUP_RETRIES": "1",
    }
    return {**ours, **os.environ}
