"""What a plan for a pool needs to know of this machine: memory, and processor time for each unit of work.
Run as `python -m benchmarks.costs`; inputs of a plan, not results: another machine has others. Needs tenure[valkey,events]."""

from __future__ import annotations

import hashlib
import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from benchmarks.report import RESULTS, machine
from tenure import Identity
from tenure.cluster.epochs import families_of
from tenure.tiers import BlockLayout, Record
from tenure.tiers import valkey_scripts as scripts
from tenure.tiers.codec import Raw
from tenure.tiers.heads import Claim, Get, Head, Keys, Put
from tenure.tiers.protocol import Address, Command, Login, Refused
from tenure.tiers.record import pack, packed_bytes
from tenure.tiers.valkey_chunks import reading, writing
from tenure.tiers.valkey_client import Client
from tenure.tiers.valkey_entries import script
from tests.pool.servers import Server, server, until

SAVED = RESULTS / "plan" / "costs.json"
ROUNDS = 7
ENTRIES = 100_000
BATCH = 128
CHUNK = 1 << 20
LAYOUT = BlockLayout.of("bf16", 16, layers=32, heads=8, head_size=128)
"""Of an 8B model: 2 MiB a block."""
WHO = Identity(model="llama-3.1-8b", weights="0" * 64, tenant="acme")
KEYS = Keys("tenure", LAYOUT, Raw())
FAMILIES = [KEYS.family(family) for family in families_of(WHO)]
OWNER = b"node-17:4242"
HOUR = 3_600_000

Units = dict[str, dict[str, Any]]


def unit(what: str, of: str, values: Sequence[float]) -> dict[str, Any]:
    """A median with its spread. Less than nothing, a difference of two measurements, counts as nothing."""
    values = [max(0.0, value) for value in values]
    return {"what": what, "unit": of, "value": statistics.median(values), "least": min(values), "most": max(values)}


def digest(number: int) -> bytes:
    return hashlib.blake2b(b"%d" % number, digest_size=32).digest()


def token(number: int) -> bytes:
    return b"0123456789abcdef.1092.%x" % number


def put(number: int, payload: memoryview, chunk: int) -> Put:
    """A block that was claimed before; chunk: 0 when its payload lies elsewhere."""
    record = Record(WHO.namespace, digest(number), bytes(32), 0, bytes(64), LAYOUT)
    head = Head(token(number), packed_bytes(record), len(payload), chunk)
    return Put(record.digest, head, payload, lambda: pack(record, Raw().id, payload))


def writing_of(one: Put, ttl_ms: int = 60_000) -> list[Command]:
    return writing(KEYS, one, OWNER, 60_000, ttl_ms)


def reading_of(one: Put) -> list[Command]:
    """As the tier asks for a block, its bytes into memory of their own."""
    head = one.head
    return reading(KEYS, Get(one.digest, head, memoryview(bytearray(head.envelope)), memoryview(bytearray(head.payload))))


def number_of(one: Put) -> int:
    return int(one.head.token.rpartition(b".")[2], 16)


def command(*words: bytes) -> Command:
    return Command(words[1], words)


def claiming(number: int) -> Command:
    key = KEYS.head(digest(number))
    return command(b"SET", key, Claim(token(number), OWNER).encode(), b"NX", b"GET", b"PX", b"60000")


class Driver:
    """Sends batches to one server, one after the other, and tells what its main thread worked meanwhile."""

    def __init__(self, made: Server) -> None:
        self.server = made
        self._client = Client("costs", [Address("127.0.0.1", made.port)], Login(), cluster=False, keep=1)

    def info(self, section: str, *names: str) -> float:
        """The sum of these figures of INFO."""
        lines = self.server.command("INFO", section).decode().splitlines()
        figures = dict(line.split(":", 1) for line in lines if ":" in line)
        return sum(float(figures[name]) for name in names)

    def worked(self) -> float:
        return self.info("cpu", "used_cpu_user_main_thread", "used_cpu_sys_main_thread")

    def send(self, batch: Sequence[Command]) -> None:
        replies = self._client.run(batch, 30.0).replies
        wrong = next((reply for reply in replies if isinstance(reply, Refused)), None)
        if wrong is not None:
            raise RuntimeError(f"a command of the benchmark was refused: {wrong.text}")

    def seconds(self, batches: Sequence[Sequence[Command]]) -> float:
        """Of the server's main thread, for all of them."""
        todo = iter(batches)
        return self.spent(lambda: self.send(next(todo)), len(batches)) * len(batches)

    def spent(self, step: Callable[[], object], times: int) -> float:
        """Seconds of the server's main thread for each of so many steps."""
        before = self.worked()
        for _ in range(times):
            step()
        return (self.worked() - before) / times


def fitted(driver: Driver, make: Callable[[], Command]) -> tuple[float, float]:
    """Seconds of a batch, whatever is in it, and of each of these commands."""
    small = driver.seconds([[make()] for _ in range(600)]) / 600
    large = driver.seconds([[make() for _ in range(BATCH)] for _ in range(40)]) / 40
    each = (large - small) / (BATCH - 1)
    return small - each, each


def memory_units(driver: Driver) -> Units:
    """Entries as they stand in a server, by INFO, allocator's rounding and tables included."""

    def grown(batches: Iterable[list[Command]], count: int) -> float:
        before = driver.info("memory", "used_memory")
        for batch in batches:
            driver.send(batch)
        return (driver.info("memory", "used_memory") - before) / count

    nothing, payload = memoryview(b""), memoryview(bytes(LAYOUT.nbytes))
    heads = [put(n, nothing, 0) for n in range(ENTRIES)]
    head = grown(
        ([each for one in part for each in (claiming(number_of(one)), *writing_of(one, HOUR))] for part in parts(heads, 250)),
        ENTRIES,
    )
    whole = [put(ENTRIES + n, payload, CHUNK) for n in range(128)]
    block = grown(([claiming(number_of(one)), *writing_of(one, HOUR)] for one in whole), len(whole)) - len(payload)
    for one in whole:
        driver.send([command(b"UNLINK", *KEYS.chunks(one.digest, one.head.token, one.head.chunks))])
    return {
        "head_bytes": unit("memory of a block whose payload lies elsewhere", "bytes", [head]),
        "block_bytes": unit("memory of a block of 2 MiB beside its head, beyond its payload", "bytes", [block]),
    }


def parts(whole: Sequence[Any], size: int) -> Iterator[Any]:
    return (whole[at : at + size] for at in range(0, len(whole), size))


def expiry(driver: Driver) -> float:
    """Seconds of a server's main thread to drop an entry that has expired, asked for by nobody, where a fifth or more has: a
    server finds them by sampling, so that it is dearer the fewer they are, and leaves a tenth for later."""
    count = ENTRIES // 2
    when = b"%d" % (int(time.time() * 1000) + 6000)
    names = [b"tenure:gone:%d" % n for n in range(count)]
    for part in parts(names, 500):
        driver.send([command(b"SET", name, b"x" * 64, b"PXAT", when) for name in part])
    time.sleep(max(0.0, int(when) / 1000 - time.time()) - 0.2)
    gone, before = driver.info("stats", "expired_keys"), driver.worked()
    until("a quarter of them is gone", lambda: driver.info("stats", "expired_keys") - gone >= count / 4)
    spent, gone = driver.worked() - before, driver.info("stats", "expired_keys") - gone
    for part in parts(names, 500):
        driver.send([command(b"UNLINK", *part)])
    return spent / gone


def blocks(driver: Driver, salt: Iterator[int], trip: float) -> dict[str, float]:
    """Commits, writes and reads of blocks that were claimed before, 4 in a batch."""
    found: dict[str, float] = {}
    for name, size, chunk in (("elsewhere", 0, 0), ("empty", 2, 1), ("full", 2 * CHUNK, CHUNK)):
        payload = memoryview(bytes(size))
        puts = [put(n, payload, chunk) for n in itertools.islice(salt, 512 if size < CHUNK else 32)]
        driver.send([claiming(number_of(one)) for one in puts])
        for what, make in ((name, writing_of), (f"{name} read", reading_of)):
            batches = [[each for one in part for each in make(one)] for part in parts(puts, 4)]
            if batches[0]:
                found[what] = (driver.seconds(batches) - len(batches) * trip) / len(puts)
        for one in puts if chunk else []:
            driver.send([command(b"UNLINK", *KEYS.chunks(one.digest, one.head.token, one.head.chunks))])
    return {
        "commit": found["elsewhere"],
        "put": found["empty"] - found["elsewhere"],
        "fetch": found["empty read"],
        "put_byte": (found["full"] - found["empty"]) / (2 * CHUNK),
        "get_byte": (found["full read"] - found["empty read"]) / (2 * CHUNK),
    }


WORK = {
    "trip": "a batch of commands on one connection, whatever is in it",
    "get": "GET of a head, in a batch",
    "families": f"MGET of a request's {len(FAMILIES)} epoch families, in a batch",
    "claim": "SET NX GET PX of a claim, in a batch",
    "bump": "a new epoch of one family",
    "commit": "the commit of a block whose payload lies elsewhere",
    "put": "more, when envelope and payload lie beside the head, in 2 pieces, without their bytes",
    "fetch": "GET of these 2 pieces, without their bytes",
    "put_byte": "a byte of payload written",
    "get_byte": "a byte of payload read",
    "expiry": "an entry dropped when its time is over, where a fifth or more is",
}


def server_units() -> Units:
    found: dict[str, list[float]] = {name: [] for name in WORK}
    salt = itertools.count(2 * ENTRIES)
    known = itertools.cycle(range(0, ENTRIES, 7))
    with server() as made:
        driver = Driver(made)
        units = memory_units(driver)
        driver.send([script(scripts.BUMP, FAMILIES)])
        for _ in range(ROUNDS):
            trip, get = fitted(driver, lambda: command(b"GET", KEYS.head(digest(next(known)))))
            numbers = {"trip": trip, "get": get, "families": fitted(driver, lambda: command(b"MGET", *FAMILIES))[1]}
            numbers["claim"] = fitted(driver, lambda: claiming(next(salt)))[1]
            numbers["bump"] = driver.seconds([[script(scripts.BUMP, FAMILIES[1:2])]] * 300) / 300 - trip
            for name, value in (numbers | blocks(driver, salt, trip)).items():
                found[name].append(value)
        found["expiry"] = [expiry(driver) for _ in range(3)]
    return units | {name: unit(what, "s", found[name]) for name, what in WORK.items()}


def main() -> None:
    from benchmarks import costs_check, costs_nodes

    units = server_units() | costs_nodes.units()
    checks = costs_check.checks(units)
    SAVED.parent.mkdir(parents=True, exist_ok=True)
    title = "Costs of a unit of work on this machine: inputs of a plan"
    SAVED.write_text(json.dumps({"title": title, "machine": machine(), "units": units, "checks": checks}, indent=1) + "\n")
    for name, one in (units | checks).items():
        print(f"{name:16} {one['value']:12.4g} {one['unit']:6} ({one['least']:.3g} to {one['most']:.3g})  {one['what']}")


if __name__ == "__main__":
    main()
