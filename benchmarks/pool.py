"""The pool on Valkey against its own client doing the same SETs and GETs, and against valkey-py at its best; lookups and epochs.
A real server on loopback; the same values and sizes, in turns; each figure is the median of the ratios of neighbours."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from benchmarks.ours import no_collection
from benchmarks.report import Row, save
from benchmarks.tiers import SIZES, Step, buffers, layout_of, record, seconds
from tenure.tiers import BlockLayout
from tenure.tiers.protocol import Address, Command, Landed, Late, Login, packed
from tenure.tiers.valkey import ValkeyTier
from tenure.tiers.wire import Wire
from tests.pool import servers

TOGETHER = 8 << 20
"""Bytes a call, as a node moves them."""
THREADS = 4
ROUNDS = 25
CHAIN = 2048
FEW, MANY = 10, 1_000_000


class Bare:
    """SETs and GETs of whole values on one connection, pipelined."""

    def __init__(self, port: int) -> None:
        self._wire = Wire(Address("127.0.0.1", port), Login(), time.monotonic() + 5)

    def put(self, names: list[bytes], values: list[memoryview]) -> None:
        end = time.monotonic() + 60
        commands = [
            Command(b"", (b"SET", name, Late(len(value), partial(tuple, [value]))))
            for name, value in zip(names, values, strict=True)
        ]
        self._wire.send(packed(commands), end)
        if any(self._wire.receive((), end) != b"OK" for _ in names):
            raise RuntimeError("a value was not set")

    def get(self, names: list[bytes], into: list[memoryview]) -> None:
        end = time.monotonic() + 60
        self._wire.send(packed([Command(b"", (b"GET", name)) for name in names]), end)
        if any(self._wire.receive((view,), end) != Landed(len(view)) for view in into):
            raise RuntimeError("a value did not come")


def valkey_py(port: int) -> Any | None:
    """valkey-py with the faster half of each of its two ways: libvalkey's parser, and the packer in Python that does not copy.
    None without libvalkey."""
    try:
        import libvalkey  # noqa: F401
    except ImportError:
        return None
    import valkey
    from valkey._parsers.libvalkey import _LibvalkeyParser
    from valkey.connection import Connection, ConnectionPool, PythonRespSerializer

    pool = ConnectionPool(Connection, host="127.0.0.1", port=port, parser_class=_LibvalkeyParser)
    connection = pool.get_connection("_")
    connection._command_packer = PythonRespSerializer(connection._buffer_cutoff, connection.encoder.encode)
    pool.release(connection)
    return valkey.Valkey(connection_pool=pool)


def alternately(bare: Step, ours: Step, clean: Callable[[], object]) -> tuple[float, dict[str, list[float]]]:
    """Speed of ours against bare, each round of one beside a round of the other; cleaned after each, which does not count."""
    times: dict[str, list[float]] = {"bare": [], "ours": []}
    with no_collection():
        for round_ in range(-2, ROUNDS):  # the first two warm up
            pair = [("bare", bare), ("ours", ours)]
            for name, step in pair if round_ % 2 else reversed(pair):
                took = seconds(step, round_)
                clean()
                if round_ >= 0:
                    times[name].append(took)
    return statistics.median(b / o for b, o in zip(times["bare"], times["ours"], strict=True)), times


class Mover:
    """A batch of blocks through the tier, under digests that are new at each put."""

    serial = itertools.count(1)

    def __init__(self, tier: ValkeyTier, frames: range, given: list[memoryview], taken: list[memoryview]) -> None:
        self._tier, self._frames, self._given, self._taken = tier, frames, given, taken
        self.renew()

    def renew(self) -> None:
        self._records = [record(self._tier.layout, next(self.serial)) for _ in self._frames]

    def put(self, round_: int) -> None:
        if self._tier.write(self._frames, self._given, self._records) != [None] * len(self._frames):
            raise RuntimeError("a block was not written")

    def get(self, round_: int) -> None:
        if self._tier.read(self._frames, self._records, self._taken) != [None] * len(self._frames):
            raise RuntimeError("a block was not read")


def block_rows(server: servers.Server) -> list[Row]:
    return [row for size, layers in SIZES.items() for row in _block_rows(server, size, layout_of(layers))]


def _block_rows(server: servers.Server, size: str, layout: BlockLayout) -> list[Row]:
    rows = []
    batch = TOGETHER // layout.nbytes
    names = [b"bare:%032d" % number for number in range(batch)]
    given, taken = buffers(layout, batch), buffers(layout, batch)
    bare, shelf = Bare(server.port), valkey_py(server.port)

    def bare_put(round_: int) -> None:
        bare.put(names, given)

    def bare_get(round_: int) -> None:
        bare.get(names, taken)

    def shelf_put(round_: int) -> None:
        pipeline = shelf.pipeline(transaction=False)
        for name, value in zip(names, given, strict=True):
            pipeline.set(name, value)
        pipeline.execute()

    def shelf_get(round_: int) -> None:
        pipeline = shelf.pipeline(transaction=False)
        for name in names:
            pipeline.get(name)
        for view, value in zip(taken, pipeline.execute(), strict=True):
            view[:] = value

    with ValkeyTier(layout, server.url, frames=batch, timeout=30) as tier:
        mover = Mover(tier, range(batch), given, taken)

        def flush() -> None:
            server.command("FLUSHALL", "SYNC")
            mover.renew()

        title = f"blocks of {size}, 1 connection: ours ÷"
        ratio, samples = alternately(bare_put, mover.put, flush)
        rows.append(Row(f"pool put, {title} the bare client, speed", ratio, (">=", 0.85), samples))
        if shelf is not None:
            ratio, samples = alternately(shelf_put, mover.put, flush)
            rows.append(Row(f"pool put, {title} valkey-py at its best, speed", ratio, None, samples))
        bare_put(0)
        mover.put(0)
        ratio, samples = alternately(bare_get, mover.get, lambda: None)
        rows.append(Row(f"pool get, {title} the bare client, speed", ratio, (">=", 0.85), samples))
        if shelf is not None:
            ratio, samples = alternately(shelf_get, mover.get, lambda: None)
            rows.append(Row(f"pool get, {title} valkey-py at its best, speed", ratio, None, samples))
    return rows


def connection_rows(server: servers.Server) -> list[Row]:
    """Threads with a connection each, ours against the bare client's."""
    layout = layout_of(SIZES["2 MiB"])
    batch = TOGETHER // layout.nbytes
    rows = []
    with (
        ValkeyTier(layout, server.url, frames=batch * THREADS, connections=THREADS, timeout=30) as tier,
        ThreadPoolExecutor(THREADS) as threads,
    ):
        bares = [Bare(server.port) for _ in range(THREADS)]
        names = [[b"bare:%032d" % (number * batch + n) for n in range(batch)] for number in range(THREADS)]
        sets = [(buffers(layout, batch), buffers(layout, batch)) for _ in range(THREADS)]
        movers = [Mover(tier, range(n * batch, (n + 1) * batch), *sets[n]) for n in range(THREADS)]

        def all_at_once(call: Callable[[int], None]) -> Step:
            return lambda _: list(threads.map(call, range(THREADS)))

        bare_put = all_at_once(lambda n: bares[n].put(names[n], sets[n][0]))
        bare_get = all_at_once(lambda n: bares[n].get(names[n], sets[n][1]))
        our_put, our_get = all_at_once(lambda n: movers[n].put(0)), all_at_once(lambda n: movers[n].get(0))
        title = f"blocks of 2 MiB, {THREADS} connections: ours ÷ the bare client, speed"

        def flush() -> None:
            server.command("FLUSHALL", "SYNC")
            for mover in movers:
                mover.renew()

        ratio, samples = alternately(bare_put, our_put, flush)
        rows.append(Row(f"pool put, {title}", ratio, (">=", 0.85), samples))
        bare_put(0)
        our_put(0)
        ratio, samples = alternately(bare_get, our_get, lambda: None)
        rows.append(Row(f"pool get, {title}", ratio, (">=", 0.85), samples))
    return rows


def lookup_rows(server: servers.Server) -> list[Row]:
    layout = layout_of(16)
    digests = [number.to_bytes(32, "little") for number in range(CHAIN)]
    rows = []
    with ValkeyTier(layout, server.url, timeout=30) as tier:
        head = tier._head(b"token", 300, layout.nbytes, float("inf")).encode()
        for digest in digests:
            server.command("SET", tier._keys.head(digest), head)
        look = tier.look(digests, [b"family"])
        if len(look.heads) != CHAIN:
            raise RuntimeError("the chain was not found")
        rows.append(Row(f"round trips of a lookup of {CHAIN} blocks that are there, with a family", look.trips, ("<=", 3)))
        missing = tier.look([bytes(31) + b"x"] * CHAIN, [b"family"])
        rows.append(Row(f"round trips of a lookup of {CHAIN} blocks that are not", missing.trips, ("<=", 1)))
    return rows


def epoch_rows(server: servers.Server, layout: BlockLayout) -> list[Row]:
    """A bump of one family in a pool of few keys and of very many."""
    times: dict[str, list[float]] = {}
    with ValkeyTier(layout, server.url, timeout=30) as tier:
        server.command("FLUSHALL")
        for name, count in (("few", FEW), ("many", MANY)):
            if count > FEW:
                server.command("DEBUG", "POPULATE", count, "key", 8)
            else:
                for number in range(count):
                    server.command("SET", f"key:{number}", "8 bytes!")
            for _ in range(50):
                tier.bump([b"family"])
            with no_collection():
                times[name] = [seconds(lambda _: tier.bump([b"family"]), 0) for _ in range(500)]
    ratio = statistics.median(times["many"]) / statistics.median(times["few"])
    return [Row(f"an epoch bump in a pool of {MANY:,} keys ÷ one of {FEW}, time", ratio, ("<=", 1.5), times)]


def run() -> None:
    with servers.server(enable_debug_command="yes") as server:
        rows = block_rows(server) + connection_rows(server)
        server.command("FLUSHALL")
        rows += lookup_rows(server) + epoch_rows(server, layout_of(16))
    save("pool", "The pool on Valkey", rows)
