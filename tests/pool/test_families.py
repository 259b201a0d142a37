"""Epoch families only rise, whoever raises them; small entries are set, compared and listed; neither is ever evicted."""

from __future__ import annotations

import threading

import pytest

from tests.pool import servers
from tests.pool.making import again, hurried, keys, pool


@pytest.mark.parametrize("where", ["one", "many"])
def test_a_family_begins_with_the_servers_time_and_only_rises(where: str, request: pytest.FixtureRequest) -> None:
    with pool(request.getfixturevalue(where).url) as tier:
        assert tier.read_families([b"a", b"b"]) == [None, None]
        first = tier.ensure([b"a", b"b"])
        assert first[0] == first[1] > 1_700_000_000_000_000
        assert tier.ensure([b"b", b"a"]) == first
        (second,) = tier.bump([b"a"])
        assert second > first[0]
        assert tier.read_families([b"a", b"b", b"c"]) == [second, first[1], None]
        assert tier.bump([]) == []


def test_a_family_that_is_ahead_of_the_time_still_rises(one: servers.Server) -> None:
    with pool(one.url) as tier:
        far = (1 << 53) - 100
        assert tier.raise_families({b"a": far}) == [far]
        assert [tier.bump([b"a"])[0] for _ in range(3)] == [far + 1, far + 2, far + 3]


def test_values_merge_by_the_greater(one: servers.Server) -> None:
    with pool(one.url) as tier:
        assert tier.raise_families({b"a": 5, b"b": 7}) == [5, 7]
        assert tier.raise_families({b"a": 6, b"b": 6, b"c": 0}) == [6, 7, 0]
        assert tier.read_families([b"a", b"b", b"c"]) == [6, 7, 0]


@pytest.mark.parametrize("value", [b"x", b"", b"-5", b"1e9", b"99999999999999999999", b"9007199254740993"])
def test_what_is_no_value_counts_as_none(one: servers.Server, value: bytes) -> None:
    with pool(one.url) as tier:
        one.command("SET", tier._keys.family(b"a"), value)
        assert tier.read_families([b"a"]) == [None]
        assert tier.look([], [b"a"]).values == [None]
        (fresh,) = tier.ensure([b"a"])
        assert tier.read_families([b"a"]) == [fresh]


def test_bumps_of_many_at_once_are_all_different(one: servers.Server) -> None:
    found: list[int] = []
    with pool(one.url) as tier, again(tier) as other:

        def bump(which: int) -> None:
            mine = [(tier, other)[which % 2].bump([b"a"])[0] for _ in range(50)]
            assert mine == sorted(set(mine))
            found.extend(mine)

        threads = [threading.Thread(target=bump, args=(which,)) for which in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(found)) == 200
        assert tier.read_families([b"a"]) == [max(found)]


def test_families_and_entries_stay(one: servers.Server) -> None:
    with pool(one.url) as tier:
        tier.bump([b"a"])
        tier.put("name", b"value")
        assert len(keys(one, tier)) == 3
        assert all(one.command("TTL", key) == -1 for key in keys(one, tier))


def test_a_bump_is_confirmed_by_a_replica() -> None:
    with servers.cluster(cluster_node_timeout=60_000) as many, pool(many.url) as tier:
        assert tier.bump([b"a"]).confirmed
        with hurried(tier, 1.0):
            assert not tier.bump([b"a"], replicas=2).confirmed, "there is only one"
        replica = many.replica_of(many.primary_of(tier._keys.family(b"a")))
        replica.pause()
        with hurried(tier, 1.0):
            late = tier.bump([b"a"])
        assert not late.confirmed
        assert tier.read_families([b"a"]) == late, "it counts all the same"
        assert tier.bump([b"a"], replicas=0).confirmed
        replica.resume()
        servers.until("the replica is back", lambda: tier.bump([b"a"]).confirmed)


def test_without_a_replica_there_is_nothing_to_confirm(one: servers.Server) -> None:
    with pool(one.url) as tier:
        assert tier.bump([b"a"]).confirmed
        assert not tier.bump([b"a"], replicas=1).confirmed


@pytest.mark.parametrize("where", ["one", "many"])
def test_entries(where: str, request: pytest.FixtureRequest) -> None:
    with pool(request.getfixturevalue(where).url) as tier, again(tier) as other:
        assert tier.get("a/1") is None
        tier.put("a/1", b"one")
        tier.put("a/2", b"\r\n\0")
        tier.put("b", b"")
        tier.put("a/1", b"uno")
        assert [other.get(name) for name in ("a/1", "a/2", "b")] == [b"uno", b"\r\n\0", b""]
        assert list(other.entries("a/")) == ["a/1", "a/2"]
        assert list(other.entries()) == ["a/1", "a/2", "b"]
        assert [tier.delete("b"), tier.delete("b")] == [True, False]
        assert list(other.entries()) == ["a/1", "a/2"]


def test_an_entry_is_swapped_only_by_who_knows_it(one: servers.Server) -> None:
    with pool(one.url) as tier:
        assert not tier.swap("a", b"", b"x")
        assert tier.swap("a", None, b"x")
        assert not tier.swap("a", None, b"y")
        assert not tier.swap("a", b"z", b"y")
        assert tier.get("a") == b"x"
        assert tier.swap("a", b"x", b"y")
        assert tier.get("a") == b"y"
        wins: list[bool] = []
        threads = [threading.Thread(target=lambda n=n: wins.append(tier.swap("a", b"y", b"%d" % n))) for n in range(8)]  # type: ignore[misc]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(wins) == [False] * 7 + [True]


def test_an_entry_with_a_ttl_goes_and_so_does_its_name(one: servers.Server) -> None:
    with pool(one.url) as tier:
        tier.put("a", b"1", ttl=0.05)
        assert tier.swap("b", None, b"1", ttl=0.05)
        tier.put("c", b"1", ttl=0.05)
        tier.put("c", b"1")
        servers.until("they are gone", lambda: tier.get("a") is None and tier.get("b") is None)
        assert list(tier.entries()) == ["c"]
        assert one.command("SMEMBERS", tier._keys.names) == [b"c"]
