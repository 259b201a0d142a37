"""The bulk of a pool in Mooncake Store: nodes in processes of their own, a real master, and all that can be taken from them."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from tenure.errors import ConfigError
from tenure.tiers.base import Outcome
from tenure.tiers.mooncake import MooncakePlane
from tenure.tiers.mooncake_process import LATE, Request, _done
from tests.pool import mooncakes, servers
from tests.pool.making import again, digests, head_key, in_time, keys, learn, pool, prefix, prefix_of, read, write
from tests.pool.mooncakes import Master, Node, helper
from tests.pool.servers import until

mooncakes.needed()
servers.needed()

MIB = 1 << 20
SEGMENT = 64 * MIB
PATIENCE = 20.0
Make = Callable[..., MooncakePlane]


@pytest.fixture(scope="module")
def master() -> Iterator[Master]:
    """One that nobody harms."""
    with mooncakes.master() as made:
        yield made


@pytest.fixture
def harmed() -> Iterator[Master]:
    """One for this test, which soon takes a node that has died for dead."""
    with mooncakes.master(mooncakes.SOON) as made:
        yield made


@pytest.fixture
def own_master() -> Iterator[Master]:
    """One for this test, which gives up no node that is silent for a while, and has none of other tests."""
    with mooncakes.master() as made:
        yield made


@pytest.fixture
def nodes(one: servers.Server) -> Iterator[list[Node]]:
    """Whatever is put in here is ended."""
    made: list[Node] = []
    yield made
    for node in made:
        node.end()


@pytest.fixture
def plane() -> Iterator[Make]:
    """Makes planes, and closes them."""
    made: list[MooncakePlane] = []

    def make(
        master: Master,
        segment_bytes: int = SEGMENT,
        timeout: float = 5.0,
        kind: type[MooncakePlane] = MooncakePlane,
        **settings: int,
    ) -> MooncakePlane:
        made.append(kind(master.address, segment_bytes=segment_bytes, timeout=timeout, **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def bulk(master: Master, plane: Make) -> MooncakePlane:
    return ready(plane(master))


def ready(made: MooncakePlane) -> MooncakePlane:
    """A plane whose client has met its master."""
    until("it takes payloads", lambda: put(made, name(), b"x") is None)
    return made


def name() -> bytes:
    return f"{prefix()}:payload".encode()


def payload(seed: int, size: int = 10_000) -> bytes:
    return np.random.default_rng(seed).bytes(size)


def put(where: MooncakePlane, what: bytes, *data: bytes) -> str | None:
    """One payload, of several buffers."""
    (outcome,) = where.put([what], [[memoryview(part) for part in data]])
    return outcome and outcome.kind


def get(where: MooncakePlane, what: bytes, *sizes: int) -> bytes | str:
    """One payload into buffers of these sizes; why it was not given."""
    into = [memoryview(bytearray(size)) for size in sizes]
    (outcome,) = where.get([what], [into])
    return b"".join(into) if outcome is None else outcome.kind


# -- the plane


def test_a_payload_of_several_buffers_is_read_into_several_others(bulk: MooncakePlane, master: Master, plane: Make) -> None:
    what, data = name(), payload(1)
    assert put(bulk, what, data[:100], data[100:101], data[101:]) is None
    other = plane(master, segment_bytes=0)
    until("it is read", lambda: get(other, what, 9_000, 1_000) == data)  # from another process's memory
    assert get(bulk, what, 10_000) == data


def test_what_is_not_there_is_empty_and_what_is_of_another_length_torn(bulk: MooncakePlane) -> None:
    what, data = name(), payload(2)
    assert get(bulk, what, 10_000) == "empty"
    assert put(bulk, what, data) is None
    assert [get(bulk, what, size) for size in (9_999, 10_001, 20_000)] == ["torn"] * 3
    assert get(bulk, what, 10_000) == data


def test_each_payload_of_a_call_has_an_outcome_of_its_own(bulk: MooncakePlane) -> None:
    names = [name() for _ in range(600)]  # more than go into one request
    data = [payload(n, 1_000 + n) for n in range(600)]
    assert bulk.put(names[::2], [[memoryview(each)] for each in data[::2]]) == [None] * 300
    into = [[memoryview(bytearray(len(each)))] for each in data]
    outcomes = bulk.get(names, into)
    assert [outcome and outcome.kind for outcome in outcomes] == [None, "empty"] * 300
    assert all(bytes(parts[0]) == each for parts, each in zip(into[::2], data[::2], strict=True))
    assert not any(any(parts[0]) for parts in into[1::2])


def test_one_payload_may_be_read_several_times_in_one_call(bulk: MooncakePlane) -> None:
    names, data = [name(), name()], [payload(1), payload(2)]
    assert bulk.put(names, [[memoryview(each)] for each in data]) == [None, None]
    into = [[memoryview(bytearray(10_000))] for _ in range(5)]
    assert bulk.get([names[n] for n in (0, 0, 1, 0, 1)], into) == [None] * 5
    assert [bytes(parts[0]) for parts in into] == [data[n] for n in (0, 0, 1, 0, 1)]


def test_a_payload_larger_than_the_buffers_is_refused_and_the_others_are_not(master: Master, plane: Make) -> None:
    small = ready(plane(master, buffer_bytes=1 << 16))
    names, sizes = [name() for _ in range(4)], [40_000, (1 << 16) + 1, 1 << 16, 40_000]
    data = [payload(n, size) for n, size in enumerate(sizes)]
    outcomes = small.put(names, [[memoryview(each)] for each in data])
    assert [outcome and outcome.kind for outcome in outcomes] == [None, "full", None, None]
    assert [get(small, what, size) for what, size in zip(names, sizes, strict=True)] == [data[0], "full", data[2], data[3]]


def test_what_is_dropped_goes_also_when_it_was_read_just_now(bulk: MooncakePlane) -> None:
    what, kept = name(), name()
    assert [put(bulk, each, payload(3)) for each in (what, kept)] == [None, None]
    assert get(bulk, what, 10_000) == payload(3)
    bulk.drop([what, name()])
    until("it is gone", lambda: get(bulk, what, 10_000) == "empty")
    assert get(bulk, kept, 10_000) == payload(3)


def test_memory_that_is_full_is_an_outcome(harmed: Master, plane: Make) -> None:
    tiny = plane(harmed, segment_bytes=16 * MIB, buffer_bytes=32 * MIB)
    until("it takes payloads", lambda: put(tiny, name(), payload(4, 15 * MIB)) is None)
    assert put(tiny, name(), payload(4, 17 * MIB)) == "full"  # whatever Mooncake evicts
    lends_nothing = plane(harmed, segment_bytes=0)
    tiny.close()
    until("it is known", lambda: put(lends_nothing, name(), payload(4)) == "full")  # nobody lends any


def test_threads_use_one_plane(bulk: MooncakePlane) -> None:
    wrong: list[object] = []

    def work(seed: int) -> None:
        for n in range(20):
            what, data = name(), payload(seed * 100 + n, 50_000)
            if put(bulk, what, data) is not None or get(bulk, what, 50_000) != data:
                wrong.append((seed, n))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]  # twice as many as calls at a time
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_closed_plane_says_so(master: Master, plane: Make) -> None:
    made = ready(plane(master))
    what = name()
    assert put(made, what, payload(5)) is None
    made.close()
    made.close()
    assert put(made, what, payload(5)) == "closed"
    assert get(made, what, 10_000) == "closed"
    made.drop([what])
    other = plane(master, segment_bytes=0)
    assert get(other, what, 10_000) == "empty"  # the memory went with the node, and the master knows it at once


@pytest.mark.parametrize(
    "settings",
    [
        {"master": "nowhere"},
        {"master": ":50051"},
        {"master": "host:0"},
        {"master": 50051},
        {"protocol": "udp"},
        {"segment_bytes": -1},
        {"segment_bytes": 1.5},
        {"timeout": 0},
        {"calls": 0},
        {"buffer_bytes": 100},
        {"hostname": ""},
        {"devices": None},
    ],
)
def test_a_bad_setting_is_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        MooncakePlane(**({"master": "127.0.0.1:1"} | settings))  # type: ignore[arg-type]


def test_a_client_that_cannot_be_loaded_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mooncake").mkdir()
    (tmp_path / "mooncake" / "__init__.py").write_text("raise ImportError('libibverbs.so.1: cannot open shared object file')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"libibverbs\.so\.1.*apt-get install libibverbs1"):
        MooncakePlane("127.0.0.1:1")


class Slow:
    """In the place of Mooncake's client: its puts come to their end when the call's time is over."""

    def __init__(self, takes: float) -> None:
        self.takes = takes
        self.removed: list[str] = []

    def batch_put_from(self, names: list[str], *_: object) -> list[int]:
        time.sleep(self.takes)
        return [0] * len(names)

    def batch_remove(self, names: list[str], force: bool) -> None:
        assert force
        self.removed += names


@pytest.mark.parametrize("late", [True, False])
def test_a_put_that_nobody_waits_for_any_more_is_taken_back(late: bool) -> None:
    store = Slow(0.02 if late else 0.0)
    request = Request("put", ["a", "b"], [1, 2], time.monotonic() + (0.01 if late else PATIENCE))
    assert _done(store, None, request, 0) == ([LATE] * 2 if late else [0, 0])
    assert store.removed == (["a", "b"] if late else [])


# -- what is away, slow or comes back empty


def test_a_master_that_is_away_at_the_start_is_used_when_it_comes(plane: Make) -> None:
    later = Master()
    made = plane(later, timeout=0.5)
    assert in_time(lambda: put(made, name(), payload(6)), PATIENCE) == "io"
    assert in_time(lambda: get(made, name(), 10), PATIENCE) == "io"
    try:
        later.start()
        what = name()
        until("it is used", lambda: put(made, what, payload(6)) is None)
        assert get(made, what, 10_000) == payload(6)
    finally:
        later.kill()


def test_a_master_that_was_stopped_makes_outcomes_in_time_and_keeps_no_thread(own_master: Master, plane: Make) -> None:
    made = ready(plane(own_master, timeout=1.0, calls=2))
    what, lost = name(), name()
    assert put(made, what, payload(7)) is None
    own_master.pause()
    assert [in_time(lambda: put(made, lost, payload(8)), PATIENCE) for _ in range(5)] == ["io"] * 5
    assert in_time(lambda: get(made, what, 10_000), PATIENCE) == "io"
    own_master.resume()
    until("it is used again", lambda: get(made, what, 10_000) == payload(7))
    assert get(made, lost, 10_000) == "empty"


def test_a_plane_whose_process_was_stopped_throws_away_what_comes_late(master: Master, plane: Make) -> None:
    made = ready(plane(master, timeout=1.0, calls=2))
    what, lost = name(), [name() for _ in range(4)]
    assert put(made, what, payload(9)) is None
    mooncakes.stop(helper(made))
    assert [in_time(lambda n=n: put(made, n, payload(10)), PATIENCE) for n in lost] == ["io"] * 4  # type: ignore[misc]
    os.kill(helper(made), signal.SIGCONT)
    until("it is used again", lambda: get(made, what, 10_000) == payload(9))
    assert [get(made, each, 10_000) for each in lost] == ["empty"] * 4


def test_a_plane_whose_process_was_killed_begins_anew(harmed: Master, caplog: pytest.LogCaptureFixture, plane: Make) -> None:
    made = ready(plane(harmed))
    what = name()
    assert put(made, what, payload(11)) is None
    before = helper(made)
    os.kill(before, signal.SIGKILL)
    until("that is seen", lambda: put(made, name(), payload(11)) == "io")
    until("there is another", lambda: put(made, name(), payload(11)) is None)
    assert helper(made) != before
    until("the master has seen it", lambda: get(made, what, 10_000) == "empty")
    assert len(caplog.records) == 1, "it is said once"


def test_a_master_that_was_killed_and_comes_back_empty(one: servers.Server, harmed: Master, plane: Make) -> None:
    with pool(one.url, data=ready(plane(harmed))) as tier:
        assert write(tier, 1, 2) == [None, None]
        assert read(tier, 1, 2) == [None, None]
        harmed.kill()
        assert in_time(lambda: read(tier, 1, 2), PATIENCE) == ["io", "io"]
        assert in_time(lambda: write(tier, 3), PATIENCE) == ["io"]
        assert learn(tier, 1, 2) == 2  # the heads stay: who is away may come back
        harmed.start()
        until("it knows of nothing", lambda: read(tier, 1, 2) == ["empty", "empty"])
        assert learn(tier, 1, 2) == 0  # and so what it lost can be written again
        until("it has memory again", lambda: write(tier, 1, 2) == [None, None])
        assert read(tier, 1, 2) == [None, None]


# -- nodes


def readable(node: Node, *blocks: int) -> None:
    """Waits until a node can read them: where Mooncake's client does not reach another one at first, that is a miss, once."""
    until(f"blocks {blocks} can be read", lambda: node.read(*blocks) == [None] * len(blocks))


def test_what_one_node_writes_another_reads(one: servers.Server, master: Master, nodes: list[Node]) -> None:
    where = prefix()
    nodes += [Node(one.url, where, master.address, SEGMENT), Node(one.url, where, master.address, 0)]
    writer, reader = nodes
    assert writer.write(*range(20)) == [None] * 20
    readable(reader, *range(20))  # the reader lends no memory: they came from the writer's
    assert reader.read(20, 5) == ["unknown", None]
    with pool(one.url, prefix=where) as without:  # the heads alone are in Valkey
        assert keys(one, without) == sorted(head_key(without, n).decode() for n in range(20))
        assert learn(without, 5) == 1
        assert read(without, 5) == ["foreign"]


def test_a_killed_node_takes_its_payloads_with_it(one: servers.Server, harmed: Master, nodes: list[Node]) -> None:
    where, master = prefix(), harmed
    nodes += [Node(one.url, where, master.address, SEGMENT), Node(one.url, where, master.address, 0)]
    owner, reader = nodes
    assert owner.write(1, 2, 3) == [None] * 3
    readable(reader, 1, 2)
    owner.kill_all()
    kinds = reader.read(1, 2, 3)  # what is read at all is right: the node checks it
    assert set(kinds) <= {"io", "empty"}
    until("the master has seen it", lambda: set(reader.read(1, 2, 3)) <= {"empty", "unknown"})
    assert reader.read(1, 2, 3) == ["unknown"] * 3
    nodes.append(Node(one.url, where, master.address, SEGMENT))
    until("another takes over", lambda: nodes[2].write(1, 2, 3) == [None] * 3)
    readable(reader, 1, 2, 3)


def test_the_helper_of_a_killed_node_leaves_by_itself(one: servers.Server, master: Master, nodes: list[Node]) -> None:
    nodes.append(Node(one.url, prefix(), master.address, SEGMENT))
    assert nodes[0].write(1) == [None]
    nodes[0].kill()
    until("its helper has ended", lambda: not Path(f"/proc/{nodes[0].helper}").exists())


# -- what is proven, what is dropped


class Between(MooncakePlane):
    """After each put something happens."""

    def then(self, names: Sequence[bytes]) -> None:
        """What that is."""

    def put(self, names: Sequence[bytes], payloads: Sequence[Sequence[memoryview]]) -> list[Outcome]:
        outcomes = super().put(names, payloads)
        self.names = list(names)
        self.sizes = [sum(map(len, parts)) for parts in payloads]
        self.then(names)
        return outcomes


@pytest.mark.parametrize("taken", [True, False])
def test_a_payload_whose_commit_was_refused_is_removed(one: servers.Server, master: Master, plane: Make, taken: bool) -> None:
    data = ready(plane(master, kind=Between))
    with pool(one.url, data=data) as tier:
        if taken:
            data.then = lambda names: one.command("DEL", head_key(tier, 1))  # type: ignore[method-assign]
        assert write(tier, 1) == (["late"] if taken else [None])
        if taken:
            until("it is removed", lambda: get(data, data.names[0], data.sizes[0]) == "empty")
        else:  # the control: a payload whose commit was not refused stays
            assert len(get(data, data.names[0], data.sizes[0])) == data.sizes[0]


@pytest.mark.parametrize("at", [None, 0, -1])
def test_damaged_bytes_are_a_miss_and_can_be_written_again(
    one: servers.Server, own_master: Master, plane: Make, at: int | None
) -> None:
    data, far = ready(plane(own_master, kind=Between)), plane(own_master, segment_bytes=0)
    with pool(one.url, data=data) as tier, again(tier, data=far) as reader:
        assert write(tier, 1) == [None]
        what, size = data.names[0], data.sizes[0]
        there = get(data, what, size)
        assert isinstance(there, bytes)
        until("the reader reaches it", lambda: get(far, what, size) == there)
        changed = bytearray(there)
        if at is not None:  # of the envelope, of the payload; without a change it is the control
            changed[at] ^= 1
        data.drop([what])
        until("it is gone", lambda: get(data, what, size) == "empty")
        assert put(data, what, changed) is None
        assert learn(reader, 1) == 1
        assert read(reader, 1) == [None if at is None else "torn" if at == 0 else "checksum"]
        assert len(reader.look(digests(1), []).heads) == (at is None)
        assert write(reader, 1) == [None]
        assert read(reader, 1) == [None]
        assert prefix_of(reader) == prefix_of(tier)
