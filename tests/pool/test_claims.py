"""First writer wins: one stored copy, a claim that ends by itself, a late commit that is refused, and nothing to sweep."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

from tenure.tiers import Zstd
from tenure.tiers.base import Outcome
from tenure.tiers.heads import Claim, Head, Put, parse
from tenure.tiers.valkey import ValkeyTier
from tenure.tiers.valkey_chunks import writing
from tests.pool import servers
from tests.pool.making import CHUNK, KEYS, again, digests, head_key, keys, learn, parts, pool, read, run_out, write
from tests.tiers.making import PAGED, block, record


class Stalling(ValkeyTier):
    """Does something between its claims and its writing."""

    def stall(self, puts: Sequence[Put]) -> None: ...

    def _store(self, puts: Sequence[Put]) -> list[Outcome]:
        self.stall(puts)
        return super()._store(puts)


def stalling(url: str, stall: Callable[[Sequence[Put]], None], **settings: object) -> ValkeyTier:
    tier = pool(url, kind=Stalling, **settings)
    tier.stall = stall  # type: ignore[attr-defined]
    return tier


def gone(one: servers.Server, key: bytes) -> None:
    servers.until("the claim has run out", lambda: not one.command("EXISTS", key))


def test_what_is_stored_is_what_plain_gets_give(one: servers.Server) -> None:
    with pool(one.url) as tier:
        assert write(tier, 1) == [None]
        head = parse(one.command("GET", head_key(tier, 1)))
        assert isinstance(head, Head)
        assert (head.payload, head.chunk) == (PAGED.nbytes, CHUNK)
        chunks = [one.command("GET", key) for key in parts(one, tier, 1)]
        assert [len(chunk) for chunk in chunks] == [head.envelope + 3000, 3000, 2192]
        whole = b"".join(chunks)
        assert record(PAGED, 1).digest in whole[: head.envelope]
        assert whole[head.envelope :] == block(PAGED, 1).tobytes()
        for key in [head_key(tier, 1), *parts(one, tier, 1)]:
            assert one.command("PTTL", key) > 0, "everything of a block goes some time"


def test_a_block_that_is_there_is_done_and_known(one: servers.Server) -> None:
    with pool(one.url) as first, again(first) as second:
        assert write(first, 1, 2) == [None, None]
        stored = {key: one.command("GET", key) for key in keys(one, first)}
        assert write(second, 1, 2, 3) == [None, None, None]
        assert second.claims[:2] == (1, 2)
        assert read(second, 1, 2, 3) == [None] * 3
        assert second.counters.bytes_written == PAGED.nbytes
        assert all(one.command("GET", key) == value for key, value in stored.items())


def test_a_block_that_another_is_writing_is_claimed(one: servers.Server) -> None:
    outcomes: list[object] = []
    with pool(one.url) as probe:
        settings = {"prefix": probe._keys.names.decode().split(":")[0]}
        with stalling(one.url, lambda puts: outcomes.append(write(probe, 1)), **settings) as tier:
            assert write(tier, 1) == [None]
        assert outcomes == [["claimed"]]
        assert probe.counters.refused == {"claimed": 1}
        assert read(probe, 1) == ["empty"]


@pytest.mark.parametrize("taken", [True, False])
def test_a_claim_that_ran_out_can_be_taken_over_and_its_commit_is_refused(one: servers.Server, taken: bool) -> None:
    def stall(puts: Sequence[Put]) -> None:
        gone(one, head_key(late, 1))
        if taken:
            assert write(other, 1) == [None]

    with stalling(one.url, stall, claim=0.05) as late, again(late) as other:
        assert write(late, 1) == ["late"]
        assert late.claims[:4] == (1, 0, 1, int(taken))
        assert read(late, 1) == ["empty"]
        assert learn(other, 1) == int(taken)
        assert len(keys(one, late)) == KEYS * int(taken), "what the late one wrote is gone at once"
        if taken:
            assert read(other, 1) == [None]


def test_a_commit_is_refused_while_another_claim_stands(one: servers.Server) -> None:
    def stall(puts: Sequence[Put]) -> None:
        gone(one, head_key(late, 1))
        one.command("SET", head_key(late, 1), Claim(b"other", b"node").encode())

    with stalling(one.url, stall, claim=0.05) as late:
        assert write(late, 1) == ["late"]
        assert late.claims.taken_over == 1
        assert parse(one.command("GET", head_key(late, 1))) == Claim(b"other", b"node")


def test_what_a_dead_writer_leaves_goes_by_itself(one: servers.Server) -> None:
    class DiedError(BaseException):
        pass

    def die(puts: Sequence[Put]) -> None:
        commands = [command for put in puts for command in writing(tier._keys, put, b"owner", 60_000, 60_000)[:-1]]
        assert not any(reply != b"OK" for reply in tier._client.run(commands, 5).replies)
        raise DiedError

    with stalling(one.url, die, claim=60.0) as tier, again(tier) as other:
        with pytest.raises(DiedError):
            write(tier, 1, 2)
        assert len(keys(one, tier)) == 2 * KEYS, "two claims, and what was written under them"
        assert write(other, 1) == ["claimed"]
        run_out(tier, map(str.encode, keys(one, tier)), 60.0)
        servers.until("nothing is left", lambda: keys(one, tier) == [])
        assert write(other, 1, 2) == [None, None]


def test_a_part_that_is_missing_at_the_commit_refuses_it(one: servers.Server) -> None:
    with pool(one.url) as tier:
        (token,) = tier._claim(digests(1))
        assert isinstance(token, bytes)
        data = memoryview(block(PAGED, 1)).cast("B")
        put = Put(digests(1)[0], tier._head(token, 300, PAGED.nbytes, float("inf")), data, lambda: bytes(300))
        commands = writing(tier._keys, put, tier._owner, 10_000, 10_000)
        whole = [*commands[:2], *commands[3:]]
        assert tier._client.run(whole, 5).replies[-1] == Claim(token, tier._owner).encode()
        assert keys(one, tier) == [], "neither claim nor parts stay"


def test_content_that_has_expired_is_not_stored(one: servers.Server) -> None:
    with pool(one.url, wall=lambda: 1000.0) as tier:
        data = [block(PAGED, 1)]
        (outcome,) = tier.write([1], data, [record(PAGED, 1, expires=1000.0)])
        assert outcome is not None
        assert outcome.kind == "late"
        assert keys(one, tier) == []
        assert tier.write([1], data, [record(PAGED, 1, expires=1000.5)]) == [None]
        assert one.command("PTTL", head_key(tier, 1)) <= 500
        servers.until("all of it goes", lambda: keys(one, tier) == [])


def test_content_that_expires_is_not_found_after_it(one: servers.Server) -> None:
    now = [1000.0]
    with pool(one.url, wall=lambda: now[0]) as tier:
        assert tier.write([1], [block(PAGED, 1)], [record(PAGED, 1, expires=5000.0)]) == [None]
        assert tier.look(digests(1), []).heads[0].expires == 5000.0
        now[0] = 5000.0
        assert tier.look(digests(1), []).heads == []


def test_a_block_that_cannot_be_encoded_gives_its_claim_back(one: servers.Server) -> None:
    with pool(one.url, codec=Zstd(room=0.01)) as tier:
        assert write(tier, 1) == ["codec"]
        assert keys(one, tier) == []


def test_a_lookup_ends_at_a_claim_or_waits_for_it(one: servers.Server) -> None:
    with pool(one.url) as tier, again(tier, claimed="wait", claim_wait=10.0) as patient:
        assert write(tier, 1, 2, 4) == [None] * 3
        one.command("SET", head_key(tier, 3), Claim(b"other", b"node").encode())
        chain = digests(1, 2, 3, 4)
        assert len(tier.look(chain, []).heads) == 2
        assert len(patient.look(chain, [], wait=0).heads) == 2
        assert len(tier.look(chain, [], wait=0.02).heads) == 2

        started = threading.Event()
        found: list[int] = []

        def look() -> None:
            started.set()
            found.append(len(patient.look(chain, []).heads))

        thread = threading.Thread(target=look)
        thread.start()
        started.wait()
        one.command("DEL", head_key(tier, 3))
        assert write(tier, 3) == [None]
        thread.join()
        assert found in ([4], [2])  # the claim was gone for a moment: then there is nothing to wait for
        one.command("SET", head_key(tier, 5), Claim(b"other", b"node").encode(), "PX", 100)
        assert len(patient.look([*chain, *digests(5)], []).heads) == 4, "a claim that ends without a block ends the wait"


def test_waiting_sees_the_commit(one: servers.Server) -> None:
    looked = threading.Event()

    def stall(puts: Sequence[Put]) -> None:
        looked.wait(10)

    with stalling(one.url, stall) as writer, again(writer) as reader:
        thread = threading.Thread(target=lambda: write(writer, 1, 2, 3))
        thread.start()
        servers.until("claimed", lambda: one.command("EXISTS", head_key(writer, 3)) == 1)
        run = reader._client.run

        def seen(*given: object, **settings: object) -> object:
            trip = run(*given, **settings)  # type: ignore[arg-type]
            looked.set()
            return trip

        reader._client.run = seen  # type: ignore[method-assign, assignment]
        look = reader.look(digests(1, 2, 3), [], wait=10.0)
        thread.join()
        assert len(look.heads) == 3
        assert look.trips > 1


def test_tokens_are_never_the_same(one: servers.Server) -> None:
    with pool(one.url) as first, again(first) as second:
        tokens = [tier._claim(digests(*range(start, start + 50))) for start, tier in ((0, first), (100, second), (200, first))]
        assert len({token for part in tokens for token in part}) == 150  # type: ignore[misc]
