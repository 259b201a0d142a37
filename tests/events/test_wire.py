"""The wire format: a known answer, both generations, and bytes that are something else."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenure import EventError
from tenure.events.wire import AllBlocksCleared, BlockRemoved, BlockStored, decode, encode

CLEARED = bytes.fromhex("93cb3ff80000000000009181a474797065b0416c6c426c6f636b73436c6561726564c0")
STORED = BlockStored([b"a" * 32, b"b" * 32], None, [1, 2, 3, 4], 2, None, "GPU", "adapter", [("adapter",), None])


def test_a_known_answer() -> None:
    assert encode(1.5, [AllBlocksCleared()]) == CLEARED
    assert decode(CLEARED) == (1.5, [AllBlocksCleared()], None)


def test_an_event_is_a_map_with_its_type_and_what_engines_require() -> None:
    _, events, rank = msgspec.msgpack.decode(encode(2.0, [STORED, BlockRemoved([7], "CPU")], 3))
    assert events[0] == {
        "type": "BlockStored",
        "block_hashes": [b"a" * 32, b"b" * 32],
        "parent_block_hash": None,
        "token_ids": [1, 2, 3, 4],
        "block_size": 2,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": "adapter",
        "extra_keys": [["adapter"], None],
    }
    assert events[1] == {"type": "BlockRemoved", "block_hashes": [7], "medium": "CPU"}
    assert rank == 3


def test_the_older_generation_is_an_array_with_its_tag_first() -> None:
    stored = ["BlockStored", [1, 2], 9, [1, 2, 3, 4], 2, None, "GPU"]
    events = [stored, ["BlockRemoved", [1]], ["AllBlocksCleared"]]
    ts, found, rank = decode(msgspec.msgpack.encode([1.0, events]))
    assert (ts, rank) == (1.0, None)
    assert found == [BlockStored([1, 2], 9, [1, 2, 3, 4], 2, None, "GPU"), BlockRemoved([1]), AllBlocksCleared()]


def test_what_is_not_known_is_left_out() -> None:
    cleared = {"type": "AllBlocksCleared", "later": 1}
    assert decode(msgspec.msgpack.encode([1.0, [{"type": "BlockMoved"}, ["BlockMoved", 1], cleared], None, "more"])) == (
        1.0,
        [AllBlocksCleared()],
        None,
    )


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [],
        [1.0],
        {"ts": 1.0},
        [1.0, 5],
        ["soon", []],
        [1.0, [], "rank"],
        [1.0, [5]],
        [1.0, [[]]],
        [1.0, [{}]],
        [1.0, [{"type": 5}]],
        [1.0, [{"type": "BlockStored"}]],
        [1.0, [{"type": "BlockRemoved", "block_hashes": [1.5]}]],
        [1.0, [["BlockStored", [1]]]],
        [1.0, [["BlockRemoved", "all"]]],
    ],
)
def test_what_is_no_batch_is_an_error(wrong: Any) -> None:
    with pytest.raises(EventError, match="no batch of KV events"):
        decode(msgspec.msgpack.encode(wrong))


@given(st.binary(max_size=64) | st.binary(max_size=16).map(lambda tail: CLEARED[:-1] + tail))
def test_any_bytes_are_a_batch_or_an_error(payload: bytes) -> None:
    try:
        ts, events, rank = decode(payload)
    except EventError:
        return
    assert isinstance(ts, float)
    assert decode(encode(ts, events, rank))[1] == events


NAMES = st.binary(min_size=32, max_size=32) | st.integers(-(1 << 63), (1 << 64) - 1)
EVENTS = st.one_of(
    st.builds(
        BlockStored,
        st.lists(NAMES, max_size=3),
        st.none() | NAMES,
        st.lists(st.integers(0, (1 << 31) - 1), max_size=4),
        st.integers(0, 64),
        st.none(),
        st.none() | st.text(max_size=4),
        st.none() | st.text(max_size=4),
    ),
    st.builds(BlockRemoved, st.lists(NAMES, max_size=3), st.none() | st.text(max_size=4)),
    st.builds(AllBlocksCleared),
)


@given(st.floats(0, 1e12), st.lists(EVENTS, max_size=4), st.none() | st.integers(0, 100))
def test_what_is_encoded_is_decoded(ts: float, events: list[Any], rank: int | None) -> None:
    assert decode(encode(ts, events, rank)) == (ts, events, rank)
