"""The KV of the toy engine: bytes that say whose they are, under which epochs and of which tokens they were computed.
Used by the node processes, which make them, and by the checker, which makes them again; knows nothing of the product."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

HEAD = 128
"""The first bytes of a block are its stamp, in plain words."""


class Space(NamedTuple):
    """Whose KV it is. Each field has an epoch of its own that can be bumped."""

    tenant: str
    model: str
    weights: str

    @property
    def families(self) -> tuple[str, ...]:
        """The epoch families that it belongs to, one a field."""
        return tuple(f"{name}={value}" for name, value in zip(self._fields, self, strict=True))


class Stamp(NamedTuple):
    """What a block says of itself. `labels`: one a family of its space, as the driver counts epochs. `digest`: of all that and
    of every token up to the block's end."""

    space: Space
    labels: tuple[int, ...]
    depth: int
    digest: str

    def __str__(self) -> str:
        return "|".join((*self.space, ".".join(map(str, self.labels)), str(self.depth), self.digest))


def read_stamp(text: str) -> Stamp | None:
    """None for what is no stamp."""
    parts = text.split("|")
    if len(parts) != 6:
        return None
    try:
        labels = tuple(int(label) for label in parts[3].split("."))
        stamp = Stamp(Space(*parts[:3]), labels, int(parts[4]), parts[5])
    except ValueError:
        return None
    return stamp if len(labels) == len(Space._fields) else None


def links(space: Space, tokens: Sequence[int], size: int) -> list[bytes]:
    """For each full block a digest of its space and of all tokens up to its end."""
    link = _digest([part.encode() for part in space])
    found = []
    for block in range(len(tokens) // size):
        link = _digest([link, *(b"%d" % token for token in tokens[block * size : (block + 1) * size])])
        found.append(link)
    return found


@lru_cache(maxsize=1 << 14)
def kv(space: Space, labels: tuple[int, ...], depth: int, link: bytes, nbytes: int) -> bytes:
    """The bytes of a block: its stamp, and what the stamp expands to."""
    digest = _digest([*(part.encode() for part in space), *(b"%d" % label for label in labels), b"%d" % depth, link])
    head = str(Stamp(space, labels, depth, digest.hex())).encode().ljust(HEAD, b"\0")
    if len(head) != HEAD:
        raise ValueError(f"the names of {space} are too long for a stamp of {HEAD} bytes")
    return head + hashlib.shake_128(head).digest(nbytes - HEAD)


def look(block: bytes | memoryview) -> tuple[str, str]:
    """What a process notes of bytes that it was served: the stamp as it stands there, and a digest of every byte."""
    data = bytes(block)
    return data[:HEAD].rstrip(b"\0").decode("latin-1"), hashlib.blake2b(data, digest_size=8).hexdigest()


@lru_cache(maxsize=1 << 16)
def looks_like(space: Space, labels: tuple[int, ...], depth: int, link: bytes, nbytes: int) -> tuple[str, str]:
    """What `look` must find in a right block."""
    return look(kv(space, labels, depth, link, nbytes))


def _digest(parts: Iterable[bytes]) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(4, "little") + part)
    return digest.digest()
