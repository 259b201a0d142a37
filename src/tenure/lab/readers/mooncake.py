"""Mooncake's traces (FAST'25): one JSON object a line, timestamp in milliseconds, one id per block of 512 tokens.
An id stands for the whole prefix; the last block may be partial."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from tenure.lab.builder import Request
from tenure.lab.readers.base import Fields, LineFormat, Source, check_length, seconds

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Row(msgspec.Struct):
    """A line. `timestamp` in milliseconds, lengths in tokens."""

    timestamp: float
    input_length: Count
    hash_ids: list[int]
    output_length: Count = 0


class Mooncake(LineFormat):
    """`timestamp`, `input_length`, `output_length`, `hash_ids`."""

    name = "mooncake"
    block_size = 512
    about = "JSONL: timestamp (ms), input_length, output_length, hash_ids (512-token blocks, an id names its prefix)"
    row = Row

    @classmethod
    def knows(cls, fields: Fields) -> bool:
        """Lengths and hash ids, and no chat ids."""
        return {"timestamp", "input_length", "hash_ids"} <= fields.keys() and "chat_id" not in fields

    def request(self, row: Any, line: int, source: Source) -> Request:
        """One line as a Request; BadLineError when ids and length do not fit."""
        check_length(len(row.hash_ids), row.input_length, self.tokens_per_block(source))
        return Request(
            line=line,
            arrival=seconds(row.timestamp, 1000),
            keys=source.ids(row.hash_ids),
            output=row.output_length,
            input_tokens=row.input_length,
        )
