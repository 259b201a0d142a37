"""The namespaces of a store: they survive, and one that is dropped takes all its blocks with it for ever."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tenure import Identity
from tenure.errors import ConfigError, StoreError

from .making import OTHER_SPACE, PAGED, SPACE, buffers, record, restored
from .storing import opened, write


def test_namespaces_and_their_values_survive(tmp_path: Path) -> None:
    who = Identity("smollm2-135m", weights="3f2a", tenant="acme")
    with opened(tmp_path) as tier:
        assert tier.namespaces() == {}
        tier.put_namespace(who.namespace, who.encode())
        tier.put_namespace(SPACE, b"")
        tier.put_namespace(SPACE, b"changed")
    with opened(tmp_path) as tier:
        assert tier.namespaces() == {who.namespace: who.encode(), SPACE: b"changed"}


def test_a_dropped_namespace_takes_its_blocks_with_it_at_once_and_for_ever(tmp_path: Path) -> None:
    with opened(tmp_path) as tier:
        tier.put_namespace(SPACE, b"one")
        tier.put_namespace(OTHER_SPACE, b"two")
        write(tier, 0, 1, 2)
        write(tier, 3, 4, namespace=OTHER_SPACE)
        assert tier.drop_namespace(SPACE)
        assert not tier.drop_namespace(SPACE)
        outcomes = tier.read([0], [record(PAGED, 0)], buffers(PAGED, 1))
        assert [outcome and outcome.kind for outcome in outcomes] == ["namespace"]
        assert write(tier, 5) == ["namespace"]  # one that was in flight
        tier.put_namespace(SPACE, b"one")  # the same again, in another life
        outcomes = tier.read([0], [record(PAGED, 0)], buffers(PAGED, 1))
        assert [outcome and outcome.kind for outcome in outcomes] == ["namespace"]
    with opened(tmp_path) as tier:
        assert set(restored(tier)) == {3, 4}
        assert tier.counters.refused == {"namespace": 3}
        assert write(tier, 0) == [None]
    with opened(tmp_path) as tier:
        assert set(restored(tier)) == {0, 3, 4}
        assert tier.counters.refused == {}


def test_a_value_that_changes_keeps_the_blocks(tmp_path: Path) -> None:
    with opened(tmp_path) as tier:
        tier.put_namespace(SPACE, b"one")
        write(tier, 0)
        tier.put_namespace(SPACE, b"two")
    with opened(tmp_path) as tier:
        assert set(restored(tier)) == {0}


def test_a_block_of_an_unknown_namespace_is_not_taken(tmp_path: Path) -> None:
    with opened(tmp_path) as tier:
        assert write(tier, 0) == ["namespace"]
        assert restored(tier) == {}


def test_the_table_of_namespaces_has_a_bound_and_says_so(tmp_path: Path) -> None:
    with opened(tmp_path) as tier:
        tier.put_namespace(SPACE, b"fits")
        with pytest.raises(StoreError, match="room") as caught:
            tier.put_namespace(OTHER_SPACE, bytes(100_000))
        assert caught.value.numbers["needed"] > caught.value.numbers["room"]
        assert tier.namespaces() == {SPACE: b"fits"}


@pytest.mark.parametrize("given", [(b"short", b""), ("text" * 8, b""), (SPACE, "text"), (SPACE, None)], ids=repr)
def test_a_namespace_is_checked(tmp_path: Path, given: tuple[object, object]) -> None:
    with opened(tmp_path) as tier, pytest.raises(ConfigError):
        tier.put_namespace(*given)  # type: ignore[arg-type]


def test_a_drop_that_cannot_be_written_still_holds_now_and_can_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise OSError(5, "the medium failed")

    with opened(tmp_path) as tier:
        tier.put_namespace(SPACE, b"")
        write(tier, 0)
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", failing)
            with pytest.raises(StoreError, match="written"):
                tier.drop_namespace(SPACE)
        assert write(tier, 1) == ["namespace"]
        tier.drop_namespace(SPACE)
    with opened(tmp_path) as tier:
        assert tier.namespaces() == {}
        assert restored(tier) == {}


def test_dropping_what_is_not_there_writes_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as tier:
        tier.put_namespace(SPACE, b"value")
        table = tier.path / "namespaces.tenure"
        before = table.stat().st_ino
        assert tier.drop_namespace(OTHER_SPACE) is False
        assert table.stat().st_ino == before
        assert tier.drop_namespace(SPACE) is True
        assert table.stat().st_ino != before


def test_keeping_some_drops_all_others_in_one_write(tmp_path: Path) -> None:
    with opened(tmp_path) as tier:
        for number in range(5):
            tier.put_namespace(bytes([number]) * 32, b"")
        tier.put_namespace(SPACE, b"value")
        assert tier.keep_namespaces({SPACE}) == 5
        table = tier.path / "namespaces.tenure"
        before = table.stat().st_ino
        assert tier.keep_namespaces({SPACE}) == 0
        assert table.stat().st_ino == before
    with opened(tmp_path) as tier:
        assert tier.namespaces() == {SPACE: b"value"}
