"""Tenure's own JSONL: `{"timestamp", "tokens" | "hash_ids" | "text", "tenant"?, "session"?, "output"?}`, seconds.
The generator writes it. A first line with `tenure_trace` holds the parameters and may state the block size."""

from __future__ import annotations

import contextlib
from typing import Annotated, Any

import msgspec
import numpy as np

from tenure.lab.builder import Request
from tenure.lab.readers.base import MALFORMED, BadLineError, Fields, LineFormat, Source, seconds
from tenure.lab.readers.mooncake import Count

TokenId = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class Header(msgspec.Struct):
    """The optional first line."""

    tenure_trace: int
    block_size: Annotated[int, msgspec.Meta(ge=1)] | None = None


class Row(msgspec.Struct):
    """A line. `timestamp` and `duration` in seconds, `output` in tokens; exactly one of tokens, hash_ids, text; null: absent."""

    timestamp: float
    tokens: list[TokenId] | None = None
    hash_ids: list[int] | None = None
    text: str | None = None
    tenant: str | None = None
    session: str | int | None = None
    output: Count | None = None
    input_length: Count | None = None
    duration: Annotated[float, msgspec.Meta(ge=0, lt=1e12)] | None = None


class Plain(LineFormat):
    """`timestamp`, and one of `tokens`, `hash_ids`, `text`; optional `tenant`, `session`, `output`, `duration`."""

    name = "plain"
    block_size = 16
    shares_ids = True
    about = "JSONL: timestamp (s), tokens or hash_ids or text, tenant?, session?, output?, duration?"
    row = Row

    @classmethod
    def knows(cls, fields: Fields) -> bool:
        """The header, or a timestamp with tokens or text."""
        return "tenure_trace" in fields or ("timestamp" in fields and bool({"tokens", "text"} & fields.keys()))

    def tokens_per_block(self, source: Source) -> int:
        """What the header states (TraceError when the caller says otherwise), else what the caller said, else 16."""
        for raw in source.peek():
            with contextlib.suppress(*MALFORMED):
                header = msgspec.json.decode(raw, type=Header)
                if header.block_size is not None:
                    return source.states(header.block_size)
        source.block_size = source.block_size or self.block_size
        return source.block_size

    def skips(self, line: int, raw: bytes, source: Source) -> bool:
        """The header line."""
        return line == 1 and b'"tenure_trace"' in raw[:64]

    def request(self, row: Any, line: int, source: Source) -> Request:
        """One line as a Request; BadLineError unless it has exactly one of tokens, hash_ids and text."""
        given = [name for name in ("tokens", "hash_ids", "text") if getattr(row, name) is not None]
        if len(given) != 1:
            raise BadLineError(f"needs exactly one of tokens, hash_ids, text; has {', '.join(given) or 'none'}")
        session = None if row.session is None else str(row.session)
        if row.hash_ids is not None:
            keys = source.ids(row.hash_ids)
            length = len(keys) * (source.block_size or self.block_size) if row.input_length is None else row.input_length
            return Request(
                line=line,
                arrival=seconds(row.timestamp),
                keys=keys,
                output=row.output or 0,
                input_tokens=length,
                duration=row.duration,
                tenant=row.tenant or "",
                session=session,
            )
        keys = source.tokens(row.text) if row.text is not None else np.array(row.tokens, dtype=np.int64)
        return Request(
            line=line,
            arrival=seconds(row.timestamp),
            keys=keys,
            kind="tokens",
            output=row.output or 0,
            input_tokens=len(keys),
            duration=row.duration,
            tenant=row.tenant or "",
            session=session,
        )
