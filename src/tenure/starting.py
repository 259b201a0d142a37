"""What happens to signals while a process is started. Called by whoever starts processes that are to hear of Ctrl-C from their
parent only; it starts none itself."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker

__all__ = ["uninterrupted"]


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Processes that are started meanwhile never see Ctrl-C: they keep the mask. It is heard here afterwards, whichever thread
    the system gave it to."""
    resource_tracker.ensure_running()  # its own start would take the mask off
    heard: list[int] = []
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    handler = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    if heard:
        signal.raise_signal(signal.SIGINT)
