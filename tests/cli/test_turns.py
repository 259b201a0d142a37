"""The demo's table, its sentences and its picture, from turns that nobody ran."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

pytest.importorskip("rich", reason="needs tenure[cli]")

from rich.console import Console

from tenure.cli import turn_plot, turns
from tenure.cli.live import Growing
from tenure.cli.turns import Answer, Verdict
from tenure.errors import ConfigError
from tests.cli.making import a_turn


def test_a_line_stands_under_its_header() -> None:
    names, cells = turns.header(), turns.line(a_turn())
    assert len(names) == len(cells)
    assert " ".join(cells.split()) == "tides 1 1,500 640 320 160 380 3.00 0.50 6.0x 10/1/46/43/17 5/2/0 same"
    for name, cell in (("prompt", "1,500"), ("disk", "160"), ("warm", "0.50"), ("answer", "same")):
        assert names.index(name) + len(name) == cells.index(cell) + len(cell)
    assert len(turns.line(a_turn(session="a-very-long-session-name"))) == len(names)


def test_a_line_of_two_nodes_says_who_and_has_the_tiers_that_are_asked_for() -> None:
    tiers = ("device", "pool")
    turn = a_turn()._replace(node="B", reused={"device": 640, "pool": 320})
    names, cells = turns.header(tiers, nodes=True), turns.line(turn, tiers)
    assert len(names) == len(cells)
    assert names.split()[:6] == ["node", "session", "turn", "prompt", "device", "pool"]
    assert cells.split()[:7] == ["B", "tides", "1", "1,500", "640", "320", "540"]
    assert cells.split()[-2] == "5/0"
    assert turns.plain(turn)["node"] == "B"
    assert "node" not in turns.plain(a_turn())
    assert "device 640, pool 320; 540 were computed" in turns.summary([turn], 1e-3, tiers)[0]
    assert "evicted: blocks from device/pool" in turns.notes(tiers)


@pytest.mark.parametrize(("verdict", "shown"), [(Verdict.TIE, "tie@3"), (Verdict.WRONG, "WRONG@3")])
def test_an_answer_that_is_not_the_same_says_where(verdict: Verdict, shown: str) -> None:
    assert turns.line(a_turn(answer=Answer(verdict, 3, 0.5))).endswith(shown)


def test_the_summary_adds_up() -> None:
    text = "\n".join(turns.summary([a_turn(1), a_turn(2)], 1e-3))
    assert "Reused 2,240 of 3,000 prompt tokens (74.7%): device 1,280, host 640, disk 320; 760 were computed." in text
    assert "6.0 s cold and 1.0 s warm: 5.0 s saved, 6.0x in all" in text
    assert "Evicted, in blocks: device 10, host 4, disk 0." in text
    assert "2 of 2 are the cold run's, token by token; the largest difference of a logit is 2.0e-05" in text
    assert "tie" not in text
    assert "WRONG" not in text


def test_the_summary_hides_no_tie_and_nothing_wrong() -> None:
    rows = [a_turn(1), a_turn(2, Answer(Verdict.TIE, 2, 4e-4)), a_turn(3, Answer(Verdict.WRONG, 0, 7.5))]
    text = "\n".join(turns.summary(rows, 1e-3))
    assert "1 of 3 are the cold run's" in text
    assert "largest difference of a logit is 7.5e+00" in text
    assert "1 part at a tie" in text
    assert "1 are WRONG" in text


def test_a_turn_is_json() -> None:
    found = json.loads(json.dumps(turns.plain(a_turn())))
    assert (found["computed"], found["counts"]["sealed"], found["answer"]["verdict"]) == (380, 46, "same")


@pytest.mark.parametrize(("terminal", "width"), [(False, 120), (True, 60), (True, 160)])
def test_every_line_is_printed_once_on_any_screen(terminal: bool, width: int) -> None:
    file = io.StringIO()
    screen = Console(file=file, force_terminal=terminal, width=width, height=8, soft_wrap=True)
    with Growing(screen, turns.header()) as table:
        for number in range(1, 21):
            table.tell(f"doing {number}")
            table.add(turns.line(a_turn(number, session=f"s{number}.")))
    printed = file.getvalue().rpartition("session")[2]  # what stays: an animation draws over all before
    assert [printed.count(f"s{number}. ") for number in range(1, 21)] == [1] * 20
    assert ("doing" in file.getvalue()) == (terminal and width == 160)
    assert "doing" not in printed


def test_the_picture_is_two_files_and_the_same_each_time(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs tenure[lab]")
    rows = [a_turn(number) for number in range(1, 4)]
    png, svg = turn_plot.draw(rows, tmp_path / "turns", "a title")
    assert png.read_bytes().startswith(b"\x89PNG")
    drawn = svg.read_text()
    for word in ("a title", "cold", "warm", "device", "host", "disk", "computed", "tides 3"):
        assert word in drawn
    assert turn_plot.draw(rows, tmp_path / "again", "a title")[1].read_bytes() == svg.read_bytes()
    of_two = [turn._replace(node="B") for turn in rows]
    both = turn_plot.draw(of_two, tmp_path / "both", "a title", ("device", "pool"))[1].read_text()
    assert "B tides 3" in both
    assert "pool" in both
    assert "disk" not in both
    with pytest.raises(ConfigError, match="no turns"):
        turn_plot.draw([], tmp_path / "none", "")
