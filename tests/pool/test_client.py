"""A client of several servers one of which is away: the others are heard, nobody waits beyond his time, and it is said once."""

from __future__ import annotations

import contextlib
import itertools
import logging
import socket
import sys
from collections.abc import Iterator

import pytest

from tenure.tiers.protocol import Address, Command, Login, Refused, Reply
from tenure.tiers.valkey_client import Client, slot_of
from tests.pool import servers
from tests.pool.making import in_time

HALF = 8192


def key_of(server: int) -> bytes:
    """A key of the first server or the second."""
    return next(key for key in (b"%d" % n for n in itertools.count()) if slot_of(key) // HALF == server)


def echo(client: Client, *of: int, timeout: float = 10.0) -> list[Reply]:
    """What these servers say to a command."""
    return client.run([Command(key_of(server), (b"ECHO", b"here")) for server in of], timeout).replies


@pytest.fixture
def half(one: servers.Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """The first half of the slots is on a server, the second where nobody listens."""
    there = [Address("127.0.0.1", one.port), Address("127.0.0.1", servers.free_port())]
    client = Client("pool", there, Login(), cluster=True, keep=1)
    slots = [there[0]] * HALF + [there[1]] * HALF
    monkeypatch.setattr(client, "_ask_for_map", lambda address, deadline: list(slots))
    yield client
    client.close()


@contextlib.contextmanager
def black_hole() -> Iterator[Address]:
    """An address that takes no connection and does not refuse it."""
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(8):
            caller = stack.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(listening.getsockname())
        yield Address(*listening.getsockname())


def test_a_server_that_is_away_is_said_once_whoever_else_answers(half: Client, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tenure"):
        for _ in range(3):
            assert echo(half, 0) == [b"here"]
            assert isinstance(echo(half, 1)[0], Refused)
    assert len(caplog.records) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="what a full queue of connections does is the system's")
def test_a_server_that_swallows_connections_costs_its_own_commands_only(half: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    with black_hole() as nowhere:
        live = half._seeds[0]
        monkeypatch.setattr(half, "_ask_for_map", lambda address, deadline: [live] * HALF + [nowhere] * HALF)
        assert echo(half, 0) == [b"here"]
        for order in ((0, 1), (1, 0)):
            replies = dict(zip(order, in_time(lambda: echo(half, *order, timeout=5.0), 20), strict=True))  # noqa: B023 (called here)
            assert replies[0] == b"here"
            assert isinstance(replies[1], Refused)
            assert replies[1].lost


def test_nobody_waits_for_the_map_beyond_his_time(half: Client) -> None:
    with half._mapping:  # another is asking, and its server does not answer
        (reply,) = in_time(lambda: echo(half, 0, timeout=0.05), 20)
        assert isinstance(reply, Refused)
        assert reply.lost
    assert echo(half, 0) == [b"here"]
