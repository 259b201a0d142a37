"""A circuit breaker: after some failures in a row a tier is left alone, then tried again, one probe at a time.
Used where bytes are moved, one a tier; it knows neither tiers nor threads of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tenure.checks import integer, positive

__all__ = ["Breaker"]


class Breaker:
    """Closed (all goes through), open (nothing does), or half-open (one probe is under way).

    failures: how many in a row open it. first, most: seconds until the first probe, doubled after each that fails, at most
    `most`. clock: seconds, never falling. Raises ConfigError for what does not fit.
    """

    def __init__(self, clock: Callable[[], float], failures: int = 3, first: float = 1.0, most: float = 60.0) -> None:
        self._clock = clock
        self._failures = integer("failures", failures, 1, 1 << 30)
        self._first = positive("first", first)
        self._most = positive("most", most)
        self._lock = threading.Lock()
        self._in_a_row = 0
        self._wait = 0.0
        self._until: float | None = None  # open until then; None: closed
        self._probing = False
        self.opened = 0
        """how often it has opened"""

    @property
    def state(self) -> str:
        """ "closed", "open" or "half-open"."""
        with self._lock:
            if self._until is None:
                return "closed"
            return "half-open" if self._probing else "open"

    def allows(self) -> bool:
        """May the next call be made? Whoever is told so says afterwards how it went: `succeeded`, `failed` or `undone`."""
        with self._lock:
            if self._until is None:
                return True
            if self._probing or self._clock() < self._until:
                return False
            self._probing = True
            return True

    def succeeded(self) -> None:
        """The tier answered."""
        with self._lock:
            self._in_a_row = 0
            self._until = None
            self._probing = False

    def failed(self) -> bool:
        """The tier did not answer; True when that has opened the breaker."""
        with self._lock:
            was_open = self._until is not None
            if was_open and not self._probing:
                return False  # a call from before it opened
            self._in_a_row += 1
            self._probing = False
            if not was_open and self._in_a_row < self._failures:
                return False
            self._wait = min(self._wait * 2, self._most) if was_open else self._first
            self._until = self._clock() + self._wait
            self.opened += not was_open
            return not was_open

    def undone(self) -> None:
        """There was nothing to do after all: a probe that was allowed did not take place."""
        with self._lock:
            self._probing = False
