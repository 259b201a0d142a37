"""Processes that write the same blocks to one pool at once, round after round, some of them too slowly for their claims.
Used by the test of races; what each process believes is compared with what a plain client finds."""

from __future__ import annotations

import multiprocessing
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenure.tiers import BlockLayout, Raw, Record
from tenure.tiers.base import Outcome
from tenure.tiers.heads import Head, Keys, parse
from tenure.tiers.valkey import ValkeyTier
from tests.pool.servers import Server

LAYOUT = BlockLayout.of("bf16", 4, layers=1, heads=2, head_size=8)
"""256 bytes, in chunks of 100."""
BLOCKS = 3
"""Digests a round."""
CLAIM = 0.15
SLOW = 0.005
"""Of all writes, those that stall for about as long as a claim lasts."""
Told = tuple[int, dict[int, tuple[str | None, bytes]], int]
"""Of one process and round: its number, by block why it was refused and what it read afterwards, and how many commits it made."""


@dataclass
class Rounds:
    """What the rounds came to: how many, how many blocks were stored, and how outcomes were spread."""

    rounds: int
    stored: int
    outcomes: Counter[str]


class Slow(ValkeyTier):
    """Stalls between claim and commit when it is told to."""

    stall = 0.0
    commits = 0

    def _store(self, puts: Any) -> list[Outcome]:
        time.sleep(self.stall)
        outcomes = super()._store(puts)
        self.commits += sum(outcome is None for outcome in outcomes)
        return outcomes


def record(seed: int, round_: int, number: int) -> Record:
    rng = np.random.default_rng([seed, round_, number])
    return Record(bytes(32), rng.bytes(32), bytes(32), number, rng.bytes(16), LAYOUT)


def payload(process: int, round_: int, number: int) -> bytes:
    """What a process writes: whole, it says who wrote it, and any mixture of two is none's."""
    return np.full(LAYOUT.nbytes // 8, (process << 48) + (round_ << 8) + number, "<u8").tobytes()


def rounds_of(process: int, url: str, prefix: str, seed: int, rounds: int, barrier: Any, told: Any) -> None:
    """One process."""
    rng = random.Random(seed * 1000 + process)
    with Slow(LAYOUT, url, frames=BLOCKS, prefix=prefix, chunk_bytes=100, claim=CLAIM, timeout=30, owner=f"p{process}") as tier:
        for round_ in range(rounds):
            tier.stall = rng.uniform(0, 2 * CLAIM) if rng.random() < SLOW else 0.0
            tier.commits = 0
            order = rng.sample(range(BLOCKS), BLOCKS)
            records = [record(seed, round_, number) for number in order]
            barrier.wait()
            outcomes = tier.write(order, [payload(process, round_, number) for number in order], records)
            barrier.wait()
            into = [bytearray(LAYOUT.nbytes) for _ in order]
            found = tier.read(order, records, into)
            kinds = [outcome and outcome.kind for outcome in outcomes]
            for kind, read in zip(kinds, found, strict=True):
                if kind is None and read is not None:
                    raise AssertionError(f"process {process} was told that a block is there, and cannot read it: {read}")
            told.put((process, {n: (k, bytes(b)) for n, k, b in zip(order, kinds, into, strict=True)}, tier.commits))
            barrier.wait()


def race(server: Server, prefix: str, seed: int, rounds: int, processes: int = 16) -> Rounds:
    """Raises AssertionError at the first round that is not as it must be."""
    context = multiprocessing.get_context("spawn")
    barrier, told = context.Barrier(processes + 1), context.Queue()
    workers = [
        context.Process(target=rounds_of, args=(n, server.url, prefix, seed, rounds, barrier, told), daemon=True)
        for n in range(processes)
    ]
    for worker in workers:
        worker.start()
    result = Rounds(0, 0, Counter())
    try:
        for round_ in range(rounds):
            barrier.wait(60)
            barrier.wait(60)
            said: list[Told] = [told.get(timeout=60) for _ in range(processes)]
            checked(server, prefix, seed, round_, said, result)
            server.command("FLUSHALL")
            barrier.wait(60)
        for worker in workers:
            worker.join(60)
            assert worker.exitcode == 0
    finally:
        barrier.abort()
        for worker in workers:
            worker.kill()
            worker.join()
    return result


def checked(server: Server, prefix: str, seed: int, round_: int, said: list[Told], result: Rounds) -> None:
    """One round against what is stored."""
    stored = dict(stored_blocks(server, prefix, seed, round_, len(said)))
    assert sum(commits for _, _, commits in said) == len(stored), "as many commits were told as blocks are stored"
    for process, blocks, _ in said:
        for number, (kind, data) in blocks.items():
            result.outcomes[kind or "done"] += 1
            assert kind in (None, "claimed", "late"), f"process {process}: {kind}"
            if kind is None:
                assert number in stored, f"process {process} was told that block {number} is stored"
                assert data == payload(stored[number], round_, number), "what one reads is what the winner wrote"
    result.rounds += 1
    result.stored += len(stored)


def stored_blocks(server: Server, prefix: str, seed: int, round_: int, processes: int) -> Iterator[tuple[int, int]]:
    """Each block that is stored, and the process whose bytes it has whole; by plain commands. Nothing else may be there."""
    names = Keys(prefix, LAYOUT, Raw())
    expected = set()
    for number in range(BLOCKS):
        digest = record(seed, round_, number).digest
        value = server.command("GET", names.head(digest))
        if value is None:
            continue  # whoever won it was too late, and the others had gone on
        head = parse(value)
        assert isinstance(head, Head), "no claim is left"
        chunks = names.chunks(digest, head.token, head.chunks)
        written = b"".join(server.command("GET", key) for key in chunks)[head.envelope :]
        writers = [process for process in range(processes) if written == payload(process, round_, number)]
        assert len(writers) == 1, "the bytes of one writer, whole"
        expected |= {names.head(digest), *chunks}
        yield number, writers[0]
    assert set(server.command("KEYS", "*")) == expected, "one copy, and nothing else"
