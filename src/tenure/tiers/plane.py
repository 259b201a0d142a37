"""Where the bulk of a pool lies when it is not beside the heads: payloads by name, each written once, read whole or not at all.
Called by a pool tier, which claims and commits names; a plane proves nothing and decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tenure.tiers.base import Outcome

__all__ = ["DataPlane"]


class DataPlane(Protocol):
    """Names are never used twice: each has the token of the claim that it is written under. Calls may come from several threads.

    Nothing here raises for a failure of the medium: it is the outcome (io, full, empty, torn) of that payload. No call may last
    longer than the plane's own timeout.
    """

    def put(self, names: Sequence[bytes], payloads: Sequence[Sequence[memoryview]]) -> list[Outcome]:
        """Writes payloads, each from buffers one behind the other. None only when all of it is there to be read by every node."""

    def get(self, names: Sequence[bytes], into: Sequence[Sequence[memoryview]]) -> list[Outcome]:
        """Fills buffers, one behind the other, from payloads of exactly their length: `empty` for a name that is not there,
        `torn` for one of another length. The buffers of what failed may hold anything."""

    def drop(self, names: Sequence[bytes]) -> None:
        """These will not be asked for again. Unknown names are no harm; failures are not told."""

    def close(self) -> None:
        """Ends it. May be called again."""
