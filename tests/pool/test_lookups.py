"""One lookup of a chain: the longest committed prefix in two round trips at most, with the families' values of the first."""

from __future__ import annotations

import random

import pytest

from tenure.tiers.heads import Head
from tenure.tiers.valkey import ValkeyTier
from tests.pool import servers
from tests.pool.making import again, asked, head_key, pool, prefix_of, read, run_out, write
from tests.tiers.making import PAGED, record

HEAD = Head(b"token", 300, PAGED.nbytes, 3000)


def chain(count: int, seed: int = 0) -> list[bytes]:
    rng = random.Random(seed)
    return [rng.randbytes(32) for _ in range(count)]


def place(tier: ValkeyTier, digests: list[bytes]) -> None:
    """Puts heads there, of blocks that nobody reads."""
    commands = [(tier._keys.head(digest), HEAD.encode()) for digest in digests]
    from tenure.tiers.protocol import Command

    for start in range(0, len(commands), 500):
        part = [Command(key, (b"SET", key, value)) for key, value in commands[start : start + 500]]
        assert set(tier._client.run(part, 10).replies) == {b"OK"}


@pytest.mark.parametrize("where", ["one", "many"])
@pytest.mark.parametrize("count", [0, 1, 2, 15, 16, 17, 31, 32, 33, 100, 2048])
def test_a_chain_takes_two_trips_at_most(where: str, count: int, request: pytest.FixtureRequest) -> None:
    with pool(request.getfixturevalue(where).url) as tier:
        tier.look([], [b"family"])  # a cluster is asked who has which slots once
        digests = chain(2048)
        place(tier, digests[:count])
        for length in (count, 2048):
            look = tier.look(digests[:length], [b"family"])
            assert len(look.heads) == count
            assert look.trips <= 2
            assert look.values == [None]
        assert tier.look(chain(2048, 1), [b"family"]).trips == 1, "a miss on the first block"


@pytest.mark.parametrize("seed", range(5))
def test_a_chain_with_holes_ends_at_the_first(one: servers.Server, seed: int) -> None:
    rng = random.Random(seed)
    with pool(one.url) as tier:
        for _ in range(20):
            digests = chain(rng.randint(1, 200), rng.randint(0, 1 << 30))
            there = [digest for digest in digests if rng.random() < rng.choice([0.5, 0.95, 0.995])]
            place(tier, there) if there else None
            missing = [n for n, digest in enumerate(digests) if not one.command("EXISTS", tier._keys.head(digest))]
            wanted = min(missing, default=len(digests))
            look = tier.look(digests, [])
            assert len(look.heads) == wanted
            assert look.trips <= 2


def test_nothing_asked_costs_nothing(one: servers.Server) -> None:
    with pool(one.url) as tier:
        assert tier.look([], []) == ([], [], 0)
        assert tier.claims.trips == 0


def test_what_was_found_can_be_read_by_others(one: servers.Server, many: servers.Cluster) -> None:
    for where in (one, many):
        with pool(where.url) as writer, again(writer) as reader:
            assert write(writer, *range(40)) == [None] * 40
            look = reader.look([record(PAGED, n).digest for n in range(40)], [])
            for frame, head in enumerate(look.heads):
                reader.know(frame, record(PAGED, frame), head)
            assert read(reader, *range(40)) == [None] * 40
            assert reader.erase([0]) == [None]
            assert read(reader, 0) == ["empty"]
            assert read(writer, 0) == [None], "that one node forgets is nothing to the others"


def test_values_come_with_the_first_blocks(one: servers.Server) -> None:
    with pool(one.url) as tier:
        (value,) = tier.ensure([b"a"])
        assert tier.look(chain(3), [b"a", b"b"]) == ([], [value, None], 1)


def test_an_extended_block_outlives_its_ttl(one: servers.Server) -> None:
    digests = [record(PAGED, n).digest for n in (1, 2, 3)]
    with pool(one.url, ttl=0.5) as tier:
        assert write(tier, 1, 2) == [None, None]
        assert tier.extend(digests, 3600) == [False, False, False], "their content expires, long ago by the server's clock"
    with pool(one.url, ttl=60.0) as tier:
        never = [record(PAGED, n, expires=float("inf")) for n in (1, 2)]
        from tests.tiers.making import block

        assert tier.write([1, 2], [block(PAGED, 1), block(PAGED, 2)], never) == [None, None]
        assert tier.extend([digests[0], digests[2]], 3600) == [True, False]
        assert tier.extend([digests[0]], 1) == [True]
        for key in one.command("KEYS", head_key(tier, 1)[:-1] + b"*"):
            assert one.command("PTTL", key) > 3_500_000, "never for a shorter time"
        run_out(tier, one.command("KEYS", head_key(tier, 2)[:-1] + b"*"), 61.0)  # parts outlive their head by a second
        servers.until("the other one goes", lambda: not one.command("EXISTS", head_key(tier, 2)))
        assert read(tier, 1) == [None]
        part = next(key for key in one.command("KEYS", head_key(tier, 1)[:-1] + b"d*"))
        one.command("DEL", part)
        assert tier.extend([digests[0]], 10) == [False], "a block without a part is none"


def test_an_extension_ends_where_the_content_does(own: servers.Server) -> None:
    with pool(own.url, ttl=5.0) as tier:
        seconds, _ = own.command("TIME")
        digest = record(PAGED, 1).digest
        own.command("SET", tier._keys.head(digest), Head(b"t", 1, 1, 0, int(seconds) + 100.0).encode(), "PX", 60_000)
        assert tier.extend([digest], 3600) == [True]
        assert 90_000 < own.command("PTTL", tier._keys.head(digest)) <= 100_000


def test_a_lookup_that_could_not_be_done_is_not_a_short_one(own: servers.Server) -> None:
    with pool(own.url) as tier, pool(own.url, prefix=prefix_of(tier)) as other:
        digests = chain(100)
        place(tier, digests)
        own.kill()
        assert asked(lambda: other.look(digests, [])) == "io"
