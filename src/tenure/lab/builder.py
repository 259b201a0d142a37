"""Gathers the requests that the readers found and makes one Trace of them: dense ids, durations, arrivals, sessions.
The readers call it. It is also where ids that contradict their own prefix are found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from tenure.errors import ConfigError, TraceError
from tenure.lab.ids import Ids, Ints, content_ids, dense, path_ids
from tenure.lab.trace import Trace, contradiction, in_order_of_arrival

Kind = Literal["paths", "contents", "tokens"]


@dataclass(frozen=True, slots=True)
class Timing:
    """How long a request runs when its trace does not say: `output * decode + input * prefill` seconds."""

    decode: float = 0.02
    prefill: float = 5e-5

    def __post_init__(self) -> None:
        for name, value in (("decode", self.decode), ("prefill", self.prefill)):
            if not 0 <= value < float("inf"):
                raise ConfigError(f"seconds per token ({name}) must be 0 or more, not {value}", **{name: value})


@dataclass(frozen=True, slots=True)
class Request:
    """One request as a reader found it. `keys`: ids of whole paths, ids of single blocks' contents, or tokens (`kind`).

    `arrival` and `duration` are seconds (duration None: to be estimated); `line` is its place in the file, from 1.
    """

    line: int
    arrival: float
    keys: Ints
    output: int
    input_tokens: int
    kind: Kind = "paths"
    duration: float | None = None
    tenant: str = ""
    session: str | None = None


@dataclass(slots=True)
class _Universe:
    """Requests whose ids mean the same thing: of one file, or of all files of one format."""

    kind: Kind
    rows: list[int] = field(default_factory=list)


class Builder:
    """Collects files one after the other, then builds. `bad(file, line, reason, numbers)` raises or counts."""

    def __init__(self, timing: Timing, bad: Callable[..., None]) -> None:
        self._timing = timing
        self._bad = bad
        self._requests: list[Request] = []
        self._file_of: list[int] = []
        self._space_of: list[tuple[object, ...]] = []
        self._files: list[str] = []
        self._universes: dict[tuple[object, ...], _Universe] = {}
        self._block_size: int | None = None

    def file(self, path: str, block_size: int) -> None:
        """Begin a file. Raises ConfigError when its block size differs from that of the files before it."""
        if self._block_size not in (None, block_size):
            raise ConfigError(
                f"{path} has blocks of {block_size} tokens, the files before it {self._block_size}: replay them apart",
                block_size=block_size,
                before=self._block_size,
            )
        self._block_size = block_size
        self._files.append(path)

    def add(self, request: Request, shared: str | None) -> None:
        """Add a request of the current file; `shared` names the id space it shares with other files, None: its own."""
        space = (request.kind, shared) if shared is not None else (request.kind, None, len(self._files))
        self._universes.setdefault(space, _Universe(request.kind)).rows.append(len(self._requests))
        self._requests.append(request)
        self._space_of.append(space)
        self._file_of.append(len(self._files) - 1)

    def build(self, name: str, interleave: float | None, skipped: Callable[[], int]) -> Trace:
        """The Trace of everything added. Raises TraceError when nothing usable was found, or ids contradict themselves.

        With `interleave`, file i begins at i * interleave seconds; without, every file keeps its own clock.
        """
        tenants = tuple(dict.fromkeys(request.tenant for request in self._requests)) or ("",)
        code = {tenant: index for index, tenant in enumerate(tenants)}
        who = np.array([code[request.tenant] for request in self._requests], dtype=np.uint32)
        paths: list[Ids | None] = [None] * len(self._requests)
        used = 0
        for universe in self._universes.values():
            used += self._number(universe, who, len(tenants), paths, used)
        kept = [i for i, path in enumerate(paths) if path is not None]
        if not kept:
            raise TraceError(f"{name or 'no file'}: no usable request", file=name, line=0, skipped=skipped())
        requests = [self._requests[i] for i in kept]
        sessions: dict[tuple[object, ...], int] = {}
        keys = [(self._space_of[i], r.tenant, r.session) for i, r in zip(kept, requests, strict=True)]
        session = np.array([-1 if key[2] is None else sessions.setdefault(key, len(sessions)) for key in keys], dtype=np.int64)
        found = [path for path in paths if path is not None]
        return in_order_of_arrival(
            name=name,
            block_size=self._block_size or 1,
            arrival=self._arrivals(kept, interleave),
            duration=np.array([self._duration(r) for r in requests], dtype=np.float64),
            lengths=np.array([len(path) for path in found], dtype=np.int64),
            blocks=np.concatenate(found),
            output=np.array([r.output for r in requests], dtype=np.int64),
            tenant=who[kept],
            session=session,
            input_tokens=np.array([r.input_tokens for r in requests], dtype=np.int64),
            tenants=tenants,
            skipped=skipped(),
        )

    def _duration(self, request: Request) -> float:
        if request.duration is not None:
            return request.duration
        return request.output * self._timing.decode + request.input_tokens * self._timing.prefill

    def _arrivals(self, kept: list[int], interleave: float | None) -> npt.NDArray[np.float64]:
        arrival = np.array([self._requests[i].arrival for i in kept], dtype=np.float64)
        if interleave is None:
            return arrival
        file_of = np.array([self._file_of[i] for i in kept], dtype=np.int64)
        begin = np.full(len(self._files), np.inf)
        np.minimum.at(begin, file_of, arrival)
        shifted: npt.NDArray[np.float64] = arrival - begin[file_of] + file_of * interleave
        return shifted

    def _number(self, universe: _Universe, who: Ids, tenants: int, paths: list[Ids | None], base: int) -> int:
        """Fill `paths` for one universe with ids from `base` on; returns how many ids it used."""
        rows = universe.rows
        keys = [self._requests[i].keys for i in rows]
        roots = who[rows]
        if universe.kind == "paths":
            good, flat, used = self._checked(rows, keys, roots, tenants)
            rows = [rows[i] for i in good]
            lengths = np.array([len(keys[i]) for i in good], dtype=np.int64)
        else:
            if universe.kind == "tokens":
                blocks, _ = content_ids(keys, self._block_size or 1)
            else:
                numbers, _ = dense(np.concatenate(keys))
                blocks = np.split(numbers, np.cumsum([len(row) for row in keys])[:-1])
            lengths = np.array([len(row) for row in blocks], dtype=np.int64)
            flat, used = path_ids(lengths, np.concatenate(blocks), roots, tenants)
        ends = np.cumsum(lengths)
        for row, start, end in zip(rows, ends - lengths, ends, strict=True):
            paths[row] = flat[start:end] + np.uint32(base)
        return used

    def _checked(self, rows: list[int], keys: list[Ints], roots: Ids, tenants: int) -> tuple[list[int], Ids, int]:
        """Number ids that stand for whole paths; one that contradicts earlier ones is reported and left out."""
        good = list(range(len(rows)))
        ids, count = dense(np.concatenate(keys))
        if tenants > 1:
            per = np.repeat(roots, [len(row) for row in keys]).astype(np.int64)
            ids, count = dense(per * count + ids.astype(np.int64))
        offsets = np.concatenate([[0], np.cumsum([len(row) for row in keys])]).astype(np.int64)
        if contradiction(offsets, ids, count) is None:
            return good, ids, count
        parent: dict[int, int] = {}
        good = []
        for index, row in enumerate(rows):
            path = ids[offsets[index] : offsets[index + 1]].tolist()
            links = list(zip(path, [-1, *path[:-1]], strict=True))
            own = dict(reversed(links))
            at = next((k for k, (block, before) in enumerate(links) if parent.get(block, own[block]) != before), None)
            if at is None:
                parent.update(links)
                good.append(index)
                continue
            key = int(keys[index][at])
            self._bad(
                self._files[self._file_of[row]],
                self._requests[row].line,
                f"hash id {key} contradicts its prefix: it was seen earlier under another parent",
                hash_id=key,
                position=at,
            )
        kept = [ids[offsets[i] : offsets[i + 1]] for i in good]
        return good, np.concatenate(kept) if kept else ids[:0], count
