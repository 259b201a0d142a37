"""Sixteen processes write the same blocks at once: one copy of each is stored, whole, and everybody knows what came of it."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tenure.tiers.heads import Claim
from tests.pool import race, servers

ROUNDS = int(os.environ.get("TENURE_RACES", "200"))


def test_the_first_writer_wins_round_after_round(own: servers.Server) -> None:
    found = race.race(own, "race", seed=1, rounds=ROUNDS)
    assert found.rounds == ROUNDS
    assert found.stored >= 0.8 * ROUNDS * race.BLOCKS
    assert found.outcomes["done"] >= found.stored
    assert found.outcomes["claimed"] > 0, "they did race"


def test_the_check_of_a_round_bites(own: servers.Server) -> None:
    """Every way in which a round could be wrong is one that it sees."""
    kinds = {"keep": Counter[str]()}

    def said(commits: int = 1, data: bytes | None = None, kind: str | None = None) -> list[race.Told]:
        read = race.payload(0, 0, 0) if data is None else data
        return [(0, {0: (None, read)}, commits), (1, {0: (kind, read)}, 0)]

    def check(told: list[race.Told]) -> None:
        race.checked(own, "race", 1, 0, told, race.Rounds(0, 0, kinds["keep"]))

    with race.Slow(race.LAYOUT, own.url, prefix="race", chunk_bytes=100) as tier:
        record = race.record(1, 0, 0)
        assert tier.write([0], [race.payload(0, 0, 0)], [record]) == [None]
        check(said())
        for told in (said(commits=2), said(data=race.payload(1, 0, 0)), said(kind="io")):
            with pytest.raises(AssertionError):
                check(told)
        keys = [key for key in own.command("KEYS", "*") if key.endswith(b":1")]
        whole = own.command("GET", keys[0])
        own.command("SET", keys[0], race.payload(1, 0, 0)[100:200])  # a mixture of two writers
        with pytest.raises(AssertionError):
            check(said())
        own.command("SET", keys[0], whole)
        own.command("SET", "left", "over")
        with pytest.raises(AssertionError):
            check(said())
        own.command("DEL", "left")
        check(said())
        own.command("SET", tier._keys.head(record.digest), Claim(b"t", b"o").encode())
        with pytest.raises(AssertionError):
            check(said())
