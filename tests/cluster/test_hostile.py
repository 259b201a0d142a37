"""What others may put into a pool in our place costs hits; it stops no node, and nobody is told a wrong thing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tenure.cluster.registry import Registry
from tenure.cluster.rollouts import Rollouts
from tenure.errors import IdentityError, RecordError
from tenure.node import Level, Node
from tests.cluster.making import WHO, Clock, node, serve
from tests.cluster.memory import MemoryPool
from tests.cluster.memory import Server as Memory
from tests.cluster.rolling import NEW, OLD
from tests.node.making import LAYOUT, SIZE, ArrayDevice, prompt
from tests.pool.servers import Server, needed, server

valkey = pytest.importorskip("tenure.tiers.valkey", reason="needs tenure[valkey]", exc_type=ImportError)
needed()

LONG = prompt(0, 6)
NESTED = b"\x91" * 50_000 + b"\xc0"
BOARD = "tenure:{tenure:names}:rollouts"


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with server() as made:
        yield made


@pytest.fixture
def there(running: Server) -> Server:
    running.command("FLUSHALL")
    return running


def on(there: Server, **settings: Any) -> Node:
    tier = valkey.ValkeyTier(LAYOUT, there.url, timeout=60.0, claim=60.0)
    return Node(ArrayDevice(32), [Level(tier)], SIZE, background=False, **settings)


@pytest.mark.parametrize("value", [(1 << 53) - 2, (1 << 53) - 1, 1 << 53, -1, "x", ""])
def test_a_value_of_a_family_that_cannot_rise(there: Server, value: int | str) -> None:
    with on(there) as kv:
        serve(kv, LONG)
        for key in there.command("KEYS", "*families*"):
            there.command("SET", key, value)
        assert kv.refresh()
        for label in "abc":
            kv.invalidate(model="m")
            assert serve(kv, LONG, label=label) == 0
            assert kv.refresh()
        assert kv.refresh()
        assert kv.shared is not None
        assert kv.shared.epochs.untold == 0
        assert kv.shared.epochs.proven(WHO)


BOARDS = {
    "list": None,
    "nested": b"\x92\x01\x82\xaageneration\x01\xa8rollouts\x81\xa1m\x83\xa5model\xa1m\xa3old\x81\xa1w" + NESTED,
    "generation": msgspec.msgpack.encode((1, {"generation": 1 << 63, "rollouts": {}})),
}


@pytest.mark.parametrize("board", BOARDS.values(), ids=list(BOARDS))
def test_rollouts_that_are_none(there: Server, board: bytes | None) -> None:
    there.command("RPUSH", BOARD, "x") if board is None else there.command("SET", BOARD, board)
    with on(there) as kv:
        for _ in range(5):
            assert kv.version("m", "session") == {}
        assert kv.lane_stats("pool").breaker == "closed"  # the pool is there
        assert not kv.refresh()
        if board is not None:
            with pytest.raises(RecordError):
                Rollouts(kv.shared.pool).announce("m", OLD, NEW)  # type: ignore[union-attr]
        there.command("DEL", BOARD)
        assert kv.refresh()


def test_a_node_that_says_nested_things_of_itself(there: Server) -> None:
    with on(there, name="x") as kv:
        assert kv.refresh()
        there.command("SET", "tenure:{tenure:names}:node:x", b"\x83\xa4name\xa1x\xa4boot\xa1y\xa8versions\x91\x97\xa1m" + NESTED)
        with pytest.raises(RecordError):
            Registry(kv.shared.pool).nodes()  # type: ignore[union-attr]
        assert kv.refresh()


def test_a_head_under_a_key_that_no_block_can_have(there: Server) -> None:
    extra = {1: b"k" * 300}  # more than a record takes
    with on(there) as kv:
        assert kv.shared is not None
        serve(kv, LONG)
        digests = list(kv.shared.epochs.of(WHO).digest_chain(LONG, SIZE, extra))
        kv.flush()
        kv.clear()
        there.command("SET", kv.shared.pool._keys.head(digests[1]), b"block t 100 %d 4194304 0" % LAYOUT.nbytes)
        assert serve(kv, LONG, extra_keys=extra) == SIZE
        kv.check()


def test_a_look_up_has_one_deadline_for_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, memory = Clock(), Memory()
    with Node(ArrayDevice(16), [Level(MemoryPool(memory, LAYOUT), deadline=20)], SIZE, clock=clock, background=False) as kv:
        assert kv.shared is not None
        lane = kv.shared._lane
        given: list[float | None] = []
        in_time = lane.in_time

        def noted(job: Any, patience: float | None, **how: Any) -> Any:
            if not how:
                given.append(patience)
            return in_time(job, patience, **how)

        monkeypatch.setattr(lane, "in_time", noted)
        monkeypatch.setattr(lane, "left", lambda started: 19.0)
        assert serve(kv, LONG) == 0
        assert given == [19.0, 19.0]  # the epochs, then the blocks
        monkeypatch.setattr(lane, "left", lambda started: 0.0)
        asked = memory.asked
        assert serve(kv, prompt(9, 2)) == 0
        assert memory.asked == asked
        assert kv.lane_stats("pool").breaker == "closed"


@pytest.mark.parametrize("value", [5, None, "\ud800", [1]])
def test_an_invalidation_by_what_no_identity_can_have(value: Any) -> None:
    with node(Memory(), Clock()) as kv:
        serve(kv, LONG)
        with pytest.raises(IdentityError):
            kv.invalidate(weights=value)
        assert serve(kv, LONG) == len(LONG)
