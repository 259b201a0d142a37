"""Fixtures for all tests: a clock moved by hand, an identity, and managers that are audited when the test ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from helpers import SIZE, Clock, admit, prompt, put
from world import World

from tenure import BlockManager, Identity, Quota


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def who() -> Identity:
    return Identity("model", weights="digest", tenant="acme")


@pytest.fixture
def other() -> Identity:
    """The same model for another tenant."""
    return Identity("model", weights="digest", tenant="umbrella")


Build = Callable[..., BlockManager]


@pytest.fixture
def build(clock: Clock) -> Iterator[Build]:
    """Makes managers on the manual clock; whatever the test did to them, their books must be right at its end."""
    made: list[BlockManager] = []

    def make(frames: int, block_size: int = SIZE, **settings: Any) -> BlockManager:
        made.append(BlockManager(frames, block_size, clock=clock, **settings))
        return made[-1]

    yield make
    for kv in made:
        kv.check()


@pytest.fixture
def world(build: Build, who: Identity, other: Identity) -> World:
    kv = build(16, pin_budget=0.25)
    kv.tenants["acme"] = Quota(floor=0.25, cap=0.75)
    kv.tenants["umbrella"] = Quota(floor=0.25)
    done = admit(kv, who, 1, 2)
    done.release()
    put(kv, who, 1, 3, expire_after=100)
    put(kv, other, 1)
    lease = kv.pin(prompt(1, 2), who, owner="ops")
    kv.lookup(prompt(1), other, owner="loader", ttl=50)
    seq = kv.sequence([*prompt(1, 4), 5, 6], who, session="u", anchor_for=10)
    child = seq.fork()
    child.append([7])  # a copy is pending
    return World(kv, who, seq, child, done, lease, admit(build(4), who, 1))
