"""The one shape of traffic: requests over time, each a path of block ids. Readers and the generator make it, replay and
bounds read it. It never holds text or tokens, and never changes once made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tenure.errors import TraceError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Ids = npt.NDArray[np.uint32]

_COLUMNS: tuple[tuple[str, type[Any]], ...] = (
    ("arrival", np.float64),
    ("duration", np.float64),
    ("offsets", np.int64),
    ("blocks", np.uint32),
    ("output", np.int64),
    ("tenant", np.uint32),
    ("session", np.int64),
    ("input_tokens", np.int64),
)


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """n requests in order of arrival; request i asks for `blocks[offsets[i]:offsets[i + 1]]`, first block first.

    arrival       f64[n]    seconds, from 0, non-decreasing
    duration      f64[n]    seconds the request runs
    offsets       i64[n+1]  where each request's blocks begin
    blocks        u32[sum]  dense ids 0..distinct-1; equal ids <=> equal tenant and equal whole prefix
    output        i64[n]    tokens generated
    tenant        u32[n]    index into `tenants`
    session       i64[n]    number of the conversation, -1 for none
    input_tokens  i64[n]    prompt length, in tokens; the last block may be partial
    Raises TraceError when the columns contradict each other; the message names the request.
    """

    name: str
    block_size: int
    arrival: Floats
    duration: Floats
    offsets: Ints
    blocks: Ids
    output: Ints
    tenant: Ids
    session: Ints
    input_tokens: Ints
    tenants: tuple[str, ...] = ("",)
    skipped: int = 0

    def __post_init__(self) -> None:
        for name, dtype in _COLUMNS:
            column = np.ascontiguousarray(getattr(self, name), dtype=dtype).view()
            column.flags.writeable = False
            object.__setattr__(self, name, column)
        _validate(self)

    @property
    def requests(self) -> int:
        """How many requests."""
        return len(self.arrival)

    @property
    def asked(self) -> int:
        """How many blocks all requests ask for together."""
        return len(self.blocks)

    @property
    def distinct(self) -> int:
        """How many different blocks there are."""
        return int(self.blocks.max()) + 1 if len(self.blocks) else 0

    @property
    def lengths(self) -> Ints:
        """Blocks per request, i64[n]."""
        return np.diff(self.offsets)

    def path(self, request: int) -> Ids:
        """The block ids of one request, first block first."""
        return self.blocks[self.offsets[request] : self.offsets[request + 1]]

    def owners(self) -> Ints:
        """The request each asked block belongs to, i64[sum]."""
        return np.repeat(np.arange(self.requests, dtype=np.int64), self.lengths)

    @staticmethod
    def merge(traces: Sequence[Trace], interleave: float | None = None, name: str | None = None) -> Trace:
        """One trace out of several that share nothing; trace i begins `interleave` seconds after trace i-1.

        Without `interleave` each keeps its own times. Tenants are joined by name; blocks and sessions stay apart.
        Raises TraceError for no trace, or for block sizes that differ.
        """
        if not traces:
            raise TraceError("nothing to merge: no trace given", traces=0)
        sizes = sorted({trace.block_size for trace in traces})
        if len(sizes) > 1:
            raise TraceError(f"traces with different block sizes cannot be merged: {sizes}", block_sizes=sizes)
        tenants = tuple(dict.fromkeys(tenant for trace in traces for tenant in trace.tenants))
        code = {tenant: index for index, tenant in enumerate(tenants)}
        step = interleave or 0.0
        first_block = np.cumsum([0] + [trace.distinct for trace in traces])
        sessions = [int(trace.session.max(initial=-1)) + 1 for trace in traces]
        first_session = np.cumsum([0, *sessions])
        arrival = np.concatenate([trace.arrival + i * step for i, trace in enumerate(traces)])
        lengths = np.concatenate([trace.lengths for trace in traces])
        blocks = np.concatenate([trace.blocks + np.uint32(first_block[i]) for i, trace in enumerate(traces)])
        session = np.concatenate(
            [np.where(trace.session < 0, -1, trace.session + first_session[i]) for i, trace in enumerate(traces)]
        )
        tenant = np.concatenate([np.array([code[t] for t in trace.tenants], dtype=np.uint32)[trace.tenant] for trace in traces])
        return in_order_of_arrival(
            name=name or "+".join(trace.name for trace in traces),
            block_size=sizes[0],
            arrival=arrival,
            duration=np.concatenate([trace.duration for trace in traces]),
            lengths=lengths,
            blocks=blocks,
            output=np.concatenate([trace.output for trace in traces]),
            tenant=tenant,
            session=session,
            input_tokens=np.concatenate([trace.input_tokens for trace in traces]),
            tenants=tenants,
            skipped=sum(trace.skipped for trace in traces),
        )


def in_order_of_arrival(
    *,
    name: str,
    block_size: int,
    arrival: Floats,
    duration: Floats,
    lengths: Ints,
    blocks: Ids,
    output: Ints,
    tenant: Ids,
    session: Ints,
    input_tokens: Ints,
    tenants: tuple[str, ...],
    skipped: int = 0,
) -> Trace:
    """A Trace from columns in any order: sorted by arrival (ties keep their order), time from 0, ids by first use."""
    order = np.argsort(arrival, kind="stable")
    starts = np.concatenate([[0], np.cumsum(lengths)])
    offsets = np.concatenate([[0], np.cumsum(lengths[order])]).astype(np.int64)
    # Position k of the sorted blocks came from: its request's old start + how far k is into that request.
    source = np.arange(offsets[-1]) + np.repeat(starts[order] - offsets[:-1], lengths[order])
    return Trace(
        name=name,
        block_size=block_size,
        arrival=arrival[order] - (arrival.min() if len(arrival) else 0.0),
        duration=duration[order],
        offsets=offsets,
        blocks=first_seen(blocks[source]),
        output=output[order],
        tenant=tenant[order],
        session=session[order],
        input_tokens=input_tokens[order],
        tenants=tenants,
        skipped=skipped,
    )


def first_seen(blocks: Ids) -> Ids:
    """The same blocks numbered 0, 1, ... in the order in which they first come up."""
    if not len(blocks):
        return blocks
    first = np.full(int(blocks.max()) + 1, len(blocks), dtype=np.int64)  # where each id first comes up
    first[blocks[::-1]] = np.arange(len(blocks) - 1, -1, -1)
    used = np.flatnonzero(first < len(blocks))
    rank = np.empty(len(first), dtype=np.uint32)
    rank[used[np.argsort(first[used])]] = np.arange(len(used), dtype=np.uint32)
    return rank[blocks]


def parents(offsets: Ints, blocks: npt.NDArray[Any]) -> Ints:
    """The id before each block in its request, -1 for a first block; i64[sum]."""
    before = np.empty(len(blocks), dtype=np.int64)
    if len(blocks):
        before[1:] = blocks[:-1]
        starts = offsets[:-1]
        before[starts[starts < offsets[1:]]] = -1
    return before


def contradiction(offsets: Ints, blocks: npt.NDArray[Any], distinct: int) -> int | None:
    """The first position whose id was seen earlier under another parent (or in another place of a path), or None."""
    before = parents(offsets, blocks)
    first = np.full(distinct, -2, dtype=np.int64)
    first[blocks[::-1]] = before[::-1]
    wrong = np.flatnonzero(first[blocks] != before)
    return int(wrong[0]) if len(wrong) else None


def _validate(trace: Trace) -> None:
    count = trace.requests
    for name, _ in _COLUMNS:
        expected = {"offsets": count + 1, "blocks": trace.asked}.get(name, count)
        if len(getattr(trace, name)) != expected:
            raise TraceError(
                f"{trace.name}: column {name} has {len(getattr(trace, name))} rows, expected {expected}",
                column=name,
                rows=len(getattr(trace, name)),
                expected=expected,
            )
    if trace.block_size < 1:
        raise TraceError(f"{trace.name}: a block has at least one token, not {trace.block_size}", block_size=trace.block_size)
    lengths = trace.lengths
    if trace.offsets[0] != 0 or trace.offsets[-1] != trace.asked or (lengths < 0).any():
        raise TraceError(f"{trace.name}: offsets do not cut the blocks into requests", blocks=trace.asked)
    _refuse(trace, ~np.isfinite(trace.arrival) | (trace.arrival < 0), "arrives at no time from 0 on")
    _refuse(trace, np.diff(trace.arrival, prepend=0.0) < 0, "arrives before the request ahead of it")
    _refuse(trace, ~np.isfinite(trace.duration) | (trace.duration < 0), "runs for a negative or infinite time")
    _refuse(trace, (trace.output < 0) | (trace.input_tokens < 0), "has a negative number of tokens")
    _refuse(trace, trace.tenant >= len(trace.tenants), "belongs to a tenant without a name")
    distinct = trace.distinct
    if not np.bincount(trace.blocks, minlength=distinct).all():
        raise TraceError(f"{trace.name}: block ids are not dense", distinct=distinct)
    owner = trace.owners()
    wrong = contradiction(trace.offsets, trace.blocks, distinct)
    if wrong is not None:
        raise TraceError(
            f"{trace.name}: request {owner[wrong]}: block {trace.blocks[wrong]} was seen under another parent",
            request=int(owner[wrong]),
            block=int(trace.blocks[wrong]),
        )
    whose = np.empty(distinct, dtype=np.uint32)
    whose[trace.blocks[::-1]] = trace.tenant[owner[::-1]]
    shared = np.flatnonzero(whose[trace.blocks] != trace.tenant[owner])
    if len(shared):
        request = int(owner[shared[0]])
        raise TraceError(f"{trace.name}: request {request} shares a block with another tenant", request=request)


def _refuse(trace: Trace, bad: npt.NDArray[np.bool_], what: str) -> None:
    rows = np.flatnonzero(bad)
    if len(rows):
        raise TraceError(f"{trace.name}: request {rows[0]} {what}", request=int(rows[0]), requests=len(rows))
