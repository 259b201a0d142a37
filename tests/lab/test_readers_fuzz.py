"""Whatever a file holds, reading it gives a Trace, a TraceError with file and line, or a ConfigError."""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tenure.errors import ConfigError, TraceError
from tenure.lab.readers import FORMATS, read
from tenure.lab.trace import Trace

from .test_readers import bailian, lookup, mooncake, session, step

SEEDS = [
    "\n".join(json.dumps(mooncake(t, [1, 2, t + 3])) for t in range(3)),
    "\n".join(json.dumps(bailian(t, t - 1, t, [1, 2, t + 3])) for t in range(3)),
    "\n".join(json.dumps(lookup(t, ["0x1", hex(t + 5)])) for t in range(3)),
    session(step(0, [1, 2]), step(1, [1, 2, 3], api_time=2.0)),
    '{"tenure_trace": 1, "block_size": 2}\n{"timestamp": 0, "tokens": [1, 2, 3]}\n{"timestamp": 1, "text": "abc"}',
    '{"timestamp": 5, "input": "some text", "output": "x", "session_id": "s"}',
]


def outcome(content: bytes, suffix: str, format: str | None, skip_bad: bool) -> Trace | None:
    """Read the bytes as a file; the Trace, or None for an error of the two kinds that may be."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"trace{suffix}"
        path.write_bytes(content)
        try:
            return read(path, format, skip_bad=skip_bad, tokenizer="bytes")
        except ConfigError:
            return None
        except TraceError as caught:
            problem = caught
    assert {"file", "line"} <= problem.numbers.keys()
    return None


@settings(max_examples=60, derandomize=True, deadline=None)
@given(st.binary(max_size=60), st.sampled_from([".jsonl", ".json", ".gz"]), st.sampled_from([None, *FORMATS]), st.booleans())
def test_any_bytes(content: bytes, suffix: str, format: str | None, skip_bad: bool) -> None:
    outcome(content, suffix, format, skip_bad)


@settings(max_examples=150, derandomize=True, deadline=None)
@given(st.sampled_from(SEEDS), st.data(), st.booleans(), st.booleans())
def test_good_files_with_a_piece_replaced(seed: str, data: st.DataObject, packed: bool, skip_bad: bool) -> None:
    content = bytearray(seed.encode())
    if packed:
        content = bytearray(gzip.compress(bytes(content)))
    at = data.draw(st.integers(0, len(content)))
    content[at : at + data.draw(st.integers(0, 12))] = data.draw(
        st.binary(max_size=6) | st.sampled_from([b"-1", b"1e999", b"null", b"[]"])
    )
    outcome(bytes(content), ".jsonl", None, skip_bad)


@pytest.mark.parametrize("format", FORMATS)
def test_nesting_without_end(format: str) -> None:
    deep = b'{"a":' * 100_000
    assert outcome(deep, ".jsonl", format, skip_bad=True) is None
    assert outcome(b'{"timestamp":' + b"[" * 100_000, ".json", None, skip_bad=False) is None


def test_the_seeds_are_good() -> None:
    for seed in SEEDS:
        assert outcome(seed.encode(), ".jsonl", None, skip_bad=False) is not None


def test_a_lone_surrogate_is_a_bad_line() -> None:
    line = b'{"timestamp": 5, "input": "\\ud800", "output": "x", "session_id": "s"}'
    assert outcome(line, ".jsonl", "agent-text", skip_bad=True) is None
