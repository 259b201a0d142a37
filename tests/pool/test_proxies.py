"""The proxy passes everything on, and holds, delays or cuts what it is told to, for all or for one."""

from __future__ import annotations

import contextlib
import hashlib
import select
import socket
import threading
from collections.abc import Iterator

import pytest

from tests.pool.proxies import CUT, DROP, NO_ANSWERS, NO_QUESTIONS, PASS, Proxy, delayed

SOON = 10.0
"""Seconds within which what is due arrives, on the slowest machine."""
NEVER = 0.1
"""Seconds for which nothing arrives that must not."""


class Upper:
    """A server that sends back what it gets in upper case, and keeps it."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.any = threading.Condition()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listening.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                end, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(end,), daemon=True).start()

    def _serve(self, end: socket.socket) -> None:
        with end:
            try:
                while data := end.recv(1 << 16):
                    with self.any:
                        self.got.append(data)
                        self.any.notify_all()
                    end.sendall(data.upper())
            except OSError:
                pass

    def has(self, data: bytes, within: float = SOON) -> bool:
        with self.any:
            return self.any.wait_for(lambda: data in b"".join(self.got), within)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()


@pytest.fixture
def server() -> Iterator[Upper]:
    upper = Upper()
    yield upper
    upper.close()


@pytest.fixture
def proxy(server: Upper) -> Iterator[Proxy]:
    with Proxy(server.address) as made:
        yield made


def connect(proxy: Proxy) -> socket.socket:
    end = socket.create_connection(("127.0.0.1", proxy.port), SOON)
    end.settimeout(SOON)
    return end


def silent(end: socket.socket) -> bool:
    return not select.select([end], [], [], NEVER)[0]


def ask(end: socket.socket, data: bytes) -> bytes:
    end.sendall(data)
    return end.recv(len(data))


def ask_once(proxy: Proxy) -> None:
    with connect(proxy) as end:
        if not ask(end, b"a"):
            raise ConnectionAbortedError


def test_bytes_pass_whole_and_in_order_both_ways(proxy: Proxy) -> None:
    sent = b"".join(hashlib.sha256(b"%d" % i).hexdigest().encode() for i in range(1 << 16))  # 4 MiB
    with connect(proxy) as end:

        def send() -> None:
            end.sendall(sent)
            end.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        got = b"".join(iter(lambda: end.recv(1 << 16), b""))
        sender.join()
    assert got == sent.upper()


@pytest.mark.parametrize("delay", [0.0, 0.01])
def test_the_end_of_one_direction_passes_after_all_before_it(proxy: Proxy, delay: float) -> None:
    proxy.set(delayed(delay))
    with connect(proxy) as end:
        end.sendall(b"last")
        end.shutdown(socket.SHUT_WR)
        assert b"".join(iter(lambda: end.recv(64), b"")) == b"LAST"


def test_drop_holds_everything_until_it_passes_again(proxy: Proxy, server: Upper) -> None:
    with connect(proxy) as end, connect(proxy) as second:
        assert ask(end, b"a") == b"A"
        proxy.set(DROP)
        end.sendall(b"b")
        with connect(proxy) as late:  # looks open to the client
            late.sendall(b"c")
            assert silent(end)
            assert silent(late)
            assert b"".join(server.got) == b"a"
            proxy.set(PASS)
            assert end.recv(1) == b"B"
            assert late.recv(1) == b"C"
        assert ask(second, b"d") == b"D"


def test_cut_resets_what_is_open_and_what_comes(proxy: Proxy) -> None:
    with connect(proxy) as end:
        assert ask(end, b"a") == b"A"
        proxy.set(CUT)
        with pytest.raises(ConnectionResetError):
            end.recv(1)
    with pytest.raises(ConnectionError):
        ask_once(proxy)
    proxy.set(PASS)
    with connect(proxy) as end:
        assert ask(end, b"c") == b"C"


def test_cut_reaches_what_is_held(proxy: Proxy) -> None:
    with connect(proxy) as end:
        assert ask(end, b"a") == b"A"
        proxy.set(DROP)
        end.sendall(b"b")
        assert silent(end)
        proxy.set(CUT)
        with pytest.raises(ConnectionResetError):
            end.recv(1)
    assert proxy.connections == []


def test_half_cut_does_what_is_asked_and_never_says_so(proxy: Proxy, server: Upper) -> None:
    proxy.set(NO_ANSWERS)
    with connect(proxy) as end:
        end.sendall(b"a")
        assert server.has(b"a")
        assert silent(end)
        proxy.set(PASS)
        assert end.recv(1) == b"A"


def test_half_cut_the_other_way_asks_nothing(proxy: Proxy, server: Upper) -> None:
    with connect(proxy) as end:
        assert ask(end, b"a") == b"A"
        proxy.set(NO_QUESTIONS)
        end.sendall(b"b")
        assert silent(end)
        assert b"".join(server.got) == b"a"
        proxy.set(PASS)
        assert end.recv(1) == b"B"


def test_delay_holds_each_byte_and_ends_when_it_is_taken_back(proxy: Proxy, server: Upper) -> None:
    proxy.set(delayed(3600))
    with connect(proxy) as end:
        end.sendall(b"a")
        assert silent(end)
        assert not server.got
        proxy.set(delayed(0.01))
        assert end.recv(1) == b"A"


def test_one_connection_can_be_treated_alone(proxy: Proxy) -> None:
    with connect(proxy) as first, connect(proxy) as second:
        assert ask(first, b"a") == b"A"
        assert ask(second, b"b") == b"B"
        one, two = proxy.connections
        proxy.set_one(one, DROP)
        first.sendall(b"c")
        assert silent(first)
        assert ask(second, b"d") == b"D"
        proxy.set_one(two, CUT)
        with pytest.raises(ConnectionResetError):
            second.recv(1)
        proxy.set_one(one, PASS)
        assert first.recv(1) == b"C"
    with pytest.raises(KeyError):
        proxy.set_one(two, PASS)


def test_one_source_can_be_treated_alone(proxy: Proxy) -> None:
    try:
        other = socket.create_connection(("127.0.0.1", proxy.port), SOON, ("127.0.0.9", 0))
    except OSError:
        pytest.skip("this machine has one loopback address")
    with connect(proxy) as end, other:
        other.settimeout(SOON)
        assert ask(other, b"a") == b"A"
        proxy.set(DROP, source="127.0.0.9")
        other.sendall(b"b")
        assert silent(other)
        assert ask(end, b"c") == b"C"
        proxy.set(PASS, source="127.0.0.9")
        assert other.recv(1) == b"B"


def test_the_servers_end_reaches_the_client(proxy: Proxy, server: Upper) -> None:
    server.close()
    with pytest.raises(ConnectionError):
        ask_once(proxy)


def test_a_target_may_come_later() -> None:
    upper = Upper()
    with Proxy() as proxy:
        proxy.target = upper.address
        with connect(proxy) as end:
            assert ask(end, b"a") == b"A"
    upper.close()


def test_close_resets_what_is_open(proxy: Proxy) -> None:
    with connect(proxy) as end:
        assert ask(end, b"a") == b"A"
        proxy.close()
        proxy.close()
        with pytest.raises(ConnectionResetError):
            end.recv(1)
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
