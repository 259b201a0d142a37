"""A request's blocks in order, as its engine sees them: the table, what to copy, growth, forks and release.
Made by the manager; every call goes to the core; it holds no block state of its own."""

from __future__ import annotations

import warnings
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tenure.checks import integer
from tenure.errors import IdentityError, StaleHandleError, TokenError
from tenure.identity import Identity
from tenure.ledger import Why
from tenure.transfers import BlockName, Load

if TYPE_CHECKING:
    from tenure.manager import BlockManager

__all__ = ["Appended", "Copy", "Match", "Rewrite", "Sequence"]

Frames = npt.NDArray[np.int32]


class Copy(NamedTuple):
    """The first `tokens` tokens of frame `source` must be copied to frame `target` before the sequence writes on."""

    source: int
    target: int
    tokens: int


class Rewrite(NamedTuple):
    """At `position` the table now names `new_frame`: an equal block was there first, and `old_frame` went back."""

    position: int
    old_frame: int
    new_frame: int


class Match(NamedTuple):
    """What is cached of a prompt: on the device, and further on in lower tiers."""

    hit_tokens: int
    frames: Frames
    why: Why
    lower: tuple[str, ...] = ()
    """of the blocks after those, the tier that has each"""


class Appended(NamedTuple):
    """What an append did to the table: copies to make first, frames added at its end, entries that changed at sealing."""

    copies: list[Copy]
    frames: Frames
    rewrites: list[Rewrite]


class Sequence:
    """Holds one reference on each of its blocks until it is released, once. Use it in a `with` block, or call `release()`. `who`:
    the identity that it was asked for (None for a resumed one).

    Any method raises StaleHandleError after release.
    """

    __slots__ = ("_manager", "_open", "_who", "_why", "handle", "hit_tokens", "who")

    def __init__(
        self,
        manager: BlockManager,
        handle: int,
        hit: int,
        why: tuple[int, int, float, int, int, int],
        who: Identity | None,
        *,
        owns: bool = True,
    ) -> None:
        self._manager = manager
        self._why = why
        self._who = self.who = who
        self._open = owns
        self.handle = handle
        self.hit_tokens = hit

    @property
    def block_table(self) -> Frames:
        """The frames of its blocks in order, int32."""
        return self._manager._core.table(self.handle)

    @property
    def tokens(self) -> Frames:
        """Its token ids in order, int32."""
        return self._manager._core.tokens(self.handle)

    @property
    def num_tokens(self) -> int:
        """Tokens that have a slot."""
        return self._manager._core.sequence(self.handle)[0]

    @property
    def written_tokens(self) -> int:
        """Leading tokens whose KV was declared written."""
        return self._manager._core.sequence(self.handle)[1]

    @property
    def copies(self) -> list[Copy]:
        """Copies that have not been acknowledged yet (partial reuse, copy-on-write); their sources are held."""
        return [Copy(*c) for c in self._manager._core.copies(self.handle)]

    @property
    def loads(self) -> list[Load]:
        """Hits beyond `hit_tokens` whose bytes are in lower tiers, in order. Make the copies, then say so with `loaded`."""
        core, tiers = self._manager._core, self._manager.tiers
        return [
            Load(BlockName(block, generation), tiers[tier], source, target)
            for block, generation, tier, source, target in core.loads(self.handle)
        ]

    def loaded(self, count: int) -> int:
        """The first `count` loads have put verified bytes into their target frames; the rest is to be computed. Returns (and
        sets) `hit_tokens`. Until this is called a sequence with loads can only be released."""
        if integer("count", count, 0, 1 << 31) == 0 and not self.loads:
            return self.hit_tokens
        self.hit_tokens = self._manager._core.finish_loads(self.handle, count, self._manager._clock())
        return self.hit_tokens

    @property
    def effective(self) -> Identity:
        """The identity that its blocks are kept under: `who`, at the epochs of its admission. Raises IdentityError for a resumed
        sequence, which does not know it."""
        if self._who is None:
            raise IdentityError("a resumed sequence does not know whose it is")
        return self._who

    @property
    def why(self) -> Why:
        """Why its look-up ended where it did."""
        return self._manager._why(self._why, self._who)

    def append(self, tokens: Any, *, written: bool = True) -> Appended:
        """Takes slots for more tokens; all tokens up to and including these count as written, and full blocks seal (not so with
        written=False: then `seal` or `release` says when).

        Make the returned copies before writing. Raises TokenError or CapacityError (QuotaError), and has then changed nothing.
        """
        manager = self._manager
        copies, frames, rewrites = manager._patiently(
            lambda: manager._core.append(self.handle, tokens, written, manager._clock())
        )
        return Appended([Copy(*c) for c in copies], frames, [Rewrite(*r) for r in rewrites])

    def seal(self, upto: int | None = None) -> list[Rewrite]:
        """Declares the first `upto` tokens written (all when None), so that their full blocks can be hit (chunked prefill)."""
        if upto is not None:
            integer("upto", upto, 0, 1 << 62, TokenError)
        core = self._manager._core
        return [Rewrite(*r) for r in core.seal(self.handle, self.num_tokens if upto is None else upto, self._manager._clock())]

    def offer(self, tier: str) -> int:
        """All that it has sealed is computed, and is to be written to a lower tier whatever that tier's write mode is. Returns
        how many leading blocks that is. Raises ConfigError for a tier that is not there."""
        return self._manager._core.offer(self.handle, self._manager._tier(tier), self._manager._clock())

    def copied(self) -> None:
        """The copies have been made: their sources need not be held any longer. Any later append says so too."""
        self._manager._core.acknowledge(self.handle, self._manager._clock())

    def fork(self) -> Sequence:
        """Another sequence on the same blocks (beams, parallel sampling); whoever writes a shared block first gets a copy."""
        handle = self._manager._core.fork(self.handle, self._manager._clock())
        forked = Sequence(self._manager, handle, self.hit_tokens, self._why, self._who)
        forked.who = self.who
        return forked

    def truncate(self, length: int) -> None:
        """Takes tokens back (speculative decoding): keeps the first `length`."""
        integer("length", length, 0, 1 << 62, TokenError)
        self._manager._core.truncate(self.handle, length, self._manager._clock())

    def release(self) -> None:
        """Done: what is written is sealed, and every reference goes back, once. Raises StaleHandleError the second time."""
        self._manager._core.release(self.handle, False, self._manager._clock())
        self._open = False

    def abort(self) -> None:
        """Given up: as release, but nothing is sealed that was not declared written."""
        self._manager._core.release(self.handle, True, self._manager._clock())
        self._open = False

    def __enter__(self) -> Sequence:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self._open:
            return
        try:
            self.release() if kind is None else self.abort()
        except StaleHandleError:
            if kind is None:
                raise

    def __del__(self) -> None:
        if getattr(self, "_open", False):
            self._manager._orphans.append(self.handle)  # released by the next admission: a finaliser must not take locks
            warnings.warn("a Sequence was dropped without release()", ResourceWarning, stacklevel=2)

    def __repr__(self) -> str:
        return f"Sequence({self.handle:#x}, {'open' if self._open else 'released'}, hit_tokens={self.hit_tokens})"
