"""Threads that read from a tier which may hang: a caller waits as long as it will, and what comes late is thrown away.
Used by the mover for tiers with a deadline; they never touch device frames."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Generic, TypeVar

__all__ = ["Readers"]

R = TypeVar("R")


class Readers(Generic[R]):
    """A few daemon threads, so that a read that never returns keeps neither its caller nor the interpreter's end waiting."""

    def __init__(self, name: str, threads: int = 2) -> None:
        self._jobs: SimpleQueue[tuple[Future[R], Callable[[], R]] | None] = SimpleQueue()
        self._threads = [threading.Thread(target=self._run, name=f"{name}-{i}", daemon=True) for i in range(threads)]
        for thread in self._threads:
            thread.start()

    def submit(self, job: Callable[[], R]) -> Future[R]:
        """Runs the job soon. A future that is cancelled before its turn is never run."""
        future: Future[R] = Future()
        self._jobs.put((future, job))
        return future

    def close(self) -> None:
        """No more jobs; what runs is not waited for."""
        for _ in self._threads:
            self._jobs.put(None)

    def _run(self) -> None:
        while (item := self._jobs.get()) is not None:
            future, job = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(job())
            except BaseException as error:  # it belongs to whoever waits
                future.set_exception(error)
