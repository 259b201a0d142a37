"""Commands to a Valkey server, or to the servers of a cluster that they belong to: all at once, each reply in its place.
Used by the Valkey tier; nothing here raises for a server's failure, repeats what may have been done, or outlasts its time."""

from __future__ import annotations

import binascii
import logging
import os
import select
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from tenure.tiers.protocol import Address, Command, Landed, Login, Refused, Reply, packed
from tenure.tiers.wire import LostError, Wire

__all__ = ["Client", "Trip", "slot_of"]

_LOG = logging.getLogger("tenure")
_SLOTS = 16384
_MOST_ROUNDS = 3
"""How often commands of one trip are sent on to where a server says that they belong."""
_LOGIN = ("NOAUTH", "WRONGPASS", "NOPERM")
_ASKING = Command(b"", (b"ASKING",))


class Trip(NamedTuple):
    """The replies to commands, in their order, how many round trips they took, and whether some were sent on to another server
    than the rest."""

    replies: list[Reply]
    trips: int
    moved: bool = False


def slot_of(key: bytes) -> int:
    """Where a cluster has a key: CRC-16 of what is in its first braces, or of all of it."""
    start = key.find(b"{")
    end = key.find(b"}", start + 1)
    if start >= 0 and end > start + 1:
        key = key[start + 1 : end]
    return binascii.crc_hqx(key, 0) % _SLOTS


class Client:
    """seeds: one server, or some of a cluster's. keep: how many connections for bulk stay open to each server when nobody uses
    them; a call takes one of them, or makes one. name: of the tier, for the log."""

    def __init__(self, name: str, seeds: Sequence[Address], login: Login, *, cluster: bool, keep: int) -> None:
        self._name = name
        self._seeds = list(seeds)
        self._login = login
        self.cluster = cluster
        self._keep = keep
        self._gate = threading.Lock()
        self._idle: defaultdict[tuple[Address, bool], deque[Wire]] = defaultdict(deque)
        self._closed = False
        self._process = os.getpid()
        self._slots: list[Address] = [] if cluster else [seeds[0]] * _SLOTS
        self._doubtful: set[Address] = set()  # servers that have failed since the map of slots was made
        self._mapping = threading.Lock()
        self._said: set[str] = set()

    def run(
        self, commands: Sequence[Command], timeout: float, *, bulk: bool = False, arrived: Callable[[int], None] | None = None
    ) -> Trip:
        """Sends commands and waits for their replies, at most `timeout` seconds in all. Those of one server are done in their
        order. A command whose server fails, or answers too late, is Refused with `lost` set: it may have been done or not.
        arrived: is told the place of each bulk reply that has landed, while those behind it are on their way."""
        if not commands:
            return Trip([], 0)
        deadline = time.monotonic() + timeout
        replies: list[Reply] = [Refused("no reply", lost=True)] * len(commands)
        trips, moved = 0, False
        try:
            if self.cluster and (self._doubtful or not self._slots):
                trips += 1
                self._map(deadline)
            where: dict[Address, list[int]] = defaultdict(list)
            for place, command in enumerate(commands):
                where[self._slots[slot_of(command.key)] if self.cluster else self._seeds[0]].append(place)
            asking = False
            for _ in range(_MOST_ROUNDS):
                trips += 1
                self._round(commands, where, replies, deadline, bulk, asking, arrived)
                where, asking = self._elsewhere(where, replies)
                if not where:
                    break
                moved = True
        except LostError as error:
            self._say("map", str(error))
            replies = [Refused(str(error), lost=True)] * len(commands)
        return Trip(replies, trips, moved)

    def close(self) -> None:
        """Closes what nobody uses now, and the rest when it comes back."""
        with self._gate:
            self._closed = True
            for wires in self._idle.values():
                for wire in wires:
                    wire.close()
            self._idle.clear()

    # -- one round

    def _round(
        self,
        commands: Sequence[Command],
        where: dict[Address, list[int]],
        replies: list[Reply],
        deadline: float,
        bulk: bool,
        asking: bool,
        arrived: Callable[[int], None] | None,
    ) -> None:
        """Sends to every server before it waits for any, first to those that it has a connection to; whichever answers first is
        read first. Where there are others to hear, a server that cannot be reached may take half of the time."""
        waiting: dict[int, tuple[Wire, list[int]]] = {}
        for address, places in sorted(where.items(), key=lambda one: not self._idle.get((one[0], bulk))):
            now = time.monotonic()
            try:
                wire = self._take(address, bulk, deadline if len(where) == 1 else now + (deadline - now) / 2)
                try:
                    mine = [commands[place] for place in places]
                    wire.send(packed([each for c in mine for each in (_ASKING, c)] if asking else mine), deadline)
                except BaseException:
                    wire.close()
                    raise
                waiting[wire.fileno()] = (wire, places)
            except LostError as error:
                self._lost(address, places, replies, error)
        try:
            while waiting:
                for number in _ready(waiting, deadline) if len(waiting) > 1 else list(waiting):
                    wire, places = waiting[number]
                    try:
                        for place in places:
                            if asking:
                                wire.receive((), deadline)
                            replies[place] = reply = wire.receive(commands[place].into, deadline)
                            if arrived is not None and isinstance(reply, Landed):
                                arrived(place)
                    except LostError as error:
                        wire.close()
                        self._lost(wire.address, [p for p in places if _is_lost(replies[p])], replies, error)
                    else:
                        self._said.discard(str(wire.address))
                        self._give_back(wire, bulk)
                    del waiting[number]
        finally:
            for wire, _ in waiting.values():
                wire.close()
        self._judge(replies)

    def _lost(self, address: Address, places: list[int], replies: list[Reply], error: LostError) -> None:
        with self._gate:
            self._doubtful.add(address)
        self._say(str(address), str(error))
        for place in places:
            replies[place] = Refused(str(error), lost=True)

    def _elsewhere(self, where: dict[Address, list[int]], replies: list[Reply]) -> tuple[dict[Address, list[int]], bool]:
        """The commands that belong to another server by its own word, and whether it is to be asked out of turn."""
        again: dict[Address, list[int]] = defaultdict(list)
        asking = False
        for address, places in where.items():
            for place in places:
                reply = replies[place]
                if not isinstance(reply, Refused) or reply.lost:
                    continue
                words = reply.text.split()
                if words and words[0] in ("MOVED", "ASK") and len(words) == 3 and self.cluster:
                    again[_address(words[2], address)].append(place)
                    asking |= words[0] == "ASK"
                    with self._gate:
                        self._doubtful.add(address)
                elif words and words[0] in ("READONLY", "CLUSTERDOWN", "MASTERDOWN"):
                    with self._gate:
                        self._doubtful.add(address)
        return again, asking

    def _judge(self, replies: Iterable[Reply]) -> None:
        """A server that wants another login says so with every reply; it is in the log once."""
        refused = next((r for r in replies if isinstance(r, Refused)), None)
        if refused is None:
            self._said.discard("login")
        elif refused.text.startswith(_LOGIN):
            self._say("login", f"the server refuses the login: {refused.text}")

    def _say(self, what: str, text: str) -> None:
        """Once, until `what` is well again: a server by its address, the map, the login."""
        if what not in self._said:
            self._said.add(what)
            _LOG.warning("tier %s: %s", self._name, text)

    # -- connections

    def _take(self, address: Address, bulk: bool, deadline: float) -> Wire:
        with self._gate:
            if self._process != os.getpid():  # a child that was forked: the connections are its parent's
                self._process = os.getpid()
                self._idle.clear()
            idle = self._idle[address, bulk]
            while idle:
                wire = idle.pop()
                if wire.idle():
                    return wire
                wire.close()
        return Wire(address, self._login, deadline)

    def _give_back(self, wire: Wire, bulk: bool) -> None:
        with self._gate:
            idle = self._idle[wire.address, bulk]
            if not self._closed and len(idle) < self._keep:
                idle.append(wire)
                return
        wire.close()

    # -- the map of a cluster

    def _map(self, deadline: float) -> None:
        """Asks who has which slots, those first that have not failed; each may take its share of the time. Raises LostError when
        nobody says."""
        if not self._mapping.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise LostError("who has which slots is being asked, and that takes too long")
        try:
            with self._gate:
                if self._slots and not self._doubtful:
                    return  # somebody else has asked meanwhile
                doubtful = set(self._doubtful)
            known = dict.fromkeys([*self._slots, *self._seeds])
            servers = sorted(known, key=lambda address: address in doubtful)
            why = LostError("no server of the cluster knows who has which slots")
            for number, address in enumerate(servers):
                now = time.monotonic()
                share = now + max(0.0, deadline - now) / (len(servers) - number)
                try:
                    slots = self._ask_for_map(address, share)
                except LostError as error:
                    why = error
                    continue
                with self._gate:
                    self._slots = slots
                    self._doubtful -= doubtful
                self._said.discard("map")
                return
            raise why
        finally:
            self._mapping.release()

    def _ask_for_map(self, address: Address, deadline: float) -> list[Address]:
        wire = self._take(address, False, deadline)
        try:
            wire.send(packed([Command(b"", (b"CLUSTER", b"SLOTS"))]), deadline)
            reply: Any = wire.receive((), deadline)
        except BaseException:
            wire.close()
            raise
        self._give_back(wire, False)
        slots: list[Address | None] = [None] * _SLOTS
        try:
            for first, last, (host, port, *_), *_ in reply:
                owner = Address(host.decode() if host else address.host, port)
                slots[first : last + 1] = [owner] * (last + 1 - first)
        except (TypeError, ValueError, AttributeError):
            raise LostError(f"{address} is no server of a cluster: {str(reply)[:80]}") from None
        owners = [slot for slot in slots if slot is not None]
        if len(owners) != _SLOTS or len(slots) != _SLOTS:
            raise LostError(f"{address} knows of a cluster that serves {len(owners)} of {_SLOTS} slots")
        return owners


def _is_lost(reply: Reply) -> bool:
    return isinstance(reply, Refused) and reply.lost


def _ready(waiting: dict[int, tuple[Wire, list[int]]], deadline: float) -> list[int]:
    """Whose replies have begun to come; all of them when the time is up, so that each says so."""
    poll = select.poll()
    for number in waiting:
        poll.register(number, select.POLLIN)
    left = max(0.0, deadline - time.monotonic())
    return [number for number, _ in poll.poll(left * 1000)] or list(waiting)


def _address(text: str, asked: Address) -> Address:
    """Where MOVED or ASK sends to; without a host it is the one that was asked."""
    host, _, port = text.rpartition(":")
    return Address(host or asked.host, int(port) if port.isdigit() else asked.port)
