"""A process that dies at its n-th change of a file: before it, in its middle, or after it. After that it changes nothing.
Used by the crash tests; needs no second process, so that every single point can be tried."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

CHANGES = ("pwritev", "pwrite", "posix_fallocate", "ftruncate", "truncate", "replace", "unlink", "mkdir", "open")


class Killed(BaseException):
    """The process is dead: no handler of ordinary errors may see it."""


@contextmanager
def dying(at: int, how: str) -> Iterator[list[str]]:
    """Dies at change number `at`. Yields the list of changes that were made or begun."""
    seen: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        for name in CHANGES:
            patch.setattr(os, name, _mortal(name, getattr(os, name), seen, at, how))
        yield seen


def _mortal(name: str, real: Callable[..., Any], seen: list[str], at: int, how: str) -> Callable[..., Any]:
    def change(*args: Any, **settings: Any) -> Any:
        if name == "open" and not args[1] & os.O_CREAT:
            return real(*args, **settings)
        if len(seen) > at:
            raise Killed
        seen.append(name)
        if len(seen) <= at:
            return real(*args, **settings)
        if how == "middle" and name == "pwritev":
            fd, buffers, offset = args
            whole = b"".join(bytes(buffer) for buffer in buffers)
            _write_buffered(fd, whole[: len(whole) // 2], offset)
        elif how != "before":
            real(*args, **settings)
        raise Killed

    return change


def _write_buffered(fd: int, data: bytes, offset: int) -> None:
    """Also what direct I/O would refuse: half a page."""
    other = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY)
    try:
        _real_pwrite(other, data, offset)
    finally:
        os.close(other)


_real_pwrite = os.pwrite
