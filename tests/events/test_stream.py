"""Over real sockets: whatever is lost on the way, what a subscriber was given equals what the manager holds."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import zmq
from helpers import prompt, put

from events.making import MEDIA, PATIENCE, Machine, Replica, truth, until
from tenure import BlockManager, ConfigError, Identity, TenureError
from tenure.events import AllBlocksCleared, Batch, Publisher, Subscriber, decode, encode
from tenure.events.asking import Message, ask

WHO = Identity(model="m")


class Reader:
    """A subscriber, and a replica that believes it."""

    def __init__(self, pub: Publisher, kind: type[Subscriber] = Subscriber, **settings: object) -> None:
        addresses = {"replay": pub.replay, "snapshot": pub.snapshot} | settings
        self.sub = kind(pub.endpoint, patience=PATIENCE, **addresses)  # type: ignore[arg-type]
        self.replica = Replica(strict=False)
        self.batches: list[Batch] = []

    def catch_up(self, pub: Publisher) -> None:
        """Until it has the last batch; the heartbeats tell of one that was lost."""

        def there() -> bool:
            for batch in self.sub.receive(0.02):
                self.batches.append(batch)
                self.replica.apply(batch.events)
            return self.sub.boot == pub.boot and self.sub.seq >= last

        last = pub.flush(PATIENCE)
        until(there)


@pytest.fixture
def opened() -> Iterator[Callable[..., Publisher]]:
    made: list[Publisher] = []

    def open_(kv: BlockManager, endpoint: str = "tcp://127.0.0.1:0", **settings: object) -> Publisher:
        made.append(Publisher(kv, endpoint, **{"heartbeat": 0.05, "interval": 0.002} | settings))  # type: ignore[arg-type]
        return made[-1]

    yield open_
    for pub in made:
        pub.close()


Open = Callable[..., Publisher]


def test_a_live_subscriber_and_a_late_one(opened: Open) -> None:
    machine = Machine(1)
    pub = opened(machine.kv, media=MEDIA, node="a")
    live = Reader(pub)
    for _ in range(6):
        for _ in range(40):
            machine.step()
        live.catch_up(pub)
        assert live.replica.held == machine.truth()
    late = Reader(pub)
    late.catch_up(pub)
    assert late.replica.held == machine.truth()
    assert late.sub.stats.snapshots == 1
    assert (live.sub.node, live.sub.boot) == ("a", pub.boot)
    live.sub.close()
    late.sub.close()


def test_a_node_tells_of_its_tiers(opened: Open) -> None:
    for package in ("xxhash", "zstandard", "ml_dtypes"):
        pytest.importorskip(package, reason=f"{package} is not installed: pip install 'tenure[tiers]'")
    from node.making import host, node, serve

    from tenure.node import Level

    with node(4, Level(host(16))) as kv:
        pub = opened(kv)
        reader = Reader(pub)
        for name in range(6):
            serve(kv, prompt(name, name + 10))
            kv.flush()
        reader.catch_up(pub)
        assert reader.replica.held == truth(kv, (4, 16))
        assert {"GPU", "CPU"} in reader.replica.held.values()
        reader.sub.close()
        pub.close()


def test_the_numbers_of_a_boot_start_at_zero(opened: Open) -> None:
    kv = BlockManager(8, 4)
    pub = opened(kv)
    reader = Reader(pub, snapshot=None)
    put(kv, WHO, 1, 2)
    reader.catch_up(pub)
    assert [batch.seq for batch in reader.batches] == list(range(len(reader.batches)))
    assert reader.batches[0].events[-1] == AllBlocksCleared()
    reader.sub.close()


class Lossy(Subscriber):
    """Every third message never arrives."""

    random = random.Random(0)

    def _take(self, message: Message, given: list[Batch]) -> None:
        if self.random.random() > 0.33:
            super()._take(message, given)


class Credulous(Lossy):
    """The control: it goes on as if nothing had been lost."""

    def _recover(self, given: list[Batch], cause: Batch | None = None) -> None:
        if cause is not None:
            self._give(given, [cause])


@pytest.mark.parametrize("keep", [1, 3, 10_000])
@pytest.mark.parametrize("seed", range(3))
def test_lost_messages_are_made_good(opened: Open, seed: int, keep: int) -> None:
    machine = Machine(seed)
    pub = opened(machine.kv, media=MEDIA, keep=keep)
    reader = Reader(pub, Lossy)
    for _ in range(40):
        for _ in range(6):
            machine.step()
        if machine.random.random() < 0.3:
            reader.catch_up(pub)
            assert reader.replica.held == machine.truth()
        else:
            pub.flush(PATIENCE)
    reader.catch_up(pub)
    assert reader.replica.held == machine.truth()
    assert reader.sub.stats.gaps > 0
    assert reader.sub.stats.replays + reader.sub.stats.snapshots > 1  # the first look, and what made the gaps good
    reader.sub.close()


def test_the_comparison_notices_a_subscriber_that_makes_nothing_good(opened: Open) -> None:
    def differs(seed: int) -> bool:
        machine = Machine(seed)
        pub = opened(machine.kv, media=MEDIA)
        reader = Reader(pub, Credulous)
        reader.sub.receive(0.2)
        differed = False
        for _ in range(20):
            for _ in range(6):
                machine.step()
            reader.catch_up(pub)
            differed |= reader.replica.held != machine.truth()
        reader.sub.close()
        return differed

    assert any(differs(seed) for seed in range(3))


def test_a_publisher_that_restarts_is_another_boot(opened: Open) -> None:
    first, second = Machine(5), Machine(6)
    pub = opened(first.kv, media=MEDIA, node="a")
    reader = Reader(pub)
    for _ in range(100):
        first.step()
    reader.catch_up(pub)
    assert reader.replica.held == first.truth()
    pub.close()
    again = opened(second.kv, pub.endpoint, replay=pub.replay, snapshot=pub.snapshot, media=MEDIA, node="a")
    for _ in range(100):
        second.step()
    reader.catch_up(again)
    assert reader.replica.held == second.truth()
    assert reader.sub.boot == again.boot != pub.boot

    given: list[Batch] = []
    reader.sub._take(Message(f"kv@a@{pub.boot}".encode(), 10**6, encode(1e12, [AllBlocksCleared()])), given)
    assert given == []  # what the former boot sent late does not count
    reader.sub.close()


def test_an_overrun_log_is_made_good_under_fire(opened: Open) -> None:
    kv = BlockManager(64, 4, events=64)
    pub = opened(kv)
    reader = Reader(pub)

    def engine(first: int) -> None:
        for name in range(first, first + 400):
            put(kv, WHO, name % 50, name)

    threads = [threading.Thread(target=engine, args=(start,)) for start in (1000, 2000)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        reader.catch_up(pub)
    for thread in threads:
        thread.join()
    reader.catch_up(pub)
    assert reader.replica.held == truth(kv, (64,))
    reader.sub.close()


def test_a_subscriber_that_does_not_read_holds_nobody_up(opened: Open) -> None:
    kv = BlockManager(64, 4)
    pub = opened(kv, hwm=1, keep=8, keep_bytes=4096)
    slow = Reader(pub, hwm=1)
    slow.sub.receive()
    for name in range(300):
        put(kv, WHO, name)
        pub.flush(PATIENCE)
    assert pub.seq >= 300
    assert len(pub._kept) <= 8
    assert sum(len(payload) for _, payload in pub._kept) == pub._kept_bytes <= 4096
    slow.catch_up(pub)
    assert slow.replica.held == truth(kv, (64,))
    slow.sub.close()


def test_requests_that_make_no_sense_are_not_answered_and_do_no_harm(opened: Open) -> None:
    kv = BlockManager(8, 4)
    pub = opened(kv)
    with zmq.Context() as context:
        for address in (pub.replay, pub.snapshot):
            assert address is not None
            with context.socket(zmq.DEALER) as socket:
                socket.setsockopt(zmq.LINGER, 0)
                socket.connect(address)
                for frames in ([b""], [b"x" * 5, b"", b"y"], [b"", b"123"], [b"", b"\xff" * 8], [b""] * 9):
                    socket.send_multipart(frames)
                put(kv, WHO, 1)
                pub.flush(PATIENCE)
    reader = Reader(pub)
    reader.catch_up(pub)
    assert reader.replica.held == truth(kv, (8,))
    reader.sub.close()


def test_the_wire_is_vllms(opened: Open) -> None:
    """Topic, number and payload live; the same again on request, and then an end."""
    kv = BlockManager(8, 4)
    pub = opened(kv, topic="kv-events", node="n1")
    put(kv, WHO, 1)
    last = pub.flush(PATIENCE)
    with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        assert pub.replay is not None
        socket.connect(pub.replay)
        socket.send_multipart((b"", (0).to_bytes(8, "big")))
        for number in range(last + 1):
            assert socket.poll(int(PATIENCE * 1000))
            empty, topic, seq, payload = socket.recv_multipart()
            assert (empty, topic) == (b"", f"kv-events@n1@{pub.boot}".encode())
            assert int.from_bytes(seq, "big") == number
            decode(payload)
        frames: list[bytes] = []
        while not frames or frames[2] != b"\xff" * 8:  # heartbeats may have come meanwhile
            frames = socket.recv_multipart()
        assert frames == [b"", b"", b"\xff" * 8, b""]


def test_without_a_replay_or_snapshot_what_was_known_is_given_up(opened: Open) -> None:
    kv = BlockManager(8, 4)
    pub = opened(kv)
    reader = Reader(pub, Lossy, replay=None, snapshot=None)
    for name in range(60):
        put(kv, WHO, name)
        reader.catch_up(pub)
        assert set(reader.replica.held) <= set(truth(kv, (8,)))
    assert reader.sub.stats.cleared > 1
    reader.sub.close()


def test_a_snapshot_that_does_not_come_is_asked_for_again(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    kv = BlockManager(8, 4)
    pub = opened(kv, snapshot=None)
    now = [0.0]
    asked: list[str] = []

    def noted(address: str, request: bytes, **how: Any) -> Any:
        asked.append(address)
        return ask(address, request, **how)

    monkeypatch.setattr("tenure.events.subscriber.ask", noted)
    with zmq.Context() as context, context.socket(zmq.ROUTER) as mute:
        mute.setsockopt(zmq.LINGER, 0)
        mute.bind("tcp://127.0.0.1:0")
        address = mute.getsockopt_string(zmq.LAST_ENDPOINT)
        with Subscriber(pub.endpoint, snapshot=address, patience=0.05, clock=lambda: now[0]) as sub:
            put(kv, WHO, 1)
            pub.flush(PATIENCE)
            for _ in range(5):
                assert sub.receive(0.05) == []  # not told: it would not be the whole truth
            assert asked == [address]
            now[0] = 1.0
            assert sub.receive() == []
            assert asked == [address] * 2


def test_what_does_not_fit_is_refused(opened: Open) -> None:
    kv = BlockManager(8, 4)
    for settings in (
        {"endpoint": "tcp://nowhere"},
        {"endpoint": "smoke signals"},
        {"node": "a@b"},
        {"node": ""},
        {"topic": "a@b"},
        {"interval": 0},
        {"heartbeat": -1},
        {"keep": 0},
        {"hwm": 0},
        {"replay": "tcp://"},
    ):
        with pytest.raises(ConfigError):
            opened(kv, **settings)
    for wrong in ({"replay": "x"}, {"patience": 0}, {"hwm": 0}):
        with pytest.raises(ConfigError):
            Subscriber("tcp://127.0.0.1:1", **wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError):
        Subscriber("smoke signals")
    with Subscriber("tcp://127.0.0.1:1") as sub, pytest.raises(ConfigError):
        sub.receive(math.nan)
    with pytest.raises(TenureError, match="closed"):
        sub.receive()


def test_closing_publishes_what_is_left_and_can_be_done_twice(opened: Open) -> None:
    kv = BlockManager(8, 4)
    pub = opened(kv, interval=0.5)
    reader = Reader(pub)
    reader.catch_up(pub)
    kv.sequence(prompt(1), WHO).release()
    pub.close()
    pub.close()
    with pytest.raises(TenureError, match="closed"):
        pub.flush()

    def arrived() -> bool:
        for batch in reader.sub.receive(0.05):
            reader.replica.apply(batch.events)
        return bool(reader.replica.held)

    until(arrived)
    reader.sub.close()
    reader.sub.close()
