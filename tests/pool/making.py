"""What the pool's tests share: tiers on a server with prefixes of their own, blocks in them, and a plain look behind them."""

from __future__ import annotations

import itertools
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from tenure.errors import TierError
from tenure.tiers import BlockLayout
from tenure.tiers.base import Outcome
from tenure.tiers.valkey import ValkeyTier
from tenure.tiers.valkey_client import Command
from tests.pool.servers import Cluster, Server, command
from tests.tiers.making import PAGED, block, buffers, record

T = TypeVar("T")
CHUNK = 3000
"""Bytes: a block of the layout PAGED has three chunks, and so four keys."""
KEYS = 4
_serial = itertools.count()


def prefix() -> str:
    """One that nothing else has on a server that tests share."""
    return f"t{os.getpid()}.{next(_serial)}"


def pool(url: str, layout: BlockLayout = PAGED, kind: type[ValkeyTier] = ValkeyTier, **settings: Any) -> ValkeyTier:
    """A tier for which no record of the tests has expired."""
    given = {"frames": 64, "wall": lambda: 0.0, "chunk_bytes": CHUNK, "prefix": prefix(), "timeout": 20.0}
    return kind(layout, url, **(given | settings))


@contextmanager
def hurried(tier: ValkeyTier, seconds: float) -> Iterator[None]:
    """A tier's calls meanwhile take so long at most; those before and after, which are to succeed, have all the time there is."""
    kept, tier._timeout = tier._timeout, seconds
    try:
        yield
    finally:
        tier._timeout = kept


def again(tier: ValkeyTier, **settings: Any) -> ValkeyTier:
    """Another node on the same pool."""
    return pool(tier.url, tier.layout, prefix=prefix_of(tier), codec=tier.codec, **settings)


def prefix_of(tier: ValkeyTier) -> str:
    return tier._keys.names.decode().split(":")[0]


def write(tier: ValkeyTier, *frames: int) -> list[str | None]:
    """Into each frame the block of its number; why each was refused."""
    blocks, records = [block(tier.layout, n) for n in frames], [record(tier.layout, n) for n in frames]
    return _told(frames, tier.write(frames, blocks, records))


def read(tier: ValkeyTier, *frames: int) -> list[str | None]:
    """Why each frame was refused; what is not refused must be right."""
    into = buffers(tier.layout, len(frames))
    outcomes = tier.read(frames, [record(tier.layout, n) for n in frames], into)
    for frame, outcome, data in zip(frames, outcomes, into, strict=True):
        assert outcome is not None or bytes(data) == block(tier.layout, frame).tobytes()
    return _told(frames, outcomes)


def _told(frames: Sequence[int], outcomes: Sequence[Outcome]) -> list[str | None]:
    for frame, outcome in zip(frames, outcomes, strict=True):
        if outcome is not None:
            print(f"block {frame} was refused: {outcome}", file=sys.stderr)  # shown where the test fails
    return [outcome and outcome.kind for outcome in outcomes]


def digests(*frames: int, layout: BlockLayout = PAGED) -> list[bytes]:
    return [record(layout, n).digest for n in frames]


def learn(tier: ValkeyTier, *frames: int) -> int:
    """Looks the blocks up as a chain, and knows those that were found; how many."""
    heads = tier.look(digests(*frames, layout=tier.layout), []).heads
    for frame, head in zip(frames, heads, strict=False):
        tier.know(frame, record(tier.layout, frame), head)
    return len(heads)


def asked(call: Callable[[], object]) -> str | None:
    """Why a call that raises was refused."""
    try:
        call()
    except TierError as error:
        return error.kind
    return None


def keys(where: Server | Cluster, tier: ValkeyTier) -> list[str]:
    """All keys of a pool, as a plain client sees them; without the prefix."""
    servers = where.primaries() if isinstance(where, Cluster) else [where]
    found = itertools.chain(*(server.command("KEYS", f"{prefix_of(tier)}:*") for server in servers))
    return sorted(key.decode() for key in found)


def head_key(tier: ValkeyTier, frame: int) -> bytes:
    return tier._keys.head(record(tier.layout, frame).digest)


def parts(where: Server, tier: ValkeyTier, frame: int) -> list[bytes]:
    """The keys of a block's chunks, in order."""
    return sorted(where.command("KEYS", head_key(tier, frame)[:-1] + b"d*"), key=lambda key: int(key.rpartition(b":")[2]))


def run_out(tier: ValkeyTier, keys: Iterable[bytes], most: float) -> None:
    """Lets the time of keys of a tier's pool run out at once; fails for one that has not some of it, `most` seconds at most."""
    for key in keys:
        commands = [Command(key, (b"PTTL", key)), Command(key, (b"PEXPIRE", key, b"1"))]
        left, done = tier._client.run(commands, 60.0).replies
        assert isinstance(left, int), left
        assert 0 < left <= 1000 * most, key
        assert done == 1


def in_time(call: Callable[[], T], most: float) -> T:
    """What a call gives; fails when it takes longer than `most` seconds, which is far more than it may."""
    result: list[T] = []
    thread = threading.Thread(target=lambda: result.append(call()), daemon=True)
    thread.start()
    thread.join(most)
    assert result, "the call hangs or raised"
    return result[0]


__all__ = [name for name in globals() if not name.startswith("_")] + ["command"]
