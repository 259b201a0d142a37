"""LMCache's agent traces: JSONL (usually gzip) of `timestamp` (µs), `input`, `output` (text) and `session_id`.
Lines stand in order of completion, so the reader does not ask them to be in order of time."""

from __future__ import annotations

from typing import Any

import msgspec

from tenure.lab.builder import Request
from tenure.lab.readers.base import Fields, LineFormat, Source, seconds


class Row(msgspec.Struct):
    """A line. `timestamp` in microseconds."""

    timestamp: float
    input: str
    output: str = ""
    session_id: str | None = None


class AgentText(LineFormat):
    """`timestamp`, `input`, `output`, `session_id`."""

    name = "agent-text"
    shares_ids = True
    ordered = False
    about = "JSONL: timestamp (µs), input, output (text), session_id; needs a tokenizer"
    row = Row

    @classmethod
    def knows(cls, fields: Fields) -> bool:
        """Text in and out."""
        return {"timestamp", "input", "session_id"} <= fields.keys()

    def request(self, row: Any, line: int, source: Source) -> Request:
        """One call as a Request, tokenised."""
        tokens = source.tokens(row.input)
        return Request(
            line=line,
            arrival=seconds(row.timestamp, 1e6),
            keys=tokens,
            kind="tokens",
            output=len(source.tokens(row.output)),
            input_tokens=len(tokens),
            session=row.session_id,
        )
