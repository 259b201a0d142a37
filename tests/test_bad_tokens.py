"""Bad tokens: a typed error that says which one and what it was, and nothing has changed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import Build
from helpers import admit, in_another_process, unchanged
from world import World

from tenure import BlockManager, Identity
from tenure.errors import CapacityError, QuotaError, TokenError


class Index:
    """An integer by protocol."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


class Broken:
    def __index__(self) -> int:
        raise RuntimeError("no index")


# -- tokens

BAD_TOKENS: dict[str, tuple[Any, dict[str, Any]]] = {
    "negative": ([1, -1], {"position": 1, "value": -1}),
    "2^31": ([1 << 31], {"position": 0, "value": 1 << 31}),
    "2^64": ([0, 0, 1 << 64], {"position": 2}),
    "-2^70": ([-(1 << 70)], {"position": 0}),
    "float": ([1.0], {"position": 0}),
    "bool": ([True], {"position": 0}),
    "none": ([1, None], {"position": 1}),
    "object": ([object()], {"position": 0}),
    "nested": ([[1, 2]], {"position": 0}),
    "text in a list": (["1"], {"position": 0}),
    "broken index": ([Broken()], {"position": 0}),
    "huge index": ((Index(1 << 40),), {"position": 0, "value": 1 << 40}),
    "text": ("hello", {}),
    "bytes": (b"hello", {}),
    "bytearray": (bytearray(b"hello"), {}),
    "number": (5, {}),
    "nothing": (None, {}),
    "an object": (object(), {}),
    "int64 array, negative": (np.array([3, -7]), {"position": 1, "value": -7}),
    "int8 array, negative": (np.array([-1], dtype=np.int8), {"position": 0, "value": -1}),
    "int64 array, huge": (np.array([1 << 40]), {"position": 0, "value": 1 << 40}),
    "uint32 array, huge": (np.array([1 << 31], dtype=np.uint32), {"position": 0, "value": 1 << 31}),
    "uint64 array, huge": (np.array([(1 << 64) - 1], dtype=np.uint64), {"position": 0}),
    "strided, negative": (np.array([1, 2, -3, 4])[::2], {"position": 1, "value": -3}),
    "float array": (np.array([1.0, 2.0]), {}),
    "bool array": (np.array([True]), {}),
    "object array": (np.array([1, 2], dtype=object), {}),
    "text array": (np.array(["a"]), {}),
    "complex array": (np.array([1j]), {}),
    "record array": (np.zeros(2, dtype=[("a", np.int32)]), {}),
    "2-D array": (np.zeros((2, 2), dtype=np.int32), {"dimensions": 2}),
    "0-D array": (np.array(5), {"dimensions": 0}),
    "big-endian, negative": (np.array([-1], dtype=">i4"), {}),
    "a set": ({1, 2, 3}, {}),
    "a mapping": ({1: 2}, {}),
}


@pytest.mark.parametrize("case", BAD_TOKENS)
@pytest.mark.parametrize("call", ["sequence", "append", "match", "pin", "lookup", "digest"])
def test_bad_tokens(world: World, case: str, call: str) -> None:
    tokens, numbers = BAD_TOKENS[case]
    kv, who = world.kv, world.who
    calls: dict[str, Callable[[], object]] = {
        "sequence": lambda: kv.sequence(tokens, who),
        "append": lambda: world.seq.append(tokens),
        "match": lambda: kv.match(tokens, who),
        "pin": lambda: kv.pin(tokens, who, owner="o"),
        "lookup": lambda: kv.lookup(tokens, who, owner="o", ttl=1),
        "digest": lambda: list(who.digest_chain(tokens, 4)),
    }
    with unchanged(kv), pytest.raises(TokenError) as caught:
        calls[call]()
    assert caught.value.numbers.items() >= numbers.items()
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("huge", [[1 << 63], [1 << 64], [-(1 << 70)], np.array([(1 << 64) - 1], dtype=np.uint64)])
def test_the_message_does_not_make_up_another_number(world: World, huge: Any) -> None:
    with pytest.raises(TokenError) as caught:
        world.kv.sequence(huge, world.who)
    shown = caught.value.numbers.get("value", int(huge[0]))
    assert shown == pytest.approx(int(huge[0]), rel=1e-6)
    assert "9200000000000000000" not in str(caught.value)
    assert (int(huge[0]) < 0) == ("is -" in str(caught.value))


CHANGING = """
from tenure import BlockManager, Identity
from tenure.errors import TokenError

tokens = []

class Emptying:
    def __index__(self):
        tokens.clear()
        tokens.extend([0] * 100_000)
        tokens.clear()
        return 1

tokens += [Emptying() for _ in range(1000)]
try:
    print(BlockManager(8, 4).match(tokens, Identity("m")).hit_tokens)
except TokenError:
    print("refused")
"""


def test_a_list_that_changes_while_it_is_read_is_no_crash() -> None:
    assert in_another_process(CHANGING) in ("0", "refused")


@pytest.mark.parametrize(
    "tokens",
    [np.arange(8, dtype=dtype) for dtype in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64)]
    + [
        np.arange(16, dtype=np.int32)[::2] // 2,
        np.arange(32, dtype=np.int64)[::4] // 4,
        np.arange(7, -1, -1)[::-1],
        np.stack([np.arange(8)] * 3, axis=1)[:, 1],
        np.frombuffer(b"\0" + np.arange(8, dtype=np.int32).tobytes(), dtype=np.uint8)[1:].view(np.int32),
        list(range(8)),
        tuple(range(8)),
        range(8),
        [Index(i) for i in range(8)],
        [np.int64(i) for i in range(8)],
        memoryview(np.arange(8, dtype=np.int32)),
    ],
    ids=lambda tokens: f"{type(tokens).__name__}-{getattr(tokens, 'dtype', '')}",
)
def test_good_tokens_of_every_kind_are_the_same_tokens(build: Build, who: Identity, tokens: Any) -> None:
    kv = build(4)
    kv.sequence(list(range(8)), who, written=True).release()
    assert kv.match(tokens, who).hit_tokens == 8


def test_a_big_endian_array_is_read_right_or_refused(build: Build, who: Identity) -> None:
    kv = build(4)
    kv.sequence(list(range(8)), who, written=True).release()
    with contextlib.suppress(TokenError):
        assert kv.match(np.arange(8, dtype=">i4"), who).hit_tokens == 8


def test_an_empty_prompt(world: World) -> None:
    for empty in ([], (), np.array([], dtype=np.int32)):
        with unchanged(world.kv), pytest.raises(TokenError) as caught:
            world.kv.sequence(empty, world.who)
        assert caught.value.numbers == {"tokens": 0}
    assert world.kv.match([], world.who).hit_tokens == 0
    with unchanged(world.kv):
        assert world.seq.append([]).frames.size == 0


def test_more_tokens_than_the_pool_could_ever_hold(world: World) -> None:
    most = 16 * 4
    with unchanged(world.kv), pytest.raises(CapacityError) as caught:
        world.kv.sequence(np.zeros(most + 1, dtype=np.int32), world.who)
    assert caught.value.numbers == {"tokens": most + 1, "frames": 16}
    world.child.copied()
    with unchanged(world.kv), pytest.raises(CapacityError):
        world.seq.append(np.zeros(most, dtype=np.int32))


def test_more_frames_than_the_tenant_may_have_now(world: World) -> None:
    with unchanged(world.kv), pytest.raises(QuotaError) as caught:
        admit(world.kv, world.who, *range(50, 63))
    assert caught.value.numbers["cap"] == 12
    assert caught.value.numbers["short"] > 0


def test_tokens_without_a_length_under_a_preset_that_leaves_the_last_one(who: Identity) -> None:
    kv = BlockManager.preset("vllm", 8, 4)
    for tokens in (5, None, object()):
        with pytest.raises(TokenError):
            kv.sequence(tokens, who)
    with kv.sequence((i for i in range(8)), who) as seq:
        assert seq.num_tokens == 8
