"""Hand-over: a prompt computed on one node is gone on with on another."""

from __future__ import annotations

import threading
import time
from typing import Any

import msgspec
import numpy as np
import pytest

from tenure import BlockManager, ConfigError, RecordError, StaleHandleError
from tenure.cluster.handover import Handover, adopt, publish
from tenure.node import Level, Node
from tests.cluster.making import SIZE, WHO, Clock, node, serve
from tests.cluster.memory import MemoryPool, Server
from tests.node.making import LAYOUT, ArrayDevice, kv_of, prompt

LONG = [*prompt(0, 6), 5, 5]


def prefill(kv: Node, tokens: list[int], **asked: Any) -> Any:
    device: Any = kv.device
    seq = kv.sequence(tokens, WHO, **asked)
    for block in range(len(tokens) // SIZE):
        device.bytes[seq.block_table[block]] = kv_of(WHO.with_(adapter=""), tokens[: (block + 1) * SIZE])
    return seq


@pytest.mark.parametrize("write", ["through", "selective", "back"])
def test_another_node_goes_on(write: str) -> None:
    clock, server = Clock(), Server()
    level = Level(MemoryPool(server, LAYOUT), write=write)
    with Node(ArrayDevice(16), [level], SIZE, clock=clock, background=False) as a, node(server, clock) as b:
        with prefill(a, LONG) as seq:
            made = publish(a, seq)
        assert made.published == 24
        carried = made.encode()
        with adopt(b, carried) as seq:
            assert seq.hit_tokens == 24
            assert seq.tokens.tolist() == LONG
            right = kv_of(WHO.with_(adapter=""), LONG[:24])
            device: Any = b.device
            assert np.array_equal(device.bytes[seq.block_table[5]], right)
            seq.append([1, 2])
        a.check()
        b.check()


def test_what_was_computed_in_lock_step_is_published_at_once() -> None:
    clock, server = Clock(), Server()
    with node(server, clock) as a, prefill(a, LONG, written=True) as seq:
        assert publish(a, seq).published == 24


def test_generated_tokens_are_handed_over_too() -> None:
    clock, server = Clock(), Server()
    with node(server, clock) as a, node(server, clock) as b:
        with prefill(a, LONG) as seq:
            seq.append([8, 9])
            device: Any = a.device
            device.bytes[seq.block_table[6]] = kv_of(WHO.with_(adapter=""), [*LONG, 8, 9])
            made = publish(a, seq)
        assert made.published == 28
        assert serve(b, [*LONG, 8, 9, 1]) == 28


def test_extra_keys_go_along() -> None:
    clock, server = Clock(), Server()
    with node(server, clock) as a, node(server, clock) as b:
        keys = {1: b"image"}
        with prefill(a, LONG, extra_keys=keys) as seq:
            made = publish(a, seq, extra_keys=keys)
        assert made.published == 24
        with adopt(b, made.encode()) as seq:
            assert seq.hit_tokens == 24


def test_after_an_epoch_it_is_computed_again() -> None:
    clock, server = Clock(), Server()
    with node(server, clock) as a, node(server, clock) as b:
        with prefill(a, LONG) as seq:
            made = publish(a, seq)
        a.invalidate(weights="w1")
        with adopt(b, made) as seq:
            assert seq.hit_tokens == 0


def test_without_the_pool_nothing_is_published_and_nothing_raised() -> None:
    clock, server = Clock(), Server()
    with node(server, clock) as a, node(server, clock) as b:
        serve(a, prompt(1, 2))
        server.down = True
        with prefill(a, LONG) as seq:
            made = publish(a, seq, patience=0.5)
        assert made.published == 0
        with adopt(b, made) as seq:
            assert seq.hit_tokens == 0


def test_bad_input() -> None:
    clock, server = Clock(), Server()
    with pytest.raises(RecordError):
        Handover.decode(b"something")
    nested = b"\x81\xa5model" + b"\x91" * 50_000 + b"\xc0"
    with pytest.raises(RecordError, match="identity"):
        Handover.decode(msgspec.msgpack.encode((1, nested, b"", 0, {})))
    with pytest.raises(RecordError):
        Handover.decode(Handover(WHO, np.arange(4, dtype=np.int32), 0, {}).encode()[:-3])
    bare = Node(ArrayDevice(8), [], SIZE, background=False)
    with bare, bare.sequence(LONG, WHO) as seq, pytest.raises(ConfigError, match="no pool"):
        publish(bare, seq)
    with node(server, clock) as a:
        seq = prefill(a, LONG)
        with pytest.raises(ConfigError, match="patience"):
            publish(a, seq, patience=0)
        with pytest.raises(ConfigError, match="resumed"):
            publish(a, a.resume(seq.handle))
        seq.release()
        with pytest.raises(StaleHandleError):
            publish(a, seq)


def test_a_sequence_tells_its_tokens() -> None:
    kv = BlockManager(8, SIZE)
    with kv.sequence([1, 2, 3, 4, 5], WHO) as seq:
        seq.append([6, 7, 8, 9])
        assert seq.tokens.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9]
        with seq.fork() as other:
            other.append([10])
            assert other.tokens.tolist()[-1] == 10
            assert other.who == WHO
        seq.truncate(3)
        assert seq.tokens.tolist() == [1, 2, 3]


def test_what_the_nodes_own_thread_is_writing_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, server = Clock(), Server()
    with node(server, clock) as a, prefill(a, LONG) as seq:
        pool: Any = a.levels["pool"].tier
        entered, asked, store = threading.Event(), threading.Event(), pool._store
        write_some = a.write_some

        def slowly(puts: Any) -> Any:
            entered.set()
            assert asked.wait(60), "nobody waits for what is being written"
            return store(puts)

        def asking(*given: Any) -> int:
            asked.set()
            return write_some(*given)

        monkeypatch.setattr(pool, "_store", slowly)
        monkeypatch.setattr(a, "write_some", asking)
        seq.seal()
        thread = threading.Thread(target=a.flush)
        thread.start()
        assert entered.wait(60)
        assert publish(a, seq, patience=60).published == 24
        thread.join()


def test_a_look_up_does_not_wait_behind_those_that_publish(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, server = Clock(), Server()
    level = Level(MemoryPool(server, LAYOUT), deadline=60.0)
    with node(server, clock) as a, Node(ArrayDevice(16), [level], SIZE, clock=clock, background=False) as b:
        serve(a, LONG)
        a.flush()
        begun, go = threading.Semaphore(0), threading.Event()

        def write(*given: Any) -> int:
            begun.release()
            go.wait(120)
            return 0

        with monkeypatch.context() as patched:
            patched.setattr(b._mover._writer, "write", write)
            threads = [threading.Thread(target=b.write_some, args=("pool", 1, time.monotonic() + 120)) for _ in range(8)]
            for thread in threads:
                thread.start()
            assert all(begun.acquire(timeout=60) for _ in range(4))  # as many as may ask at once
            assert serve(b, LONG) == 24
            assert b.lane_stats("pool").late == 0
            go.set()
            for thread in threads:
                thread.join()
