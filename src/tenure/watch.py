"""Notices that a call takes too long, while it goes on. Used by the writer for tiers that may hang; it ends nothing by itself."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType

__all__ = ["Watch"]


class Watch:
    """Calls `too_late`, in a thread of its own, unless it is left within `seconds` (None: it never does). Of the two, leaving and
    being too late, one has ended before the other begins; `late` tells which it was."""

    def __init__(self, seconds: float | None, too_late: Callable[[], None]) -> None:
        self.late = False
        self._lock = threading.Lock()
        self._left = False
        self._too_late = too_late
        self._timer = None if seconds is None else threading.Timer(seconds, self._due)

    def __enter__(self) -> Watch:
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._lock:
            self._left = True
        if self._timer is not None:
            self._timer.cancel()

    def _due(self) -> None:
        with self._lock:
            if not self._left:
                self.late = True
                self._too_late()
