"""One node of `tenure demo --pool`, as a process: the model, a device and host memory of its own, and the pool. It answers the
turns that it is told to over a pipe, and says there how each went. pair.py starts it; it prints nothing."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, cast

from tenure.cli import demo, serving, standing
from tenure.cli.recorded import Step
from tenure.cli.turns import Turn
from tenure.engines.transformers import node_for
from tenure.errors import TenureError
from tenure.models import Loaded
from tenure.node import Node
from tenure.tiers.pool import ClaimCounters, PoolTier

__all__ = ["TIERS", "Done", "Ended", "Failed", "Half", "Ready", "Setup", "main"]

TIERS = ("device", "host", "pool")


class Setup(NamedTuple):
    """What a node is made of. load: gives the model; it travels to the process by its name. session: what the steps are called.
    device_bytes, host_bytes: None for the demo's own sizes. in_pool, settings: of node_for."""

    load: Callable[[], Loaded]
    session: str
    steps: list[Step]
    new: int
    block_size: int
    device_bytes: int | None
    host_bytes: int | None
    in_pool: dict[str, Any]
    settings: dict[str, Any]


class Ready(NamedTuple):
    """It can answer. opening: what it is going to, and what room it has."""

    opening: list[str]


class Half(NamedTuple):
    """The cold answer to this step is there; the warm one begins."""

    place: int


class Done(NamedTuple):
    """A turn is answered, and what it computed is in the pool. others: tokens from the pool that this node had never had, so that
    somebody else has computed them. claims: what came of its writing to the pool, so far."""

    turn: Turn
    others: int
    claims: ClaimCounters


class Ended(NamedTuple):
    """Everything is written down and the books are right. closing: the node in sentences."""

    closing: list[str]


class Failed(NamedTuple):
    """It ends, and this is why."""

    why: str


def main(pipe: Connection, name: str, pool: str, setup: Setup) -> None:
    """Answers until it is told None, or nobody is there any more. name: of the node. pool: its address."""
    multiprocessing.set_start_method(
        "fork", force=True
    )  # so that locks that libraries make leave no names behind when it is killed
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        try:
            _answer(pipe, name, pool, setup)
        except TenureError as problem:
            pipe.send(Failed(str(problem)))


def _answer(pipe: Connection, name: str, pool: str, setup: Setup) -> None:
    loaded = setup.load()
    prompts = serving.prompts(loaded, setup.steps, setup.new)
    with _node(loaded, prompts, pool, setup) as kv:
        answering = serving.Serving(loaded, kv, setup.new, demo.MODEL)
        answering.warm_up()
        shared = cast(PoolTier, kv.levels["pool"].tier)
        pipe.send(Ready(standing.opening(kv, setup.session, prompts)))
        had: set[int] = set()
        while (place := pipe.recv()) is not None:
            turn = answering.turn(prompts[place], partial(pipe.send, Half(place)))
            kv.flush()  # the other may be asked next
            others = _new_from_pool(list(serving.links(prompts[place], kv.block_size)), turn, had, kv.block_size)
            pipe.send(Done(turn._replace(node=name), others, shared.claims))
        pipe.send(Ended(standing.closing(kv)))


def _node(loaded: Loaded, prompts: list[serving.Prompt], pool: str, setup: Setup) -> Node:
    frames, block = serving.frames_for(loaded, prompts, setup.new, setup.block_size, setup.device_bytes)
    return node_for(
        loaded.model,
        device_bytes=frames * block,
        host_bytes=frames * 3 // 2 * block if setup.host_bytes is None else setup.host_bytes,
        block_size=setup.block_size,
        pool=pool,
        in_pool=setup.in_pool,
        recompute_last=True,
        **setup.settings,
    )


def _new_from_pool(links: list[int], turn: Turn, had: set[int], block_size: int) -> int:
    """Tokens of the turn that came from the pool and are not of blocks in `had`, to which all of the turn are added. Each tier
    holds whole prefixes, so what came from the pool follows what was nearer."""
    nearer = sum(turn.reused[tier] for tier in TIERS[:-1]) // block_size
    came = links[nearer : nearer + turn.reused["pool"] // block_size]
    new = sum(link not in had for link in came)
    had.update(links)
    return new * block_size
