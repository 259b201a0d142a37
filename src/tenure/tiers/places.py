"""An array of places of one size over one or several files: what lies side by side is moved by one vectored call.
Called by the disk tier, for its entries and its slots; it knows no records, and an error is the outcome of one place."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from tenure.errors import TierError
from tenure.tiers.files import NO_SPACE, read_at, write_at

__all__ = ["Places"]

_MOST_BUFFERS = 1000
"""Of one vectored call; systems take 1,024."""

Failed = dict[int, TierError]
"""The places that failed, and why."""


class Places:
    """Place n is `stride` bytes at (n % each) * stride of file n // each. sync: what `put` has written survives a loss of
    power."""

    def __init__(self, name: str, fds: Sequence[int], stride: int, each: int, sync: bool) -> None:
        self.stride = stride
        self._name = name
        self._fds = fds
        self._each = each
        self._sync = sync

    def put(self, pieces: Mapping[int, memoryview]) -> Failed:
        """Writes pieces, by place in ascending order, each at most `stride` bytes."""
        failed: Failed = {}
        for run in self._runs(pieces):
            failed |= self._put_run(run, pieces)
        if self._sync:
            for file in {place // self._each for place in pieces}:
                try:
                    getattr(os, "fdatasync", os.fsync)(self._fds[file])  # macOS has only fsync
                except OSError as error:
                    failed |= {place: self._failure(error, place) for place in pieces if place // self._each == file}
        return failed

    def get(self, pieces: Mapping[int, memoryview], needed: Mapping[int, int]) -> Failed:
        """Fills pieces, by place in ascending order; one that gets less than it needs, since its file ends there, is torn."""
        failed: Failed = {}
        for run in self._runs(pieces):
            failed |= self._get_run(run, pieces, needed)
        return failed

    def _put_run(self, run: list[int], pieces: Mapping[int, memoryview]) -> Failed:
        fd, offset = self._where(run[0])
        try:
            write_at(fd, [pieces[place] for place in run], offset)
        except OSError as error:
            if len(run) == 1:
                return {run[0]: self._failure(error, run[0])}
        else:
            return {}
        failed: Failed = {}
        for place in run:  # some of it may be possible
            failed |= self._put_run([place], pieces)
        return failed

    def _get_run(self, run: list[int], pieces: Mapping[int, memoryview], needed: Mapping[int, int]) -> Failed:
        fd, offset = self._where(run[0])
        failed: Failed = {}
        try:
            done = read_at(fd, [pieces[place] for place in run], offset)
        except OSError as error:
            if len(run) == 1:
                return {run[0]: self._failure(error, run[0])}
            for place in run:  # some of it may be readable
                failed |= self._get_run([place], pieces, needed)
            return failed
        for number, place in enumerate(run):
            if done < number * self.stride + needed[place]:
                failed[place] = TierError("torn", f"frame {place} of {self._name}: its file ends before it", frame=place)
        return failed

    def _where(self, place: int) -> tuple[int, int]:
        return self._fds[place // self._each], place % self._each * self.stride

    def _runs(self, pieces: Mapping[int, memoryview]) -> Iterator[list[int]]:
        """Places side by side in one file whose pieces fill them (the last one need not)."""
        run: list[int] = []
        for place in pieces:
            together = run and place == run[-1] + 1 and place % self._each and len(pieces[run[-1]]) == self.stride
            if run and (not together or len(run) == _MOST_BUFFERS):
                yield run
                run = []
            run.append(place)
        if run:
            yield run

    def _failure(self, error: OSError, place: int) -> TierError:
        kind = "full" if error.errno in NO_SPACE else "io"
        return TierError(kind, f"frame {place} of {self._name}: {error}", frame=place)
