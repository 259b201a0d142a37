"""Threads for calls to a tier which may hang: a caller waits as long as it will, and what comes late is thrown away.
Used by the lanes of tiers with a deadline; they never touch device frames."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

__all__ = ["Readers"]

R = TypeVar("R")


class Readers(Generic[R]):
    """A few daemon threads, so that a call that never returns keeps neither its caller nor the interpreter's end waiting."""

    def __init__(self, name: str, threads: int = 2) -> None:
        self._turn = threading.Condition()
        self._jobs: deque[tuple[Future[R], Callable[[], R]]] = deque()
        self._running: set[Future[R]] = set()
        self._given_up: set[Future[R]] = set()  # of those that run
        self._count = threads
        self._closed = False
        self._name = name
        self._threads: list[threading.Thread] = []  # none before the first job

    @property
    def stuck(self) -> bool:
        """Whether every thread is in a call that nobody waits for any more: another would only wait behind them."""
        with self._turn:
            return len(self._given_up) == self._count

    def submit(self, job: Callable[[], R]) -> Future[R]:
        """Runs the job soon; once closed, its future is cancelled at once. It fails with RuntimeError when the system has no
        thread for it."""
        future: Future[R] = Future()
        with self._turn:
            if self._closed:
                future.cancel()
                return future
            try:
                self._start()
            except RuntimeError as error:
                future.set_exception(error)
                return future
            self._jobs.append((future, job))
            self._turn.notify()
        return future

    def give_up(self, future: Future[R]) -> None:
        """Nobody waits for it any more: a job whose turn has not come is dropped, with all that it holds."""
        with self._turn:
            if future in self._running:
                self._given_up.add(future)
            self._jobs = deque(job for job in self._jobs if job[0] is not future)
        future.cancel()

    def close(self) -> None:
        """No more jobs; those that wait are cancelled, those that run are not waited for."""
        with self._turn:
            self._closed = True
            waiting = list(self._jobs)
            self._jobs.clear()
            self._turn.notify_all()
        for future, _ in waiting:
            future.cancel()

    def _start(self) -> None:
        while len(self._threads) < self._count:
            thread = threading.Thread(target=self._run, name=f"{self._name}-{len(self._threads)}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def _run(self) -> None:
        while True:
            with self._turn:
                while not self._jobs and not self._closed:
                    self._turn.wait()
                if not self._jobs:
                    return
                future, job = self._jobs.popleft()
                if not future.set_running_or_notify_cancel():
                    continue
                self._running.add(future)
            try:
                result = job()
            except BaseException as error:  # it belongs to whoever waits
                future.set_exception(error)
            else:
                future.set_result(result)
                del result
            with self._turn:
                self._running.discard(future)
                self._given_up.discard(future)
            del future, job  # and with them what the job held
