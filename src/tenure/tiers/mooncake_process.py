"""The process in which a node's Mooncake client lives: it owns the memory that the node lends, and does one call a lane.
Started by a data plane and ended with it; it decides nothing and looks into no payload."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
import select
import signal
import socket
import sys
import threading
import time
from typing import Any, Literal

import msgspec

__all__ = ["DROPPED_AT_ONCE", "LATE", "MOST_MESSAGE", "Request", "Settings", "main"]

LATE = -1_000_000
"""What became of a payload whose time was over; Mooncake's own codes are above."""
MOST_MESSAGE = 128 << 10
"""Bytes of a request or a reply: one packet of a socket pair."""
DROPPED_AT_ONCE = 256
_SETUP, _CLOSE = 300, 10
"""Seconds after which a setup or a closing that hangs ends the process."""


class Settings(msgspec.Struct, frozen=True):
    """What the process is started with. master: host and port. lane_bytes: of the shared memory, for each lane. control, lanes,
    memory: file descriptors that it is given. parent: who started it."""

    master: tuple[str, int]
    hostname: str | None
    protocol: str
    devices: str
    segment_bytes: int
    lane_bytes: int
    control: int
    lanes: list[int]
    memory: int
    parent: int


class Request(msgspec.Struct, frozen=True, array_like=True):
    """Payloads that lie, or are to lie, one behind the other in a lane's memory. deadline: of time.monotonic(), which all
    processes of a machine share. The reply has a number for each: of a put 0, of a get its bytes, or an error below 0."""

    kind: Literal["put", "get"]
    names: list[str]
    sizes: list[int]
    deadline: float


def main() -> None:
    """Says on `control` that the client can be loaded (an empty packet) or why not, and then serves until `control` is closed."""
    settings = msgspec.json.decode(sys.argv[1], type=Settings)
    control = socket.socket(fileno=settings.control)
    try:
        from mooncake.store import MooncakeDistributedStore, ReplicateConfig
    except ImportError as error:
        control.send(str(error).encode())
        return
    control.send(b"+")
    signal.alarm(_SETUP)  # Mooncake keeps the interpreter's lock in these calls: only a signal ends one that hangs
    memory = mmap.mmap(settings.memory, len(settings.lanes) * settings.lane_bytes)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    store = MooncakeDistributedStore()
    code = store.setup(
        settings.hostname or _seen_from(settings.master),
        "P2PHANDSHAKE",
        settings.segment_bytes,
        0,  # of Mooncake's own buffers, which calls on registered memory do not use
        settings.protocol,
        settings.devices,
        "{}:{}".format(*settings.master),
    )
    code = code or store.register_buffer(address, len(memory))
    if code:
        control.send(b"Mooncake's setup gave %d" % code)
        os._exit(1)
    signal.alarm(0)
    wanted = ReplicateConfig()
    if settings.segment_bytes:
        wanted.preferred_segment = store.get_hostname()  # no network to write to; others' memory when this node's is full
    for number, lane in enumerate(settings.lanes):
        place = address + number * settings.lane_bytes
        threading.Thread(target=_serve, args=(store, wanted, socket.socket(fileno=lane), place), daemon=True).start()
    _drop_until_closed(store, control, settings.parent)
    signal.alarm(_CLOSE)
    store.close()  # the master need not find out by itself that the memory is gone
    os._exit(0)  # calls that still run are not waited for


def _serve(store: Any, wanted: Any, lane: socket.socket, address: int) -> None:
    try:
        while packet := lane.recv(MOST_MESSAGE):
            request = msgspec.msgpack.decode(packet, type=Request)
            lane.send(msgspec.msgpack.encode(_done(store, wanted, request, address)))
    except Exception:  # a client that raises is none to go on with
        os._exit(1)


def _done(store: Any, wanted: Any, request: Request, address: int) -> list[int]:
    late = [LATE] * len(request.names)
    if time.monotonic() >= request.deadline:
        return late
    places = list(itertools.accumulate(request.sizes[:-1], initial=address))
    if request.kind == "get":
        return list(store.batch_get_into(request.names, places, request.sizes))
    codes = list(store.batch_put_from(request.names, places, request.sizes, wanted))
    if time.monotonic() >= request.deadline:  # nobody waits for it, so nobody will drop it
        store.batch_remove(request.names, True)
        return late
    return codes


def _drop_until_closed(store: Any, control: socket.socket, parent: int) -> None:
    while os.getppid() == parent:
        if not select.select([control], [], [], 1.0)[0]:
            continue
        try:
            packet = control.recv(MOST_MESSAGE)
        except ConnectionResetError:  # closed with something unread
            return
        if not packet:
            return
        store.batch_remove(msgspec.msgpack.decode(packet, type=list[str]), True)  # nobody reads them: no lease counts


def _seen_from(master: tuple[str, int]) -> str:
    """This machine's address on the way to the master."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(*master, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)  # sends nothing
            return str(probe.getsockname()[0])
    except OSError:
        return socket.gethostname()
