"""WEKA's agentic-coding sessions (kv-cache-tester): one JSON document a session, ids of 64-token blocks, seconds.
Ids are local to the file unless it says otherwise; nested agents' requests are unfolded into the session's time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated

import msgspec

from tenure.lab.builder import Request
from tenure.lab.readers.base import MALFORMED, BadLineError, Fields, Format, Source, check_length, seconds
from tenure.lab.readers.mooncake import Count


class Entry(msgspec.Struct, rename={"input": "in", "output": "out"}):
    """A request, or a nested agent with its own requests (times relative to its start). Times in seconds."""

    t: float
    type: str = "n"
    input: Count = 0
    output: Count = 0
    hash_ids: list[int] = []
    api_time: Annotated[float, msgspec.Meta(ge=0)] | None = None
    requests: list[msgspec.Raw] = []


class Session(msgspec.Struct):
    """The document."""

    requests: list[msgspec.Raw]
    block_size: Annotated[int, msgspec.Meta(ge=1)] = 64
    id: str = ""
    hash_id_scope: str = "local"


class Weka(Format):
    """`block_size` and `requests` of `t`, `in`, `out`, `hash_ids`, `api_time`."""

    name = "weka"
    block_size = 64
    about = "JSON, a session a file: block_size, requests of t (s), in, out, hash_ids, api_time"

    def __init__(self) -> None:
        self._document: bytes | None = None
        self._session: Session | None = None

    @classmethod
    def knows(cls, fields: Fields) -> bool:
        """A document with requests."""
        return "requests" in fields and ("block_size" in fields or "hash_id_scope" in fields)

    def tokens_per_block(self, source: Source) -> int:
        """What the document says; TraceError when the caller says otherwise."""
        self._document = source.whole()
        self._session = self._decode(source)
        return source.states(self._session.block_size if self._session else source.block_size or self.block_size)

    def requests(self, source: Source) -> Iterator[Request]:
        """The session's requests by time; a bad one is named by its place in the document."""
        if self._session is None:
            return
        found: list[Request] = []
        self._unfold(self._session.requests, 0.0, "requests", source, found)
        yield from sorted(found, key=lambda request: request.arrival)

    def _decode(self, source: Source) -> Session | None:
        if self._document is None:
            return None
        try:
            return msgspec.json.decode(self._document, type=Session)
        except MALFORMED as problem:
            source.bad(self._where_broken(), str(problem))
            return None

    def _where_broken(self) -> int:
        try:
            json.loads(self._document or b"")
        except json.JSONDecodeError as where:
            return where.lineno
        except (ValueError, RecursionError):
            pass
        return 1

    def _unfold(self, entries: list[msgspec.Raw], start: float, where: str, source: Source, found: list[Request]) -> None:
        latest = float("-inf")
        for index, raw in enumerate(entries):
            place = f"{where}[{index}]"
            try:
                entry = msgspec.json.decode(raw, type=Entry)
                arrival = start + seconds(entry.t)
                if arrival < latest:
                    raise BadLineError(f"goes back in time: {arrival:.3f} s after {latest:.3f} s", arrival=arrival)
                if entry.type == "subagent":
                    self._unfold(entry.requests, arrival, f"{place}.requests", source, found)
                else:
                    found.append(self._request(entry, arrival, raw, source))
                latest = arrival
            except (*MALFORMED, BadLineError) as problem:
                source.bad(self._line(raw), f"{place}: {problem}", request=index, **getattr(problem, "numbers", {}))

    def _request(self, entry: Entry, arrival: float, raw: msgspec.Raw, source: Source) -> Request:
        block_size = source.block_size or self.block_size
        check_length(len(entry.hash_ids), entry.input, block_size)
        session = (self._session.id if self._session else "") or source.path.stem
        return Request(
            line=self._line(raw),
            arrival=arrival,
            keys=source.ids(entry.hash_ids),
            output=entry.output,
            input_tokens=entry.input,
            duration=entry.api_time,
            session=session,
        )

    def _line(self, raw: msgspec.Raw) -> int:
        document = self._document or b""
        return 1 + document.count(b"\n", 0, max(0, document.find(bytes(raw)))) if b"\n" in document[:-1] else 1
