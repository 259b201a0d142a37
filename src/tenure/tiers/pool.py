"""A pool that nodes share, as a tier of one of them: a frame is this node's knowledge that the pool has a block.
Called by whoever moves blocks; it never deletes what others may use, and believes nothing in the pool that it has not proven."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, TypeVar

from tenure.checks import integer, seconds
from tenure.errors import ConfigError, RecordError, TierError
from tenure.tiers.base import Outcome, Tier
from tenure.tiers.codec import Codec, Raw
from tenure.tiers.heads import ClaimCounters, Families, Get, Head, Look, Put
from tenure.tiers.layout import BlockLayout
from tenure.tiers.record import Record, checked_key, entry_bytes, pack, packed_bytes, unpack

__all__ = ["TOGETHER", "ClaimCounters", "Families", "Get", "Head", "Look", "PoolTier", "Put"]

T = TypeVar("T")
TOGETHER = 8 << 20
"""Bytes that are moved in one round trip, so that a slow pool fails soon and a checksum finds its payload in the cache."""
_BROKEN = frozenset({"empty", "torn", "checksum"})
"""Kinds of TierError after which a committed block is of use to nobody."""


class PoolTier(Tier):
    """frames: blocks of the pool that this node knows of at a time. key: 16 to 64 secret bytes that all nodes have; records are
    then signed, unsigned and wrongly signed ones refused. claimed: what a lookup does at a block that somebody is writing:
    "compute" ends the prefix there, "wait" waits for it, at most `claim_wait` seconds. wall: seconds since the epoch.

    `capacity_bytes`: the most that the blocks known to this node take of the pool; of this machine's memory a frame has a record.

    `write` puts a block into the pool unless it is there already: either way its outcome is None and the frame knows it. A block
    that another node is writing is refused as `claimed`, one whose claim ran out as `late`. `read` gives only what is proven, as
    every tier; what turns out to be lost or damaged is taken out of the pool, so that it can be written again. `erase` makes this
    node forget.

    What is asked beside blocks (`look`, `extend`, families, small entries) raises TierError (io, full, closed) when the pool does
    not answer in time or refuses. A family is named by bytes, its value an integer below 2**53; a small entry is named by text.

    Raises ConfigError for a bad setting.
    """

    def __init__(
        self,
        name: str,
        layout: BlockLayout,
        codec: Codec | None,
        frames: int,
        *,
        key: bytes | None = None,
        claimed: Literal["compute", "wait"] = "compute",
        claim_wait: float = 2.0,
        wall: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(name, layout, codec or Raw())
        self.frames = integer("frames", frames, 1, (1 << 31) - 1)
        self._bound = self.codec.bound(layout)
        self._envelope = entry_bytes(layout.block_size)
        self.capacity_bytes = self.frames * (self._bound + self._envelope)
        self._key = checked_key(key)
        if claimed not in ("compute", "wait"):
            raise ConfigError(f"claimed is {claimed!r}: 'compute' or 'wait' is needed")
        self._claim_wait = seconds("claim_wait", claim_wait) if claimed == "wait" else 0.0
        self._wall = wall
        self._known: dict[int, tuple[Record, Head]] = {}
        self._learned: OrderedDict[bytes, Head] = OrderedDict()  # by digest: found since the block was last known or written

    def learn(self, digests: Sequence[bytes], heads: Sequence[Head]) -> None:
        """These blocks have been found to have these heads: those that have frames already, from now on, and those that will be
        given one, until `know` says which."""
        with self._gate:
            for digest, head in zip(digests, heads, strict=True):
                self._learned[digest] = head
                self._learned.move_to_end(digest)
            while len(self._learned) > self.frames:
                self._learned.popitem(last=False)

    def know(self, frame: int, record: Record, head: Head) -> None:
        """From now on this frame is the block that `look` found under the record's digest."""
        (place,) = self._places([frame])
        self._checked([record])
        if not isinstance(head, Head):
            raise ConfigError(f"head is {head!r}: a Head that look gave is needed")
        self._now_known(place, record, head)

    @property
    def claims(self) -> ClaimCounters:
        """What came of writing so far."""
        with self._gate:
            return ClaimCounters(*(self._totals[name] for name in ClaimCounters._fields))

    # -- what is asked of the pool beside blocks

    @abstractmethod
    def look(self, digests: Sequence[bytes], families: Sequence[bytes], wait: float | None = None) -> Look:
        """One lookup of a digest chain, first block first, and of epoch families, in one round trip or two. The values are read
        with the first blocks. wait: seconds for a block that is being written, None for the tier's own setting; each time it is
        asked for again is one more trip."""

    @abstractmethod
    def extend(self, digests: Sequence[bytes], duration: float) -> list[bool]:
        """These blocks stay for so many seconds more at least, if the pool does not run full and their content does not expire;
        which of them are there. One round trip."""

    @abstractmethod
    def bump(self, families: Sequence[bytes], replicas: int | None = None) -> Families:
        """A higher value for each family, all at once: max(old + 1, the server's time in microseconds). replicas: how many must
        have it before this returns, in time; None for one where there is one, and always in a cluster."""

    @abstractmethod
    def ensure(self, families: Sequence[bytes]) -> Families:
        """The value of each family; a fresh one for those that the pool does not know."""

    @abstractmethod
    def read_families(self, families: Sequence[bytes]) -> list[int | None]:
        """The value of each family; None for those that the pool does not know."""

    @abstractmethod
    def raise_families(self, values: Mapping[bytes, int]) -> Families:
        """Raises families to at least these values; what they are then."""

    @abstractmethod
    def get(self, name: str) -> bytes | None:
        """A small entry's value; None when there is none."""

    @abstractmethod
    def put(self, name: str, value: bytes, ttl: float | None = None) -> None:
        """Sets a small entry. ttl: seconds until it is gone, None for never."""

    @abstractmethod
    def swap(self, name: str, old: bytes | None, new: bytes, ttl: float | None = None) -> bool:
        """Sets a small entry if its value is `old` (None: if there is none); whether it was."""

    @abstractmethod
    def delete(self, name: str) -> bool:
        """Takes a small entry out; whether it was there."""

    @abstractmethod
    def entries(self, prefix: str = "") -> dict[str, bytes]:
        """The small entries whose names begin so, sorted by name. One round trip."""

    # -- how blocks get there and back

    @abstractmethod
    def _claim(self, digests: Sequence[bytes]) -> list[bytes | Head | TierError]:
        """Of each: the token of the claim that was won, the head of the block that is there, or why neither."""

    @abstractmethod
    def _head(self, token: bytes, envelope: int, payload: int, expires: float) -> Head:
        """The head of a block of these sizes."""

    @abstractmethod
    def _store(self, puts: Sequence[Put]) -> list[Outcome]:
        """Writes and commits; nothing of what failed stays."""

    @abstractmethod
    def _fetch(self, gets: Sequence[Get], proven: Callable[[int], Outcome]) -> list[Outcome]:
        """Fills the memory; `empty` or `torn` for what is not there as its head says, else what `proven` says of it, best asked
        as soon as its bytes are there."""

    @abstractmethod
    def _discard(self, blocks: Sequence[tuple[bytes, bytes]]) -> None:
        """Takes out what stands under these digests, if it is the claim or the block with this token. Failures are not told."""

    # -- as a tier

    def _write(self, frames: list[int], blocks: list[memoryview], records: Sequence[Record]) -> list[Outcome]:
        for frame in frames:
            self._known.pop(frame, None)
        outcomes: list[Outcome] = []
        for part in _parts([self._bound] * len(frames)):
            if (down := _down(outcomes)) is not None:  # so that a pool that hangs costs one timeout, not one a part
                return outcomes + [down] * (len(frames) - len(outcomes))
            outcomes += self._write_part(frames[part], blocks[part], records[part])
        return outcomes

    def _write_part(self, frames: list[int], blocks: list[memoryview], records: Sequence[Record]) -> list[Outcome]:
        outcomes: list[Outcome] = [None] * len(frames)
        puts: dict[int, Put] = {}
        lost: list[tuple[bytes, bytes]] = []
        first: dict[bytes, int] = {}
        for place, record in enumerate(records):
            first.setdefault(record.digest, place)
        for place, claim in zip(first.values(), self._claim(list(first)), strict=True):
            record = records[place]
            if isinstance(claim, TierError):
                outcomes[place] = claim
            elif isinstance(claim, Head):
                self._count("already", 1)
                self._now_known(frames[place], record, claim)
            else:
                self._count("won", 1)
                try:
                    puts[place] = self._encoded(claim, blocks[place], record)
                except TierError as error:
                    outcomes[place] = error
                    lost.append((record.digest, claim))
        if lost:
            self._discard(lost)
        for place, outcome in zip(puts, self._store(list(puts.values())), strict=True):
            outcomes[place] = outcome
            if outcome is None:
                self._now_known(frames[place], records[place], puts[place].head)
                self._count("bytes_written", len(puts[place].payload))
        for place, record in enumerate(records):
            if (written := first[record.digest]) != place:  # named twice: what became of the first
                outcomes[place] = outcomes[written]
                if outcomes[place] is None:
                    self._known[frames[place]] = (record, self._known[frames[written]][1])
        return outcomes

    def _encoded(self, token: bytes, block: memoryview, record: Record) -> Put:
        if record.expires <= self._wall():
            raise TierError("late", "the block's content has expired", expires=record.expires)
        payload = memoryview(self.codec.encode(block, self.layout))
        head = self._head(token, packed_bytes(record), len(payload), record.expires)
        return Put(record.digest, head, payload, lambda: pack(record, self.codec.id, payload, key=self._key))

    def _read(self, frames: list[int], records: Sequence[Record], into: list[memoryview]) -> list[Outcome]:
        outcomes: list[Outcome] = [None] * len(frames)
        gets: dict[int, Get] = {}
        for place, (frame, record) in enumerate(zip(frames, records, strict=True)):
            known = self._known.get(frame)
            if (learned := self._learned.get(record.digest)) is not None:  # it may have been written anew, under another token
                known = (record, learned)
            wrong = self._differs(frame, known and known[0], record)
            if known is None or wrong is not None:
                outcomes[place] = wrong
            elif not self._fits(head := known[1]):
                outcomes[place] = TierError("foreign", f"frame {frame} of {self.name} has a head of another size", frame=frame)
            else:
                direct = isinstance(self.codec, Raw)
                payload = into[place] if direct else memoryview(bytearray(head.payload))
                gets[place] = Get(record.digest, head, memoryview(bytearray(head.envelope)), payload)
        places = list(gets)
        for part in _parts([len(gets[place].payload) for place in places]):
            now = places[part]
            if (down := _down(outcomes)) is None:
                came = self._fetch_part(
                    [gets[place] for place in now], [records[place] for place in now], [into[place] for place in now]
                )
            else:
                came = [down] * len(now)
            for place, outcome in zip(now, came, strict=True):
                outcomes[place] = outcome
        return outcomes

    def _fetch_part(self, gets: list[Get], records: list[Record], into: list[memoryview]) -> list[Outcome]:
        outcomes = self._fetch(gets, lambda place: self._proven(gets[place], records[place], into[place]))
        self._count("bytes_read", sum(len(get.payload) for get, outcome in zip(gets, outcomes, strict=True) if outcome is None))
        broken = [get for get, outcome in zip(gets, outcomes, strict=True) if outcome is not None and outcome.kind in _BROKEN]
        if broken:
            self._discard([(get.digest, get.head.token) for get in broken])
        return outcomes

    def _fits(self, head: Head) -> bool:
        """Whether a block of this layout and codec can have such a head."""
        if isinstance(self.codec, Raw) and head.payload != self.block_bytes:
            return False
        return head.payload <= self._bound and head.envelope <= self._envelope

    def _proven(self, get: Get, record: Record, out: memoryview) -> Outcome:
        """What is wrong with what was fetched; None when it is the very block, and in `out`."""
        try:
            envelope = unpack(get.envelope)
        except RecordError as error:
            return TierError("torn", f"the record in {self.name}: {error}")
        if envelope.record != record or envelope.codec != self.codec.id:
            return TierError("foreign", f"{self.name} has another block under this digest, or one of another codec")
        try:
            envelope.verify(get.payload, self._key)
            if get.payload is not out:
                self.codec.decode(get.payload, self.layout, out)
        except TierError as error:
            return error
        return None

    def _erase(self, frames: list[int]) -> list[Outcome]:
        for frame in frames:
            self._known.pop(frame, None)
        return [None] * len(frames)

    def _close(self) -> None:
        self._known.clear()

    # -- inside

    def _now_known(self, frame: int, record: Record, head: Head) -> None:
        self._known[frame] = (record, head)
        with self._gate:
            self._learned.pop(record.digest, None)

    def _asked(self, work: Callable[[], T]) -> T:
        """Does what is asked beside blocks; counts why it could not be done."""
        if not self._enter():
            raise TierError("closed", f"the tier {self.name} is closed")
        try:
            return work()
        except TierError as error:
            self._refuse(error.kind)
            raise
        finally:
            self._leave()


def _down(outcomes: Sequence[Outcome]) -> Outcome:
    """Why the pool did not answer, if it did not."""
    return next((outcome for outcome in outcomes if outcome is not None and outcome.kind == "io"), None)


def _parts(sizes: Sequence[int]) -> Iterator[slice]:
    """Consecutive parts of TOGETHER bytes at most, or of one that is larger."""
    start = total = 0
    for at, size in enumerate(sizes):
        if at > start and total + size > TOGETHER:
            yield slice(start, at)
            start, total = at, 0
        total += size
    if sizes:
        yield slice(start, len(sizes))
