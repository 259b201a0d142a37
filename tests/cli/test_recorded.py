"""Recorded chats: every form of a line becomes the right steps; a bad line is named with its file and number."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tenure.cli.recorded import BUNDLED, Step, read
from tenure.errors import TraceError

SYSTEM = {"role": "system", "content": "be brief"}


def said(role: str, content: str, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def steps(folder: Path, *lines: Any) -> list[Step]:
    file = folder / "chat.jsonl"
    file.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return read(file)


def shape(found: list[Step]) -> list[tuple[str, int, int]]:
    return [(step.session, step.turn, len(step.messages)) for step in found]


def test_a_message_a_line(tmp_path: Path) -> None:
    found = steps(tmp_path, SYSTEM, said("user", "a"), said("assistant", "b"), said("user", "c"), said("assistant", "d"))
    assert shape(found) == [("1", 1, 2), ("1", 2, 4)]
    assert found[1].messages[2] == ("assistant", "b")


def test_sessions_are_told_apart_in_the_order_of_the_file(tmp_path: Path) -> None:
    found = steps(
        tmp_path,
        said("user", "a", session="x"),
        said("user", "b", session_id=7),
        said("assistant", "c", session="x"),
        said("assistant", "d", session_id=7),
        said("user", "e", session="x"),
    )
    assert shape(found) == [("x", 1, 1), ("7", 1, 1), ("x", 2, 3)]  # the last one was never answered


def test_a_whole_chat_a_line(tmp_path: Path) -> None:
    chat = [SYSTEM, said("user", "a"), said("assistant", "b"), said("user", "c"), said("assistant", "d")]
    found = steps(tmp_path, {"messages": chat}, {"messages": chat[:2]})
    assert shape(found) == [("1", 1, 2), ("1", 2, 4), ("2", 1, 2)]


def test_a_request_a_line_goes_on_from_the_one_before(tmp_path: Path) -> None:
    chat = [SYSTEM, said("user", "a"), said("assistant", "b"), said("user", "c"), said("assistant", "d"), said("user", "e")]
    other = [SYSTEM, said("user", "z")]
    lines = [{"messages": part} for part in (chat[:2], other, chat[:4], chat)]
    assert shape(steps(tmp_path, *lines)) == [("1", 1, 2), ("2", 1, 2), ("1", 2, 4), ("1", 3, 6)]
    named = [{"messages": part, "session": "s"} for part in (chat[:2], chat[:4], [SYSTEM, *chat[3:]])]
    assert shape(steps(tmp_path, *named)) == [("s", 1, 2), ("s", 2, 4), ("s", 3, 4)]  # the last was cut by its client


def test_parts_and_calls_become_text(tmp_path: Path) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    odd = {"function": {"name": "g", "arguments": "not json"}}
    (step,) = steps(
        tmp_path,
        {
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]},
                {"role": "assistant", "content": None, "tool_calls": [call, odd]},
                {"role": "tool", "content": "three", "tool_call_id": "1"},
            ],
            "model": "any",
        },
    )[1:]
    calls = '<tool_call>[{"name":"f","arguments":{"x":1}},{"name":"g","arguments":"not json"}]</tool_call>'
    assert step.messages == (("user", "one two"), ("assistant", calls), ("tool", "three"))


def test_gzip_blank_lines_and_a_byte_order_mark(tmp_path: Path) -> None:
    file = tmp_path / "chat.jsonl.gz"
    file.write_bytes(gzip.compress(b'\xef\xbb\xbf{"role": "user", "content": "a"}\n\n{"role": "assistant", "content": "b"}\n'))
    assert shape(read(file)) == [("1", 1, 1)]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{broken", "malformed"),
        ("[]", "Expected `object`"),
        ({"text": "a"}, "has neither `messages` nor the `role` and `content` of one message"),
        (said("wizard", "a"), "wizard"),
        (said("user", 3), "Expected `str | array | null`"),
        ({"role": "user"}, "has neither content nor tool_calls"),
        (said("user", [{"type": "image_url"}]), "a part of a message is 'image_url': only text can be read"),
        ({"messages": []}, "nothing that is to be answered"),
        ({"messages": [said("assistant", "a")]}, "nothing that is to be answered"),
        ({"messages": [said("user", "a"), {"role": "tool"}]}, "has neither content nor tool_calls"),
        ('{"role": "user", "content": "\xff"}'.encode("latin-1").decode("latin-1"), None),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: Any, words: str | None) -> None:
    if words is None:  # no UTF-8
        (tmp_path / "chat.jsonl").write_bytes(b'{"role": "user", "content": "a"}\n' + line.encode("latin-1") + b"\n")
        with pytest.raises(TraceError, match=r"chat.jsonl:2: "):
            read(tmp_path / "chat.jsonl")
        return
    with pytest.raises(TraceError) as caught:
        steps(tmp_path, said("user", "a"), line)
    assert words in str(caught.value)
    assert str(caught.value).startswith(f"{tmp_path / 'chat.jsonl'}:2: ")
    assert caught.value.numbers["line"] == 2


def test_a_file_without_a_turn_or_without_a_line(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="has no turn"):
        steps(tmp_path, said("assistant", "a"))
    with pytest.raises(TraceError, match="is empty"):
        steps(tmp_path)
    with pytest.raises(TraceError, match="cannot be read"):
        read(tmp_path / "none.jsonl")


def test_the_bundled_sessions_share_their_beginning_and_grow() -> None:
    found = read(BUNDLED)
    latest: dict[str, Step] = {}
    for step in found:
        before = latest.get(step.session)
        if before is not None:
            assert step.messages[: len(before.messages)] == before.messages
            assert len(step.messages) > len(before.messages)
        latest[step.session] = step
    assert len(latest) == 3
    assert len({step.messages[0] for step in found}) == 1
    order = [step.session for step in found]
    assert sum(one != other for one, other in pairwise(order)) > 6  # interleaved
