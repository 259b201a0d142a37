"""Readers: every format, and every kind of bad line: named with file and line, or counted and left out."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tenure.errors import ConfigError, TraceError
from tenure.lab.readers import Timing, read
from tenure.lab.trace import Trace


def lines(path: Path, *rows: Any) -> Path:
    """Write rows as JSONL; a str goes in as it is."""
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def paths_of(trace: Trace) -> list[list[int]]:
    return [trace.path(i).tolist() for i in range(trace.requests)]


def mooncake(t: float, ids: list[int], tokens: int | None = None, out: int = 10) -> dict[str, Any]:
    return {
        "timestamp": t,
        "input_length": 512 * len(ids) if tokens is None else tokens,
        "output_length": out,
        "hash_ids": ids,
    }


def bailian(chat: int, parent: int, t: float, ids: list[int]) -> dict[str, Any]:
    return {
        "chat_id": chat,
        "parent_chat_id": parent,
        "timestamp": t,
        "input_length": 16 * len(ids),
        "output_length": 5,
        "type": "text",
        "turn": 1,
        "hash_ids": ids,
    }


def lookup(t: float, hashes: list[str], model: str = "m", size: int = 256) -> dict[str, Any]:
    return {
        "timestamp": t,
        "request_id": "r",
        "model_name": model,
        "chunk_size": size,
        "seq_len": size * len(hashes) + 7,
        "dtypes": ["bfloat16"],
        "shapes": [[2, size, 8]],
        "chunk_hashes": hashes,
    }


def session(*requests: dict[str, Any], **more: Any) -> str:
    return json.dumps({"id": "s", "block_size": 64, "hash_id_scope": "local", "requests": list(requests), **more})


def step(t: float, ids: list[int], **more: Any) -> dict[str, Any]:
    return {"t": t, "type": "n", "in": 64 * len(ids) + 3, "out": 5, "hash_ids": ids, **more}


# --- formats -------------------------------------------------------------------------------------------------------


def test_mooncake(tmp_path: Path) -> None:
    trace = read(lines(tmp_path / "m.jsonl", mooncake(1000, [7, 9], 700), mooncake(3500, [7, 9, 4], 1100)))
    assert trace.block_size == 512
    assert trace.arrival.tolist() == [0.0, 2.5]
    assert paths_of(trace) == [[0, 1], [0, 1, 2]]
    assert trace.input_tokens.tolist() == [700, 1100]
    assert trace.duration[0] == pytest.approx(10 * 0.02 + 700 * 5e-5)


def test_bailian_ids_name_single_blocks_and_turns_make_sessions(tmp_path: Path) -> None:
    trace = read(
        lines(
            tmp_path / "b.jsonl",
            bailian(1, -1, 0.5, [5, 6]),
            bailian(2, -1, 0.6, [9, 6]),
            bailian(3, 1, 2.5, [5, 6, 6]),
            bailian(4, 3, 3.0, [5]),
        )
    )
    assert trace.block_size == 16
    assert paths_of(trace) == [[0, 1], [2, 3], [0, 1, 4], [0]]
    assert trace.session.tolist() == [0, 1, 0, 0]
    assert trace.arrival.tolist() == pytest.approx([0.0, 0.1, 2.0, 2.5])


def test_lmcache_lookups_of_any_size_in_any_order(tmp_path: Path) -> None:
    big = "0x" + "f" * 64
    trace = read(
        [
            lines(tmp_path / "lookup_hashes_1.jsonl", lookup(105.0, [big, "0x2"]), lookup(104.0, [big])),
            lines(tmp_path / "lookup_hashes_2.jsonl", lookup(106.0, [big, "0x2"])),
        ]
    )
    assert trace.block_size == 256
    assert trace.arrival.tolist() == [0.0, 1.0, 2.0]
    assert paths_of(trace) == [[0], [0, 1], [0, 1]]
    assert trace.input_tokens.tolist() == [263, 519, 519]


def test_lmcache_models_share_nothing(tmp_path: Path) -> None:
    trace = read(lines(tmp_path / "l.jsonl", lookup(1.0, ["0x1"], "a"), lookup(2.0, ["0x1"], "b")))
    assert trace.tenants == ("a", "b")
    assert paths_of(trace) == [[0], [1]]


def test_weka_sessions_share_nothing_and_interleave(tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text(session(step(1.0, [1, 2], api_time=4.0), step(9.0, [1, 2, 3])))
    (tmp_path / "a.json").write_text(session(step(0.0, [1])))
    (tmp_path / "LICENSE").write_text("not a trace")
    trace = read(tmp_path, interleave=30)
    assert trace.arrival.tolist() == [0.0, 30.0, 38.0]
    assert paths_of(trace) == [[0], [1, 2], [1, 2, 3]]
    assert trace.session.tolist() == [0, 1, 1]
    assert trace.duration[1] == 4.0


def test_weka_nested_agents_run_in_their_parents_time_and_ids(tmp_path: Path) -> None:
    agent = {"t": 5.0, "type": "subagent", "agent_id": "x", "requests": [step(0.0, [1]), step(3.0, [1, 7])]}
    (tmp_path / "a.json").write_text(session(step(0.0, [1, 2]), agent, step(6.0, [1, 2, 3])))
    trace = read(tmp_path / "a.json")
    assert trace.arrival.tolist() == [0.0, 5.0, 6.0, 8.0]
    assert paths_of(trace) == [[0, 1], [0], [0, 1, 2], [0, 3]]


def test_agent_text_is_tokenised_and_sorted(tmp_path: Path) -> None:
    rows = [
        {"timestamp": 2_000_000, "input": "abcdefgh", "output": "xy", "session_id": "s"},
        {"timestamp": 1_000_000, "input": "abcdZ", "output": "", "session_id": "s"},
    ]
    (tmp_path / "t.jsonl.gz").write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    trace = read(tmp_path / "t.jsonl.gz", tokenizer="bytes", block_size=4)
    assert paths_of(trace) == [[0], [0, 1]]
    assert trace.input_tokens.tolist() == [5, 8]
    assert trace.output.tolist() == [0, 2]


def test_text_needs_a_tokenizer(tmp_path: Path) -> None:
    path = lines(tmp_path / "t.jsonl", {"timestamp": 1, "input": "a", "output": "b", "session_id": "s"})
    with pytest.raises(ConfigError, match="--tokenizer"):
        read(path)
    with pytest.raises(ConfigError, match="no tokenizer file"):
        read(path, tokenizer=tmp_path / "none.json")


def test_any_tokenizers_file_will_do(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel({"red": 0, "blue": 1, "?": 2}, unk_token="?"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    model.save(str(tmp_path / "words.json"))
    path = lines(tmp_path / "t.jsonl", {"timestamp": 0, "text": "red blue red green"}, {"timestamp": 1, "text": "red blue"})
    trace = read(path, tokenizer=tmp_path / "words.json", block_size=2)
    assert paths_of(trace) == [[0, 1], [0]]
    (tmp_path / "broken.json").write_text("{}")
    with pytest.raises(ConfigError, match="is no tokenizer file"):
        read(path, tokenizer=tmp_path / "broken.json")


def test_plain_tokens_hash_ids_tenants_and_header(tmp_path: Path) -> None:
    trace = read(
        lines(
            tmp_path / "p.jsonl",
            {"tenure_trace": 1, "block_size": 2, "seed": 4},
            {"timestamp": 0, "tokens": [1, 2, 3, 4, 5], "tenant": "a", "session": 3, "output": 50},
            {"timestamp": 1, "tokens": [1, 2, 9, 9], "tenant": "a", "session": 3, "duration": 7.5},
            {"timestamp": 1, "tokens": [1, 2], "tenant": "b"},
            {"timestamp": 2, "hash_ids": [4], "tenant": "b"},
        )
    )
    assert trace.block_size == 2
    assert paths_of(trace) == [[0, 1], [0, 2], [3], [4]]
    assert trace.tenants == ("a", "b")
    assert trace.session.tolist() == [0, 0, -1, -1]
    assert trace.duration[1] == 7.5
    assert trace.input_tokens.tolist() == [5, 4, 2, 2]


def test_plain_without_a_header_has_blocks_of_16(tmp_path: Path) -> None:
    path = lines(tmp_path / "p.jsonl", {"timestamp": 0, "tokens": list(range(33))})
    assert (read(path).block_size, read(path).asked) == (16, 2)
    assert (read(path, block_size=8).block_size, read(path, block_size=8).asked) == (8, 4)


def test_the_block_size_that_a_header_states_stands(tmp_path: Path) -> None:
    rows = [{"tenure_trace": 1, "block_size": 2}, {"timestamp": 0, "tokens": list(range(33))}]
    path = lines(tmp_path / "p.jsonl", *rows)
    assert read(path, block_size=2).asked == 16
    with pytest.raises(TraceError, match=r"p\.jsonl: has blocks of 2 tokens, not 8: leave out --block-size"):
        read(path, block_size=8)
    silent = lines(tmp_path / "q.jsonl", {"tenure_trace": 1}, rows[1])
    assert (read(silent).block_size, read(silent, block_size=8).block_size) == (16, 8)


def test_null_means_absent(tmp_path: Path) -> None:
    nothing = dict.fromkeys(("tenant", "session", "output", "duration", "hash_ids", "text"))
    trace = read(lines(tmp_path / "p.jsonl", {"timestamp": 0, "tokens": [1], **nothing}))
    assert (trace.tenants, trace.session.tolist(), trace.output.tolist()) == (("",), [-1], [0])


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_byte_order_mark_is_skipped(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    rows = [{"tenure_trace": 1, "block_size": 2}, {"timestamp": 0, "tokens": [1, 2, 3]}]
    path = lines(tmp_path / "p.jsonl", *rows)
    path.write_bytes(pack(b"\xef\xbb\xbf" + path.read_bytes()))
    assert (read(path).block_size, read(path).requests, read(path).skipped) == (2, 1, 0)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_pipe_is_read_once_and_kept(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    path = lines(tmp_path / "m.jsonl", *GOOD)
    path.write_bytes(pack(path.read_bytes()))
    read_end, write_end = os.pipe()
    os.write(write_end, path.read_bytes())
    os.close(write_end)
    try:
        assert paths_of(read(f"/dev/fd/{read_end}")) == paths_of(read(path))
    finally:
        os.close(read_end)


def test_an_empty_file_is_empty_whatever_its_format(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"x\.jsonl: is empty"):
        read(empty(tmp_path / "x.jsonl"), "mooncake")


def test_a_gzip_file_cut_in_its_first_line_is_truncated(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl.gz").write_bytes(gzip.compress(json.dumps(GOOD[0]).encode())[:-12])
    with pytest.raises(TraceError, match=r"x\.jsonl\.gz: the compressed file is truncated"):
        read(tmp_path / "x.jsonl.gz")


def test_gzip_is_known_by_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_bytes(gzip.compress(json.dumps(mooncake(0, [1])).encode()))
    assert read(tmp_path / "m.jsonl").requests == 1


def test_ids_of_any_size(tmp_path: Path) -> None:
    huge = 10**30
    trace = read(lines(tmp_path / "m.jsonl", mooncake(0, [2**63, huge]), mooncake(1, [2**63, 5]), mooncake(2, [6])))
    assert paths_of(trace) == [[0, 1], [0, 2], [3]]


def test_timing_is_configurable(tmp_path: Path) -> None:
    trace = read(lines(tmp_path / "m.jsonl", mooncake(0, [1], out=100)), timing=Timing(decode=0.01, prefill=0.001))
    assert trace.duration.tolist() == pytest.approx([100 * 0.01 + 512 * 0.001])
    with pytest.raises(ConfigError, match="seconds per token"):
        Timing(decode=-1)


# --- bad lines -----------------------------------------------------------------------------------------------------

GOOD = [mooncake(0, [1, 2]), mooncake(1, [1, 2, 3])]
BAD: list[tuple[str, Any, str]] = [
    ("truncated", json.dumps(mooncake(2, [1, 2]))[:30], "truncated"),
    ("malformed", "{'timestamp': 3}", "malformed"),
    ("not json", "hello", "malformed"),
    ("an array", [1, 2], "Expected `object`"),
    ("a field missing", {"timestamp": 2, "hash_ids": [1]}, "missing required field `input_length`"),
    ("a wrong type", {**mooncake(2, [1]), "hash_ids": ["x"]}, r"Expected `int`, got `str` - at `\$.hash_ids"),
    ("a negative length", {**mooncake(2, [1]), "output_length": -5}, "Expected `int` >= 0"),
    ("a negative id", mooncake(2, [-4]), "negative hash id -4"),
    ("no time", '{"timestamp": 1e300, "input_length": 0, "hash_ids": []}', "no usable timestamp"),
    ("reordered", mooncake(0.5, [1]), "goes back in time"),
    ("ids that do not fit the length", mooncake(2, [1, 2], tokens=9000), "do not fit 9000 tokens in blocks of 512"),
    ("an id under another parent", mooncake(2, [1, 3]), "hash id 3 contradicts its prefix"),
    ("a root id further down", mooncake(2, [2]), "hash id 2 contradicts its prefix"),
    ("an id twice", mooncake(2, [8, 8]), "hash id 8 contradicts its prefix"),
]


@pytest.mark.parametrize(("row", "words"), [(row, words) for _, row, words in BAD], ids=[name for name, _, _ in BAD])
def test_a_bad_line_is_named(tmp_path: Path, row: Any, words: str) -> None:
    path = lines(tmp_path / "m.jsonl", *GOOD, row, mooncake(3, [1]))
    with pytest.raises(TraceError, match=words) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}:3: ")
    assert caught.value.numbers["file"] == str(path)
    assert caught.value.numbers["line"] == 3


@pytest.mark.parametrize(("row", "words"), [(row, words) for _, row, words in BAD], ids=[name for name, _, _ in BAD])
def test_a_bad_line_is_skipped_and_counted(tmp_path: Path, row: Any, words: str) -> None:
    told: list[TraceError] = []
    path = lines(tmp_path / "m.jsonl", *GOOD, row, mooncake(3, [1]))
    trace = read(path, skip_bad=True, on_bad=told.append)
    assert (trace.requests, trace.skipped, len(told)) == (3, 1, 1)
    assert paths_of(trace) == [[0, 1], [0, 1, 2], [0]]
    assert told[0].numbers["line"] == 3


def test_a_skipped_contradiction_teaches_nothing(tmp_path: Path) -> None:
    """The bad request's other ids are free to appear under their true parents."""
    path = lines(tmp_path / "m.jsonl", mooncake(0, [1, 2]), mooncake(1, [1, 5, 2]), mooncake(2, [5]), mooncake(3, [1, 2]))
    trace = read(path, skip_bad=True)
    assert (trace.skipped, paths_of(trace)) == (1, [[0, 1], [2], [0, 1]])


def test_a_contradiction_within_one_tenant_only(tmp_path: Path) -> None:
    rows = [{"tenure_trace": 1, "block_size": 4}] + [
        {"timestamp": t, "hash_ids": ids, "tenant": tenant}
        for t, (tenant, ids) in enumerate([("a", [1, 2]), ("b", [2, 1]), ("a", [1, 3])])
    ]
    assert read(lines(tmp_path / "p.jsonl", *rows)).distinct == 5


def test_a_gzip_file_cut_short(tmp_path: Path) -> None:
    rows = "".join(json.dumps(mooncake(t, [t])) + "\n" for t in range(5000))
    path = tmp_path / "m.jsonl.gz"
    path.write_bytes(gzip.compress(rows.encode())[:9000])
    with pytest.raises(TraceError, match="compressed file is truncated here") as caught:
        read(path)
    trace = read(path, skip_bad=True)
    assert trace.skipped in (1, 2)  # the cut, and perhaps the line it went through
    assert caught.value.numbers["line"] > trace.requests > 100


@pytest.mark.parametrize("broken", [b"\x1f\x8b", b"\x1f\x8b\x08\x00garbage", gzip.compress(b"{}", mtime=0)[:-6]])
def test_a_gzip_file_broken_from_the_start(tmp_path: Path, broken: bytes) -> None:
    (tmp_path / "x.jsonl.gz").write_bytes(broken)
    (tmp_path / "x.json").write_bytes(broken)
    for name in ("x.jsonl.gz", "x.json"):
        with pytest.raises(TraceError):
            read(tmp_path / name)


def test_weka_problems_are_named_by_place(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    cases: list[tuple[str, str]] = [
        (session(step(0, [1]), {"t": "x"}), r"requests\[1\]: Expected `float`"),
        (session(step(5, [1]), step(1, [1])), r"requests\[1\]: goes back in time"),
        (session(step(0, [1, 2]), step(1, [2])), "hash id 2 contradicts"),
        (session({**step(0, [1]), "in": 900}), r"requests\[0\]: 1 hash ids do not fit 900 tokens"),
    ]
    for text, words in cases:
        path.write_text(text)
        with pytest.raises(TraceError, match=words) as caught:
            read(path)
        assert caught.value.numbers["line"] == 1
    path.write_text(cases[1][0])
    assert read(path, skip_bad=True).skipped == 1


def test_weka_written_over_many_lines_names_the_line(tmp_path: Path) -> None:
    document = json.dumps(json.loads(session(step(0, [1]), step(1, [1, 2]), step(2, [2]))), indent=1)
    path = tmp_path / "a.json"
    path.write_text(document)
    with pytest.raises(TraceError, match="hash id 2 contradicts") as caught:
        read(path)
    assert document.splitlines()[caught.value.numbers["line"] - 1].strip() == "{"
    path.write_text(document[: document.index('"hash_ids"')])
    with pytest.raises(TraceError) as caught:
        read(path)
    assert caught.value.numbers["line"] > 5


def test_lmcache_lines_must_agree(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="chunks of 128 tokens among chunks of 256"):
        read(lines(tmp_path / "l.jsonl", lookup(1, ["0x1"]), lookup(2, ["0x1"], size=128)))
    with pytest.raises(TraceError, match="not hexadecimal"):
        read(lines(tmp_path / "l.jsonl", lookup(1, ["0x1"]), lookup(2, ["0xzz"])))


def test_plain_lines_have_one_kind_of_content(tmp_path: Path) -> None:
    first = {"timestamp": 0, "tokens": [1]}
    for row, words in (
        ({"timestamp": 1}, "has none"),
        ({"timestamp": 1, "tokens": [1], "hash_ids": [1]}, "tokens, hash_ids"),
        ({"timestamp": 1, "tokens": [-1]}, ">= 0"),
        ({"timestamp": 1, "tokens": [2**31]}, "<= 2147483647"),
    ):
        with pytest.raises(TraceError, match=words):
            read(lines(tmp_path / "p.jsonl", first, row))


# --- files ---------------------------------------------------------------------------------------------------------


def empty(path: Path) -> Path:
    path.write_text("\n\n")
    return path


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda d: d / "none.jsonl", "cannot be read: No such file"),
        (lambda d: d, "no trace file in this folder"),
        (lambda d: empty(d / "x.jsonl"), r"x\.jsonl: is empty"),
        (lambda d: empty(d / "x.json"), r"x\.json: is empty"),
        (lambda d: lines(d / "x.jsonl", {"a": 1}), "no known trace format"),
        (lambda d: lines(d / "x.json", "{", "}"), "missing required field `requests`"),
        (lambda d: [], "no trace file given"),
    ],
)
def test_files_that_hold_no_trace(tmp_path: Path, make: Callable[[Path], Any], words: str) -> None:
    with pytest.raises(TraceError, match=words) as caught:
        read(make(tmp_path))
    assert "file" in caught.value.numbers


def test_nothing_left_after_skipping(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no usable request") as caught:
        read(lines(tmp_path / "m.jsonl", mooncake(0, [-1]), mooncake(1, [3, 3])), skip_bad=True)
    assert caught.value.numbers["skipped"] == 2


def test_settings_that_make_no_sense(tmp_path: Path) -> None:
    path = lines(tmp_path / "m.jsonl", *GOOD)
    for settings in ({"format": "csv"}, {"interleave": -1.0}, {"interleave": float("nan")}, {"block_size": 0}):
        with pytest.raises(ConfigError) as caught:
            read(path, **settings)  # type: ignore[arg-type]
        assert caught.value.numbers


def test_files_of_different_block_sizes_do_not_mix(tmp_path: Path) -> None:
    paths = [lines(tmp_path / "m.jsonl", *GOOD), lines(tmp_path / "b.jsonl", bailian(1, -1, 0, [1]))]
    with pytest.raises(ConfigError, match="blocks of 16 tokens, the files before it 512"):
        read(paths)
    (tmp_path / "w.json").write_text(session(step(0, [1])))
    with pytest.raises(TraceError, match="blocks of 64 tokens, not 16"):
        read(tmp_path / "w.json", block_size=16)


def test_a_format_can_be_named(tmp_path: Path) -> None:
    path = lines(tmp_path / "x.jsonl", *GOOD)
    assert read(path, "mooncake").requests == 2
    with pytest.raises(TraceError):
        read(path, "bailian")
