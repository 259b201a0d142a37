"""Death at every single change of a file: what was acknowledged is there and equal, nothing torn counts, the books are exact."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tenure.errors import TierError
from tenure.tiers import DiskTier, Record
from tenure.tiers.index import Index

from .dying import Killed, dying
from .making import MIB, OTHER_SPACE, PAGED, SPACE, block, record, restored

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="writes half a page through /proc")

CAP, LARGER, SMALLER = 3 * MIB // 8, MIB // 2, 5 * MIB // 16
FILES = re.compile(r"(store|index|namespaces|lock|segment-\d{6})\.tenure")


class Books:
    """What a store has acknowledged, by frame, and what is in flight."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cap = CAP
        self.kept: dict[int, Record] = {}
        self.names: dict[int, int] = {}
        self.doubtful: set[int] = set()
        self.dropped: set[bytes] = set()
        self.tier: DiskTier | None = None

    def open(self, cap: int) -> None:
        self.cap = cap
        tier = DiskTier(self.folder, PAGED, cap, segment_bytes=6 * PAGED.nbytes)
        self.tier = tier
        self.kept = {frame: told for frame, told in self.kept.items() if frame < tier.frames}

    def put(self, *names_at: tuple[int, int], namespace: bytes = SPACE) -> None:
        assert self.tier is not None
        frames = [frame for frame, _ in names_at]
        records = [record(PAGED, name, namespace) for _, name in names_at]
        self._begin(frames)
        assert self.tier.write(frames, [block(PAGED, name) for _, name in names_at], records) == [None] * len(frames)
        for (frame, name), told in zip(names_at, records, strict=True):
            self.kept[frame] = told
            self.names[frame] = name
        self.doubtful.clear()

    def erase(self, *frames: int) -> None:
        assert self.tier is not None
        self._begin(list(frames))
        assert self.tier.erase(frames) == [None] * len(frames)
        self.doubtful.clear()

    def drop(self, namespace: bytes) -> None:
        assert self.tier is not None
        of_it = [frame for frame, told in self.kept.items() if told.namespace == namespace]
        self._begin(of_it)
        self.tier.drop_namespace(namespace)
        self.dropped.add(namespace)
        self.doubtful.clear()

    def _begin(self, frames: list[int]) -> None:
        self.doubtful = set(frames)
        for frame in frames:
            self.kept.pop(frame, None)


def life(books: Books) -> None:
    """Creation, writes of one and many, rewriting, erasing, a namespace that is dropped and taken up again, growth, shrinking."""
    books.open(CAP)
    tier = books.tier
    assert tier is not None
    tier.put_namespace(SPACE, b"one")
    tier.put_namespace(OTHER_SPACE, b"two")
    books.put((0, 10), (1, 11), (2, 12), (5, 15), (6, 16), (7, 17))
    books.put((3, 20), (4, 21), namespace=OTHER_SPACE)
    books.put((1, 30), (2, 31))
    books.erase(0, 5)
    books.drop(OTHER_SPACE)
    tier.put_namespace(OTHER_SPACE, b"two again")
    books.dropped.clear()
    books.put((4, 40), namespace=OTHER_SPACE)
    tier.close()
    books.open(LARGER)
    tier = books.tier
    assert tier.frames > 12
    list(tier.scan())
    books.put((0, 50), (tier.frames - 1, 51))
    tier.close()
    books.open(SMALLER)
    books.put((0, 60))
    books.tier.close()


def check(books: Books) -> None:
    """The store as a new process finds it."""
    if books.tier is not None:
        books.tier.close()
    with DiskTier(books.folder, PAGED, books.cap, segment_bytes=6 * PAGED.nbytes) as tier:
        assert tier.used_bytes() <= books.cap
        assert all(FILES.fullmatch(name) for name in os.listdir(books.folder))
        found = restored(tier)
        for frame in books.kept:
            assert frame >= tier.frames or frame in found, f"frame {frame} was acknowledged and is lost"
        for frame, (told, data) in found.items():
            assert told.namespace not in books.dropped, f"frame {frame} is of a dropped namespace"
            if frame not in books.doubtful:
                assert books.kept.get(frame) == told, f"frame {frame} holds what nobody put there last"
                assert data == block(PAGED, books.names[frame]).tobytes()
        if SPACE in tier.namespaces():
            room = [frame for frame in range(tier.frames) if frame not in found]  # all others are free again
            records = [record(PAGED, 1000 + frame) for frame in room]
            assert tier.write(room, [block(PAGED, 1000 + frame) for frame in room], records) == [None] * len(room)
        assert tier.used_bytes() <= books.cap


def lives_until(folder: Path, at: int, how: str, story: Callable[[Books], None] = life) -> tuple[Books, bool]:
    """The books after a death at change `at`; and whether it came to that."""
    books = Books(folder)
    with dying(at, how):
        try:
            story(books)
        except Killed:
            return books, True
    return books, False


@pytest.mark.parametrize("how", ["before", "middle", "after"])
def test_death_at_every_change(tmp_path: Path, how: str) -> None:
    at, died = 0, True
    while died:
        books, died = lives_until(tmp_path / str(at), at, how)
        check(books)
        at += 1
    assert at > 60  # it was a long life


def test_death_while_the_dead_is_restored(tmp_path: Path) -> None:
    """A second death, in the opening after the first."""
    for at in range(0, 60, 7):
        for again in range(6):
            books, _ = lives_until(tmp_path / f"{at}-{again}", at, "middle")
            if books.tier is not None:
                books.tier.close()
            with dying(again, "middle"):
                try:
                    books.open(books.cap)
                    assert books.tier is not None
                    list(books.tier.scan())
                except Killed:
                    pass
            check(books)


def test_the_check_sees_a_store_that_does_not_empty_the_entry_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Index, "empty", lambda self, frames: {})
        assert _some_death_is_seen(tmp_path)


def test_the_check_sees_a_store_that_writes_the_entry_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tenure.tiers.places import Places

    real = Places.put
    waiting: list[tuple[Places, dict[int, memoryview]]] = []

    def late(self: Places, pieces: dict[int, memoryview]) -> dict[int, TierError]:
        """Slots are written only after the entries that come behind them."""
        if self._each == 6:  # the slots
            waiting.append((self, dict(pieces)))
            return {}
        failed = real(self, pieces)
        if any(bytes(piece[:8]) != bytes(8) for piece in pieces.values()):
            while waiting:
                real(*waiting.pop())
        return failed

    with monkeypatch.context() as patch:
        patch.setattr(Places, "put", late)
        assert _some_death_is_seen(tmp_path)


def _some_death_is_seen(folder: Path) -> bool:
    at, died, seen = 0, True, ""
    while died and not seen:
        books, died = lives_until(folder / str(at), at, "middle")
        try:
            check(books)
        except AssertionError as error:
            seen = str(error)
        at += 1
    return "a block was restored that cannot be read" in seen
