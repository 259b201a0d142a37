"""What every tier promises, whatever its medium and its codec."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tenure.errors import ConfigError
from tenure.tiers import CODECS, KINDS, BlockLayout, Tier

from .making import LAYOUTS, OTHER_SPACE, PAGED, SMALL, TIERS, Kind, block, buffers, codec, decoded, record

FRAMES = 12
Make = Callable[..., Tier]


@pytest.fixture(params=TIERS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def make(kind: Kind, tmp_path: Path) -> Iterator[Make]:
    made: list[Tier] = []

    def make(layout: BlockLayout = PAGED, name: str = "raw") -> Tier:
        made.append(kind.make(tmp_path, layout, codec(name), FRAMES))
        return made[-1]

    yield make
    for tier in made:
        tier.close()


def filled(tier: Tier, frames: list[int]) -> None:
    blocks = [block(tier.layout, frame) for frame in frames]
    assert tier.write(frames, blocks, [record(tier.layout, frame) for frame in frames]) == [None] * len(frames)


def kinds(outcomes: list[object]) -> list[str | None]:
    return [getattr(outcome, "kind", None) for outcome in outcomes]


def found(tier: Tier, frames: list[int]) -> list[str | None]:
    """Reads frames that `filled` wrote; each must be right, or say why not."""
    into = buffers(tier.layout, len(frames))
    outcomes = tier.read(frames, [record(tier.layout, frame) for frame in frames], into)
    for frame, outcome, data in zip(frames, outcomes, into, strict=True):
        if outcome is None:
            assert bytes(data) == decoded(tier, block(tier.layout, frame)), frame
    return kinds(outcomes)


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_written_is_read_again(make: Make, layout: str, name: str) -> None:
    tier = make(LAYOUTS[layout], name)
    assert tier.frames >= FRAMES
    filled(tier, [3, 1, 2, 7, 0, 11, 10])  # neighbours, out of order, over the borders of segments
    assert found(tier, [11, 0, 1, 2, 3, 7, 10]) == [None] * 7
    assert found(tier, [2]) == [None]
    if tier.codec.lossless:
        assert decoded(tier, block(tier.layout, 1)) == block(tier.layout, 1).tobytes()


def test_a_frame_without_a_block_is_empty(make: Make) -> None:
    tier = make()
    filled(tier, [1])
    assert found(tier, [0, 1, 2]) == ["empty", None, "empty"]


@pytest.mark.parametrize(
    "changes",
    [
        {"namespace": OTHER_SPACE},
        {"digest": bytes(32)},
        {"parent": bytes(32)},
        {"depth": 1000},
        {"tokens": bytes(64)},
        {"extra": b"another image"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_only_the_very_block_is_given(make: Make, changes: dict[str, object]) -> None:
    tier = make()
    filled(tier, [4])
    wrong = replace(record(tier.layout, 4), **changes)
    assert kinds(tier.read([4], [wrong], buffers(tier.layout, 1))) == ["foreign"]
    assert found(tier, [4]) == [None]


def test_when_a_block_expires_is_no_part_of_what_it_is(make: Make) -> None:
    tier = make()
    filled(tier, [4])
    assert tier.read([4], [replace(record(tier.layout, 4), expires=1.0)], buffers(tier.layout, 1)) == [None]


def test_a_frame_can_be_written_again(make: Make) -> None:
    tier = make()
    filled(tier, [0, 1, 2])
    assert tier.write([1], [block(tier.layout, 50)], [record(tier.layout, 50)]) == [None]
    assert found(tier, [0, 1, 2]) == [None, "foreign", None]
    into = buffers(tier.layout, 1)
    assert tier.read([1], [record(tier.layout, 50)], into) == [None]
    assert bytes(into[0]) == block(tier.layout, 50).tobytes()


def test_erased_frames_are_empty(make: Make) -> None:
    tier = make()
    filled(tier, [0, 1, 2, 3])
    assert tier.erase([2, 0]) == [None, None]
    assert found(tier, [0, 1, 2, 3]) == ["empty", None, "empty", None]
    assert tier.erase([2]) == [None]  # once more is no harm


@pytest.mark.parametrize("name", ["int8", "int4", "fp8"])
def test_a_block_that_cannot_be_encoded_leaves_its_frame_empty_and_the_others_alone(make: Make, name: str) -> None:
    tier = make(PAGED, name)
    filled(tier, [0, 1, 2])
    infinite = block(tier.layout, 1)
    infinite[:2] = (0x80, 0x7F)  # bf16 infinity
    outcomes = tier.write(
        [0, 1, 2], [block(tier.layout, 0), infinite, block(tier.layout, 2)], [record(tier.layout, i) for i in range(3)]
    )
    assert kinds(outcomes) == [None, "codec", None]
    assert found(tier, [0, 1, 2]) == [None, "empty", None]


def test_every_sort_of_buffer_is_taken(make: Make) -> None:
    tier = make()
    data = block(tier.layout, 0)
    unaligned = np.frombuffer(b"\0" + data.tobytes(), np.uint8)[1:]
    as_halves = data.view(np.uint16).reshape(tier.layout.shape)
    given = [data, data.tobytes(), bytearray(data), memoryview(data), unaligned, as_halves]
    frames = list(range(len(given)))
    assert tier.write(frames, given, [record(tier.layout, 0)] * len(given)) == [None] * len(given)
    into = [np.empty(tier.layout.shape, np.uint16), bytearray(len(data) + 1), *buffers(tier.layout, 4)]
    shifted = [into[0], memoryview(into[1])[1:], *into[2:]]
    assert tier.read(frames, [record(tier.layout, 0)] * len(given), shifted) == [None] * len(given)
    assert all(np.asarray(memoryview(got).cast("B")).tobytes() == data.tobytes() for got in shifted)


BAD = {
    "frame below": lambda tier, b, r: tier.write([-1], [b], [r]),
    "frame above": lambda tier, b, r: tier.write([tier.frames], [b], [r]),
    "frame of a wrong type": lambda tier, b, r: tier.write([1.5], [b], [r]),
    "frame twice": lambda tier, b, r: tier.write([1, 1], [b, b], [r, r]),
    "fewer blocks": lambda tier, b, r: tier.write([1, 2], [b], [r, r]),
    "fewer records": lambda tier, b, r: tier.write([1, 2], [b, b], [r]),
    "short block": lambda tier, b, r: tier.write([1], [b[1:]], [r]),
    "long block": lambda tier, b, r: tier.write([1], [np.append(b, b)], [r]),
    "not contiguous": lambda tier, b, r: tier.write([1], [np.repeat(b, 2)[::2]], [r]),
    "no buffer": lambda tier, b, r: tier.write([1], ["text"], [r]),
    "no record": lambda tier, b, r: tier.write([1], [b], [None]),
    "another layout": lambda tier, b, r: tier.write([1], [b], [record(SMALL, 1)]),
    "one of two bad": lambda tier, b, r: tier.write([1, 2], [b, b[1:]], [r, r]),
    "read-only target": lambda tier, b, r: tier.read([1], [r], [bytes(b)]),
    "short target": lambda tier, b, r: tier.read([1], [r], [bytearray(1)]),
    "erase above": lambda tier, b, r: tier.erase([1, tier.frames]),
}


@pytest.mark.parametrize("call", BAD)
def test_a_wrong_argument_changes_nothing(make: Make, call: str) -> None:
    tier = make()
    filled(tier, [0, 1, 2])
    before = tier.counters
    with pytest.raises(ConfigError):
        BAD[call](tier, block(tier.layout, 60), record(tier.layout, 60))
    assert tier.counters == before
    assert found(tier, [0, 1, 2]) == [None] * 3


def test_the_counters_add_up(make: Make) -> None:
    tier = make()
    filled(tier, [0, 1, 2])
    found(tier, [0, 1, 5])
    tier.erase([0])
    found(tier, [0])
    count = tier.counters
    assert (count.writes, count.reads, count.erased) == (3, 2, 1)
    assert count.refused == {"empty": 2}
    assert (count.bytes_written, count.bytes_read) == (3 * tier.block_bytes, 2 * tier.block_bytes)


def test_a_closed_tier_refuses_block_by_block(make: Make) -> None:
    tier = make()
    filled(tier, [0])
    tier.close()
    tier.close()
    assert found(tier, [0, 1]) == ["closed", "closed"]
    assert kinds(tier.write([0], [block(tier.layout, 0)], [record(tier.layout, 0)])) == ["closed"]
    assert kinds(tier.erase([0])) == ["closed"]
    assert tier.counters.refused == {"closed": 4}


def test_every_refusal_is_of_a_known_kind(make: Make) -> None:
    tier = make()
    found(tier, [0])
    tier.close()
    found(tier, [0])
    assert set(tier.counters.refused) <= set(KINDS)


def test_threads_may_work_on_frames_of_their_own(make: Make) -> None:
    tier = make()
    wrong: list[object] = []

    def work(frame: int) -> None:
        for turn in range(20):
            name = 100 * frame + turn
            into = buffers(tier.layout, 1)
            outcome = tier.write([frame], [block(tier.layout, name)], [record(tier.layout, name)])
            outcome += tier.read([frame], [record(tier.layout, name)], into)
            if outcome != [None, None] or bytes(into[0]) != block(tier.layout, name).tobytes():
                wrong.append((frame, turn, outcome))

    threads = [threading.Thread(target=work, args=(frame,)) for frame in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert (tier.counters.writes, tier.counters.reads) == (80, 80)
