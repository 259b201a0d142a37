"""What stands for a block in a pool: its head, which says that it is being written or where its bytes are; and the names of keys.
Read and written by pool tiers and their scripts; heads are text, so that any client can show them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tenure.errors import ConfigError
from tenure.tiers.codec import Codec
from tenure.tiers.layout import BlockLayout

__all__ = ["MOST_CHUNKS", "Claim", "ClaimCounters", "Families", "Get", "Head", "Keys", "Look", "Put", "parse"]

MOST_CHUNKS = 1024
"""Pieces that a payload may be cut into."""
_MOST_BYTES = 1 << 40


class Claim(NamedTuple):
    """Somebody is writing the block: the claim's own token, and who says so."""

    token: bytes
    owner: bytes

    def encode(self) -> bytes:
        """As it stands in the pool."""
        return b"claim %b %b" % (self.token, self.owner)


class Head(NamedTuple):
    """A committed block: the token of the claim that it was written under, bytes of its envelope (its record) and of its payload,
    bytes of each chunk of the payload but the last (0: it lies in another data plane), and when its content expires (seconds
    since the epoch, math.inf for never). The envelope is in front of the first chunk."""

    token: bytes
    envelope: int
    payload: int
    chunk: int
    expires: float = math.inf

    @property
    def chunks(self) -> int:
        """How many pieces the payload has."""
        return max(1, -(-self.payload // self.chunk)) if self.chunk else 0

    def encode(self) -> bytes:
        """As it stands in the pool; the expiry in whole milliseconds, 0 for never."""
        expires = 0 if math.isinf(self.expires) else max(1, round(self.expires * 1000))
        return b"block %b %d %d %d %d" % (self.token, self.envelope, self.payload, self.chunk, expires)


def parse(value: bytes) -> Head | Claim | None:
    """What stands at a block's head; None for anything that this version did not write."""
    words = value.split(b" ")
    if words[0] == b"claim" and len(words) == 3:
        return Claim(words[1], words[2])
    if words[0] != b"block" or len(words) != 6 or not all(word.isdigit() and len(word) < 16 for word in words[2:]):
        return None
    envelope, payload, chunk, expires = map(int, words[2:])
    head = Head(words[1], envelope, payload, chunk, expires / 1000 if expires else math.inf)
    if envelope + payload > _MOST_BYTES or head.chunks > MOST_CHUNKS:
        return None
    return head


class Look(NamedTuple):
    """What a pool has of a chain: the heads of the longest prefix that is committed, the value of each epoch family asked for
    (None: there is no such family), and the round trips that this took."""

    heads: list[Head]
    values: list[int | None]
    trips: int


class Families(list[int]):
    """Values of epoch families in the order asked for. `confirmed`: a replica has them too; True as well where there is none."""

    def __init__(self, values: Sequence[int], confirmed: bool) -> None:
        super().__init__(values)
        self.confirmed = confirmed


class ClaimCounters(NamedTuple):
    """What came of writing: claims won, blocks that were committed already, commits that were refused, those of them where
    somebody else had taken over; and round trips of every sort."""

    won: int
    already: int
    refused: int
    taken_over: int
    trips: int


class Put(NamedTuple):
    """A block to be stored under a claim that was won: its bytes, the head that is to stand for it, and what makes its envelope,
    which is best done just before its bytes are sent."""

    digest: bytes
    head: Head
    payload: memoryview
    seal: Callable[[], bytes]


class Get(NamedTuple):
    """A block to be fetched: where it is, and the memory for its envelope and its payload, of just their sizes."""

    digest: bytes
    head: Head
    envelope: memoryview
    payload: memoryview


class Keys:
    """The names of a pool's keys. Those of one block share a hash tag, so that a cluster has them in one place; so do those of
    all families, and all small entries. Blocks of another layout or codec have other names.

    Raises ConfigError for a prefix that is empty, has braces, blanks or other than printable ASCII.
    """

    def __init__(self, prefix: str, layout: BlockLayout, codec: Codec) -> None:
        good = isinstance(prefix, str) and prefix and prefix.isascii() and prefix.isprintable()
        if not good or set(prefix) & set("{} "):
            raise ConfigError(f"prefix is {prefix!r}: printable ASCII without blanks and braces is needed")
        size = layout.layout
        form = f"1 {layout.dtype} {layout.shape} {size.shard} {size.shards} {codec.id}"
        mark = hashlib.blake2b(form.encode(), digest_size=4).hexdigest()
        self._block = f"{prefix}:{mark}:".encode()
        self._family = f"{prefix}:{{{prefix}:families}}:".encode()
        self._name = f"{prefix}:{{{prefix}:names}}:".encode()
        self.names = f"{prefix}:{{{prefix}:names}}".encode()
        """The set of all names of small entries."""

    def head(self, digest: bytes) -> bytes:
        """Of a block's head."""
        return b"%b{%b}h" % (self._block, digest.hex().encode())

    def chunks(self, digest: bytes, token: bytes, count: int) -> list[bytes]:
        """Of the pieces that were written under a token."""
        stem = b"%b{%b}d%b:" % (self._block, digest.hex().encode(), token)
        return [b"%b%d" % (stem, number) for number in range(count)]

    def payload(self, digest: bytes, token: bytes) -> bytes:
        """Of the whole in another data plane."""
        return b"%b%b:%b" % (self._block, digest.hex().encode(), token)

    def family(self, family: bytes) -> bytes:
        """Of an epoch family's value."""
        return self._family + family.hex().encode()

    def name(self, name: str) -> bytes:
        """Of a small entry."""
        return self._name + name.encode()
