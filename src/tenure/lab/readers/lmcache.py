"""LMCache's lookup logs (lookup_hashes_*.jsonl): one JSON object a lookup, hex hashes of full chunks, Unix seconds.
A hash stands for the whole prefix; the tail shorter than a chunk is never looked up."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from tenure.lab.builder import Request
from tenure.lab.readers.base import MALFORMED, BadLineError, Fields, LineFormat, Source, seconds
from tenure.lab.readers.mooncake import Count


class Row(msgspec.Struct):
    """A line. `seq_len` counts the tail too; a model is a tenant, since no model can use another's KV."""

    timestamp: float
    chunk_hashes: list[str]
    chunk_size: Annotated[int, msgspec.Meta(ge=1)]
    seq_len: Count = 0
    model_name: str = ""
    request_id: str = ""


class LMCacheLookups(LineFormat):
    """`timestamp`, `request_id`, `model_name`, `chunk_size`, `seq_len`, `chunk_hashes`."""

    name = "lmcache"
    block_size = 256
    shares_ids = True
    ordered = False  # concurrent lookups are logged as they drain
    about = "JSONL: timestamp (s), model_name, chunk_size, seq_len, chunk_hashes (hex, full chunks only)"
    row = Row

    @classmethod
    def knows(cls, fields: Fields) -> bool:
        """Chunk hashes and their size."""
        return {"chunk_hashes", "chunk_size"} <= fields.keys()

    def tokens_per_block(self, source: Source) -> int:
        """The chunk size that the caller named, or the first line's."""
        if source.block_size is None:
            for raw in source.peek(20):
                try:
                    source.block_size = msgspec.json.decode(raw, type=Row).chunk_size
                    break
                except MALFORMED:
                    continue
        return source.block_size or self.block_size

    def request(self, row: Any, line: int, source: Source) -> Request:
        """One lookup as a Request; BadLineError for another chunk size or a hash that is not hexadecimal."""
        if row.chunk_size != source.block_size:
            raise BadLineError(
                f"chunks of {row.chunk_size} tokens among chunks of {source.block_size}",
                chunk_size=row.chunk_size,
                block_size=source.block_size,
            )
        try:
            values = [int(value, 16) for value in row.chunk_hashes]
        except ValueError:
            raise BadLineError("a chunk hash is not hexadecimal") from None
        tokens = max(row.seq_len, len(values) * row.chunk_size)
        return Request(
            line=line,
            arrival=seconds(row.timestamp),
            keys=source.ids(values),
            output=0,
            input_tokens=tokens,
            tenant=row.model_name,
        )
