"""A claim on a prefix with an owner and a deadline: a pin, protection or a look-up. Made by the manager; released here.
It is a token: releasing it twice is harmless, and nobody else's claim goes with it."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from tenure.sequence import Frames

if TYPE_CHECKING:
    from tenure.leasing import Leasing

__all__ = ["Lease"]


class Lease:
    """`tokens`: how many leading tokens it covers (0: nothing was cached, and it holds nothing)."""

    __slots__ = ("_manager", "id", "tokens")

    def __init__(self, manager: Leasing, lease: int, tokens: int) -> None:
        self._manager = manager
        self.id = lease
        self.tokens = tokens

    @property
    def frames(self) -> Frames:
        """The frames it covers, in order, int32. Raises StaleHandleError when it has ended."""
        return self._manager._core.lease_frames(self.id)

    def release(self) -> bool:
        """Ends it; False when it had ended already (released, or past its deadline)."""
        return self._manager.release_lease(self.id)

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.release()
