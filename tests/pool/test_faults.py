"""Servers that are away, slow, full, empty or strange: each call has an outcome of the right kind, in time, and goes on after."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest

from tenure.errors import ConfigError
from tenure.tiers.valkey import ValkeyTier
from tests.pool import servers
from tests.pool.making import KEYS, asked, digests, hurried, in_time, keys, learn, pool, prefix_of, read, write
from tests.pool.proxy import Proxy
from tests.tiers.making import PAGED

PATIENCE = 20.0


@pytest.fixture
def proxy(one: servers.Server) -> Iterator[Proxy]:
    made = Proxy(one.port)
    yield made
    made.close()


def everything(tier: ValkeyTier) -> dict[str, Callable[[], object]]:
    """Every call that goes to the server, and its answer when that is away."""
    return {
        "write": lambda: write(tier, 5, 6),
        "read": lambda: read(tier, 1, 2),
        "look": lambda: asked(lambda: tier.look(digests(1, 2), [b"family"])),
        "extend": lambda: asked(lambda: tier.extend(digests(1), 10)),
        "bump": lambda: asked(lambda: tier.bump([b"family"])),
        "ensure": lambda: asked(lambda: tier.ensure([b"family"])),
        "read_families": lambda: asked(lambda: tier.read_families([b"family"])),
        "raise_families": lambda: asked(lambda: tier.raise_families({b"family": 1})),
        "get": lambda: asked(lambda: tier.get("name")),
        "put": lambda: asked(lambda: tier.put("name", b"value")),
        "swap": lambda: asked(lambda: tier.swap("name", None, b"value")),
        "delete": lambda: asked(lambda: tier.delete("name")),
        "entries": lambda: asked(lambda: tier.entries()),
    }


def all_io(tier: ValkeyTier, *but: str) -> None:
    for name, call in everything(tier).items():
        if name in but:
            continue
        assert in_time(call, PATIENCE) in ("io", ["io", "io"]), name


def test_a_pool_that_is_away_at_the_start_is_used_when_it_comes() -> None:
    port = servers.free_port()
    with pool(f"valkey://127.0.0.1:{port}") as tier:
        assert write(tier, 1, 2) == ["io", "io"]
        assert asked(lambda: tier.look(digests(1), [])) == "io"
        with servers.server(port=port):
            assert write(tier, 1, 2) == [None, None]
            assert read(tier, 1, 2) == [None, None]


def test_a_cluster_that_is_away_at_the_start_is_no_error() -> None:
    with pool(f"valkey+cluster://127.0.0.1:{servers.free_port()},127.0.0.1:{servers.free_port()}") as tier:
        assert write(tier, 1, 2) == ["io", "io"]
        assert asked(lambda: tier.look(digests(1), [b"family"])) == "io"


def test_a_server_that_was_killed(own: servers.Server, caplog: pytest.LogCaptureFixture) -> None:
    with pool(own.url) as tier, caplog.at_level(logging.WARNING, "tenure"):
        assert write(tier, 1, 2) == [None, None]
        own.kill()
        all_io(tier)
        assert len(caplog.records) == 1, "it is said once"
        own.start()
        assert read(tier, 1, 2) == ["empty", "empty"]  # restarted empty
        assert write(tier, 1, 2) == [None, None]
        assert read(tier, 1, 2) == [None, None]


def test_a_server_that_was_stopped_costs_no_more_than_its_timeout(own: servers.Server) -> None:
    with pool(own.url) as tier:
        assert write(tier, 1, 2) == [None, None]
        own.pause()
        with hurried(tier, 0.2):
            all_io(tier)
        own.resume()
        servers.until("it is back", lambda: read(tier, 1, 2) == [None, None])


def test_a_stopped_server_costs_one_timeout_whatever_the_call_moves(own: servers.Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenure.tiers.pool.TOGETHER", PAGED.nbytes)  # each block is a trip of its own
    with pool(own.url) as tier:
        frames = range(64)
        assert write(tier, *frames) == [None] * 64
        own.pause()
        before = tier.claims.trips
        with hurried(tier, 0.3):
            assert in_time(lambda: read(tier, *frames), PATIENCE) == ["io"] * 64
            assert tier.claims.trips == before + 1
            assert in_time(lambda: write(tier, *frames), PATIENCE) == ["io"] * 64
            assert tier.claims.trips == before + 2


@pytest.mark.parametrize("what", ["cut", "stall", "trickle"])
@pytest.mark.parametrize("after", [0, 1, 10, 400, 4000, 15000])
def test_a_read_that_breaks_at_any_byte(proxy: Proxy, what: str, after: int) -> None:
    with pool(proxy.url) as tier:
        assert write(tier, 1, 2) == [None, None]
        with pool(proxy.url, prefix=prefix_of(tier)) as reader:
            assert learn(reader, 1, 2) == 2
            proxy.fail("down", after, what)
            with hurried(reader, 0.3):
                kinds = in_time(lambda: read(reader, 1, 2), PATIENCE)
            assert kinds[1] == "io"
            assert kinds[0] in (None, "io")
            assert read(reader, 1, 2) == [None, None]


@pytest.mark.parametrize("what", ["cut", "stall", "trickle"])
@pytest.mark.parametrize("after", [0, 1, 10, 400, 4000, 15000])
def test_a_write_that_breaks_at_any_byte_leaves_nothing_that_counts(
    one: servers.Server, proxy: Proxy, what: str, after: int
) -> None:
    claim = 5.0 if after > PAGED.nbytes else 0.5  # where the first may be committed, its claim outlasts a busy machine
    with pool(proxy.url, timeout=0.3, claim=claim) as tier:
        proxy.fail("up", after, what)
        kinds = in_time(lambda: write(tier, 1, 2), PATIENCE)
        assert kinds[1] == "io"
        assert kinds[0] in (None, "io")
        with pool(one.url, prefix=prefix_of(tier)) as other:  # what its claims held is free again, without anybody's sweep
            servers.until("written by another", lambda: write(other, 1, 2) == [None, None])
            assert read(other, 1, 2) == [None, None]
            servers.until("nothing is left of it", lambda: len(keys(one, tier)) == 2 * KEYS)


def test_the_control_without_a_fault_the_proxy_carries_all(proxy: Proxy) -> None:
    with pool(proxy.url) as tier:
        assert write(tier, 1, 2) == [None, None]
        assert read(tier, 1, 2) == [None, None]


def test_a_full_pool_says_so_and_keeps_no_halves() -> None:
    with servers.server(maxmemory="6mb", maxmemory_policy="noeviction") as small, pool(small.url, frames=4096) as tier:
        kinds = write(tier, *range(1000))
        assert set(kinds) == {None, "full"}
        done = [frame for frame, kind in enumerate(kinds) if kind is None]
        assert read(tier, *done) == [None] * len(done)
        assert len(keys(small, tier)) == KEYS * len(done), "nothing but whole blocks"
        assert tier.bump([b"family"]), "an invalidation works in a full pool"
        assert asked(lambda: tier.put("name", bytes(1000))) is None, "nodes and rollouts can be told of too"


def test_a_pool_that_evicts_gives_what_it_has_and_keeps_its_families() -> None:
    with servers.server(maxmemory="6mb", maxmemory_policy="volatile-lru") as small, pool(small.url, frames=4096) as tier:
        (value,) = tier.bump([b"family"])
        for start in range(0, 1000, 50):
            assert set(write(tier, *range(start, start + 50))) <= {None, "full", "late"}
        kinds = read(tier, *range(1000))
        assert set(kinds) <= {None, "empty", "torn"}
        assert 0 < kinds.count(None) < 1000
        assert tier.read_families([b"family"]) == [value]
        torn = [frame for frame, kind in enumerate(kinds) if kind == "torn"]
        assert all(tier.look(digests(frame), []).heads == [] for frame in torn), "what is broken does not stand in the way"


@pytest.mark.parametrize("password", [None, "wrong"])
def test_a_wrong_password_is_an_outcome_and_in_the_log_once(password: str | None, caplog: pytest.LogCaptureFixture) -> None:
    with servers.server(requirepass="right") as locked, caplog.at_level(logging.WARNING, "tenure"):
        with pool(locked.url, password=password) as tier:
            all_io(tier, "read")  # nothing is known that could be read
            assert [("refuses the login" in entry.getMessage()) for entry in caplog.records] == [True]
            assert "wrong" not in caplog.records[0].getMessage()
        for url in (locked.url, locked.url.replace("//", "//default:right@"), locked.url.replace("//", "//:right@")):
            with pool(url, password="right" if "@" not in url else None) as tier:
                assert write(tier, 1) == [None]


def test_a_server_that_is_no_valkey(one: servers.Server) -> None:
    """Whatever it says, it is an outcome."""
    import socket
    import threading

    says = iter(
        [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"$-5\r\n", b"*3\r\n:1\r\n", b"$99999999999\r\n", b":x\r\n", b"x" * 100000, b""]
    )
    with socket.create_server(("127.0.0.1", 0)) as door:

        def serve() -> None:
            for answer in says:
                link, _ = door.accept()
                link.recv(100)
                link.sendall(answer)
                link.close()

        threading.Thread(target=serve, daemon=True).start()
        with pool(f"valkey://127.0.0.1:{door.getsockname()[1]}", timeout=1.0) as tier:
            for _ in range(7):
                assert asked(lambda: tier.get("name")) in ("io", None)


@pytest.mark.parametrize(
    "settings",
    [
        {"url": "http://127.0.0.1:1"},
        {"url": "valkey://"},
        {"url": "valkey://host:port"},
        {"url": "valkey://a:1,b:2"},
        {"url": "valkey+cluster://a:1/3"},
        {"url": 7},
        {"prefix": "a b"},
        {"prefix": "{x}"},
        {"prefix": ""},
        {"claimed": "maybe"},
        {"claim": 0},
        {"ttl": -1},
        {"chunk_bytes": 1},
        {"connections": 0},
        {"timeout": 0},
        {"frames": 0},
        {"key": b"short"},
        {"owner": "two words"},
        {"ca": "/nowhere", "url": "valkeys://127.0.0.1:1"},
    ],
    ids=str,
)
def test_bad_settings(settings: dict[str, object]) -> None:
    given: dict[str, object] = {"url": "valkey://127.0.0.1:1"} | settings
    with pytest.raises(ConfigError) as caught:
        ValkeyTier(PAGED, **given)  # type: ignore[arg-type]
    assert next(iter(settings)) in str(caught.value)


def test_a_secret_in_a_bad_url_is_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        pool("valkey://user:secret@host:port")
    assert "secret" not in str(caught.value)


def test_bad_arguments(one: servers.Server) -> None:
    with pool(one.url) as tier:
        for call in (
            lambda: tier.look([b"short"], []),
            lambda: tier.look([], ["text"]),  # type: ignore[list-item]
            lambda: tier.look([], [], wait=-1),
            lambda: tier.extend(digests(1), -1),
            lambda: tier.raise_families({b"family": 1 << 53}),
            lambda: tier.bump([b"family"], replicas=-1),
            lambda: tier.put("", b""),
            lambda: tier.put("name", "text"),  # type: ignore[arg-type]
            lambda: tier.put("name", b"", ttl=0),
            lambda: tier.know(64, None, None),  # type: ignore[arg-type]
        ):
            with pytest.raises(ConfigError):
                call()
        assert keys(one, tier) == []
        tier.close()
        assert asked(lambda: tier.get("name")) == "closed"
