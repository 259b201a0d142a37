"""Alibaba's Bailian usage traces (qwen-bailian-usagetraces-anon): JSONL, seconds, one id per block of 16 tokens.
An id is a hash of the block alone, so equal ids under different prefixes are different blocks."""

from __future__ import annotations

from typing import Any

import msgspec

from tenure.lab.builder import Request
from tenure.lab.readers.base import Fields, LineFormat, Source, seconds
from tenure.lab.readers.mooncake import Count


class Row(msgspec.Struct):
    """A line. `timestamp` in seconds since the trace began, lengths in tokens, `parent_chat_id` -1 for a first turn."""

    chat_id: int
    timestamp: float
    input_length: Count
    hash_ids: list[int]
    parent_chat_id: int = -1
    output_length: Count = 0
    type: str = ""
    turn: int = 1


class Bailian(LineFormat):
    """`chat_id`, `parent_chat_id`, `timestamp`, `input_length`, `output_length`, `type`, `turn`, `hash_ids`."""

    name = "bailian"
    block_size = 16
    about = "JSONL: chat_id, parent_chat_id, timestamp (s), input_length, output_length, type, turn, hash_ids (16 tokens)"
    row = Row

    @classmethod
    def knows(cls, fields: Fields) -> bool:
        """Chat ids and hash ids."""
        return {"chat_id", "timestamp", "hash_ids"} <= fields.keys()

    def __init__(self) -> None:
        self._root: dict[int, int] = {}  # chat -> the chat its session began with

    def request(self, row: Any, line: int, source: Source) -> Request:
        """One line as a Request; a turn that continues a chat carries the session of the first turn."""
        root = row.chat_id if row.parent_chat_id < 0 else self._root.get(row.parent_chat_id, row.parent_chat_id)
        request = Request(
            line=line,
            arrival=seconds(row.timestamp),
            keys=source.ids(row.hash_ids),
            kind="contents",
            output=row.output_length,
            input_tokens=row.input_length,
            session=str(root),
        )
        self._root[row.chat_id] = root
        return request
