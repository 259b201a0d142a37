"""SCBench's own files: what is read of each data set, how it is scored, and what is refused."""

from __future__ import annotations

import json

import pytest

from tenure.errors import ConfigError, TraceError
from tenure.scbench.modes import MODES
from tenure.scbench.original import ORIGINAL
from tenure.scbench.session import Turn

DEF = "def mean(values):\n    total = sum(values)\n    return total / len(values)"
OTHER = "def median(values):\n    middle = sorted(values)\n    return middle[len(values) // 2]"
BOB = {"input": "Who?", "answer": "Carl", "options": ["Anna", "Bob", "Carl", "Dora"]}


def written(folder, name, *rows):
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    (folder / f"scbench_{name}.jsonl").write_text("\n".join(lines), "utf8")
    return folder


def read(folder, name, *rows, **settings):
    return list(ORIGINAL[name].read(written(folder, name, *rows), **settings))


def row(context, *turns, **more):
    return {"id": 0, "context": context, "multi_turns": list(turns), **more}


def test_there_are_twelve():
    assert len(ORIGINAL) == 12


def test_a_session(tmp_path):
    (session,) = read(tmp_path, "kv", row('{"a": "1"}', {"input": "Key a:", "answer": "1"}, {"input": "Key b:\n", "answer": "2"}))
    assert session.context.endswith('\n\n{"a": "1"}\n\n')
    assert session.turns == (Turn("Key a:", " 1", ("1",), "kv", 150), Turn("Key b:\n", "2", ("2",), "kv", 150))
    assert (session.task, session.seed, session.stop, session.close) == ("kv", 0, "", "\n\n")
    assert all(len(mode(session)) > 2 for mode in MODES.values())


def test_at_most_so_many_turns(tmp_path):
    many = row("c", *({"input": f"q{at}", "answer": "x"} for at in range(9)))
    assert len(read(tmp_path, "kv", many)[0].turns) == 5
    assert len(read(tmp_path, "kv", many, turns=7)[0].turns) == 7
    with pytest.raises(ConfigError, match="turns"):
        read(tmp_path, "kv", many, turns=0)


def test_blank_lines_and_the_older_name_of_the_context(tmp_path):
    turn = {"input": "q", "answer": "x"}
    sessions = read(tmp_path, "many_shot", {"input": "shots", "multi_turns": [turn]}, "", row("more", turn))
    assert [session.context for session in sessions] == ["shots\n\n", "more\n\n"]
    assert [session.seed for session in sessions] == [0, 1]


@pytest.mark.parametrize(
    ("name", "turn", "answers"),
    [
        ("kv", {"answer": "ab-1"}, {"it is ab-1.": 1, "AB-1": 0, "": 0}),
        ("prefix_suffix", {"answer": "xyz"}, {"xyz": 1, "xy z": 0}),
        ("vt", {"answer": ["VAR A", "VAR B"]}, {"var a and VAR B": 1, "VAR A": 0.5, "A": 0}),
        ("many_shot", {"answer": "(C)"}, {" (c) because": 1, "(B)": 0, "(": 0}),
        ("qa_eng", {"answer": "Mr. Smith"}, {"it was mr. smith": 1, "Smith": 0}),
        ("qa_chn", {"answer": "北京"}, {"北京。": 1, "上海": 0}),
        ("mf", {"answer": 42}, {"42.": 1, "is 42, 7": 1, "42.9": 1, "7 42": 0, "none": 0}),
        ("mf", {"answer": 4.5}, {"4.5": 1, "4": 0, "": 0}),
        ("mf", {"answer": 1e20}, {"100000000000000000000": 1, "1" + 400 * "0": 0}),
        ("summary", {"answer": "a b c"}, {"a b c": 1, "x": 0}),
        ("choice_eng", BOB, {"C": 1, "Carl": 1, "B. Carl": 0, "The answer is: Carl": 1, "I think C": 1, "no idea": 0, "": 0}),
        ("choice_eng", BOB, {"answer is:": 0, "the answer is B": 0, "Dora": 0}),
    ],
)
def test_metrics(tmp_path, name, turn, answers):
    (session,) = read(tmp_path, name, row("text", {"input": "q", **turn}))
    for said, score in answers.items():
        assert ORIGINAL[name].score(said, session.turns[0]) == score, said
    assert ORIGINAL[name].score(session.turns[0].answer, session.turns[0]) == 1


def test_a_function_is_compared_with_all_of_its_repository(tmp_path):
    asked = [{"input": "describes", "answer": answer, "name": "f"} for answer in (DEF, OTHER)]
    one, _ = read(tmp_path, "repoqa", row("code", asked[0], repo="r"), row("code", asked[1], repo="r"))
    turn, score = one.turns[0], ORIGINAL["repoqa"].score
    assert turn.labels == (DEF, OTHER)
    assert score(f"Here:\n```python\n{DEF}\n```\nDone.", turn) == 1
    assert score(DEF, turn) == 1
    assert score(f"```\n{OTHER}\n```", turn) == 0
    assert score(DEF.split("\n")[0], turn) == 0


def test_mixed_sets_score_each_turn_by_its_kind(tmp_path):
    turns = [
        {"input": "sum up", "answer": "a b", "task": "scbench_summary"},
        {"input": "pass key?", "answer": "71", "task": "scbench_passkey"},
    ]
    (session,) = read(tmp_path, "summary_with_needles", row("text", *turns))
    assert [(turn.kind, turn.limit) for turn in session.turns] == [("summary", 800), ("passkey", 15)]
    score = ORIGINAL["summary_with_needles"].score
    assert score("a b", session.turns[0]) == 1
    assert [score(said, session.turns[1]) for said in ("the key is 71.", "7 71", "711", "")] == [1, 0, 0, 0]


@pytest.mark.parametrize(
    ("name", "bad", "reason"),
    [
        ("kv", "{", ":2:"),
        ("kv", "[]", "object"),
        ("kv", '{"context": "c"}', "multi_turns"),
        ("kv", row("c"), "no turns"),
        ("kv", row("c", {"input": "q"}), "answer"),
        ("kv", row("c", {"input": "q", "answer": ""}), "without an answer"),
        ("kv", row("c", {"input": "q", "answer": " "}), "without an answer"),
        ("vt", row("c", {"input": "q", "answer": []}), "without an answer"),
        ("mf", row([1, 2], {"input": "q", "answer": "two"}), "no number"),
        ("mf", row([1, 2], {"input": "q", "answer": -2}), "no number from 0 on"),
        ("kv", row("c", {"input": " ", "answer": "x"}), "without a question"),
        ("kv", row("", {"input": "q", "answer": "x"}), "no context"),
        ("choice_eng", row("c", {"input": "q", "answer": "Eve", "options": ["A", "B", "C", "D"]}), "options"),
        ("choice_eng", row("c", {"input": "q", "answer": "A", "options": ["A"]}), "options"),
        ("repoqa_and_kv", row("c", {"input": "q", "answer": "x", "task": "scbench_vt"}), "repoqa, kv"),
    ],
)
def test_a_bad_line_is_named(tmp_path, name, bad, reason):
    good = row("c", {"input": "q", "answer": "x", "options": ["x", "a", "b", "c"], "task": "scbench_kv"})
    if name == "mf":
        good["multi_turns"][0]["answer"] = 1
    with pytest.raises(TraceError, match=reason) as caught:
        read(tmp_path, name, good, bad)
    assert caught.value.numbers["line"] == 2


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(TraceError, match=r"scbench_vt\.jsonl"):
        list(ORIGINAL["vt"].read(tmp_path))


def test_a_list_of_numbers_is_a_context(tmp_path):
    (session,) = read(tmp_path, "mf", row([3, 1, 2], {"input": "The largest number is", "answer": 3}))
    assert session.context == "[3, 1, 2]\n\n"
    assert session.turns[0].answer == " 3"
