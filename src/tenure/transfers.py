"""The copies between tiers as the manager orders them: what to write where, what is in a block, what was lost or found again.
Base of BlockManager, called by whoever owns the bytes; it moves none itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tenure import _core
from tenure._core import Request
from tenure.checks import integer
from tenure.identity import Identity

__all__ = ["BlockName", "Content", "Discovered", "Load", "Reach", "Transfers", "Write"]


class BlockName(NamedTuple):
    """One life of a block: its record and how often that has been used."""

    block: int
    generation: int


class Load(NamedTuple):
    """A hit whose bytes are in frame `source` of a lower tier and belong into device frame `target`. Where `tier` is "device"
    another request has brought them meanwhile: nothing is to be copied."""

    name: BlockName
    tier: str
    source: int
    target: int


class Write(NamedTuple):
    """An order to copy a block from frame `source` of tier `origin` to frame `target` of tier `tier`; both ends are held until
    `finish_write`."""

    transfer: int
    name: BlockName
    tier: str
    origin: str
    source: int
    target: int


class Reach(NamedTuple):
    """Of the full blocks of a prompt that may be hit: how many there are, and how many from the first on are in other tiers than
    the one asked about (nearer), and in that one (here)."""

    full: int
    nearer: int
    here: int


class Discovered(NamedTuple):
    """Block `at` of a prompt is known to be in frame `frame` of a lower tier now."""

    at: int
    name: BlockName
    frame: int


class Content(NamedTuple):
    """What a block's bytes are the KV of. `parent`: None for a first block; `expires`: on the manager's clock (inf: never)."""

    who: Identity
    parent: BlockName | None
    depth: int
    expires: float
    extra_key: bytes
    tokens: npt.NDArray[np.int32]


class Transfers:
    """The copying half of BlockManager."""

    tiers: tuple[str, ...]
    _core: _core.Pool
    _clock: Callable[[], float]
    _identities: list[Identity]
    _tier: Callable[[str], int]
    _enter: Callable[..., tuple[int, Any]]
    _request: Callable[..., Request]

    def take_writes(self, tier: str, most: int = 64, *, demote: int = 0) -> list[Write]:
        """Copies to make into a lower tier, about `most`: blocks that its write mode says are due, those before them first.
        demote: for a tier written to at eviction: how many of the next victims above to make clean. Each MUST be given to
        `finish_write`, in this order. Raises ConfigError for a tier that is not there.
        """
        integer("most", most, 0, 1 << 30)
        integer("demote", demote, 0, 1 << 30)
        return [
            Write(transfer, BlockName(block, generation), tier, self.tiers[origin], source, target)
            for transfer, block, generation, origin, source, target in self._core.take_writes(
                self._tier(tier), most, demote, self._clock()
            )
        ]

    def let_go(self, write: Write) -> None:
        """The bytes have been read, and what is left to do takes long: the block is held no longer, and may be evicted. It still
        MUST be given to `finish_write`. Raises StaleHandleError for one that is not under way."""
        self._core.let_go(write.transfer, self._clock())

    def finish_write(self, write: Write, done: bool) -> bool:
        """The copy was made and verified, or not. False: it does not count (failed, or the block was invalidated meanwhile), and
        what is in the target frame is nobody's. Raises StaleHandleError for one that is not under way."""
        return self._core.finish_write(write.transfer, done, self._clock())

    def offer_again(self, tier: str, name: BlockName) -> None:
        """A block that a tier could not take is to be written there after all; nothing happens when it is gone."""
        self._core.offer_again(self._tier(tier), *name, self._clock())

    def waiting(self, tier: str) -> int:
        """How many blocks wait to be written to a tier, at most (some may be gone by now)."""
        return self._core.waiting(self._tier(tier))

    def lose(self, tier: str, name: BlockName) -> None:
        """A tier's copy of a block turned out bad or gone; with it goes what the tier has below it. Harmless when it is gone."""
        self._core.lose(self._tier(tier), *name, self._clock())

    def reach(
        self,
        tokens: Any,
        who: Identity,
        tier: str,
        *,
        extra_keys: Mapping[int, bytes] | None = None,
        max_hit: int | None = None,
    ) -> Reach:
        """How far the full blocks of a prompt are in a tier, and in others; touches nothing. Raises TokenError, ConfigError."""
        request = self._asked(extra_keys, max_hit)
        space, tokens = self._enter(who, tokens)
        return Reach(*self._core.reach(space, tokens, self._tier(tier), self._clock(), request))

    def discover(
        self,
        tokens: Any,
        who: Identity,
        tier: str,
        blocks: int,
        *,
        first: int = 0,
        extra_keys: Mapping[int, bytes] | None = None,
        max_hit: int | None = None,
    ) -> list[Discovered]:
        """The blocks `first` to `blocks` of a prompt are in a lower tier, though this manager has not written them there (others
        fill it too): those that it did not know to be there get a frame each, as far as there is room and none before `first`
        is missing. Returns them, in order.

        For a tier whose frames are only what is known of it: what a frame stands for is the caller's to remember. Raises
        TokenError, ConfigError.
        """
        integer("blocks", blocks, 0, (1 << 32) - 1)
        integer("first", first, 0, (1 << 32) - 1)
        request = self._asked(extra_keys, max_hit)
        space, tokens = self._enter(who, tokens)
        found = self._core.discover(space, tokens, self._tier(tier), first, blocks, self._clock(), request)
        return [Discovered(at, BlockName(block, generation), frame) for at, block, generation, frame in found]

    def _asked(self, extra_keys: Mapping[int, bytes] | None, max_hit: int | None) -> Request:
        request = self._request(extra_keys)
        if max_hit is not None:
            request.max_hit = integer("max_hit", max_hit, 0, 1 << 62)
        return request

    def content(self, name: BlockName) -> Content:
        """What a block holds. Raises StaleHandleError when it is gone, or was invalidated or has expired."""
        space, parent, generation, depth, expires, extra, tokens = self._core.content(*name)
        above = None if parent < 0 else BlockName(parent, generation)
        return Content(self._identities[space], above, depth, expires, extra, tokens)
