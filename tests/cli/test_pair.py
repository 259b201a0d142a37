"""Who answers when, who is killed, and what is said of it, with nodes that nobody started."""

from __future__ import annotations

import io
from typing import Any

import pytest

for package in ("typer", "torch", "transformers", "xxhash", "zstandard", "ml_dtypes"):
    pytest.importorskip(package, reason="needs tenure[cli,model]")

from rich.console import Console

from tenure.cli import pair, recorded
from tenure.cli.live import Growing
from tenure.cli.pair_node import Done, Half
from tenure.errors import TenureError
from tenure.tiers.pool import ClaimCounters
from tests.cli.making import a_turn


class Fake:
    """A node that nobody started: it answers at once, until its pipe ends."""

    def __init__(self, name: str, answers: int = 100) -> None:
        self.name = name
        self.done: list[Done] = []
        self.kills = 0
        self._left = answers
        self._place = 0

    def tell(self, place: int) -> None:
        self._place = place

    def hear(self, kind: Any) -> Any:
        if kind is Half:
            return Half(self._place)
        if not self._left:
            raise EOFError
        self._left -= 1
        return Done(a_turn(self._place)._replace(node=self.name, reused={"pool": 64}), 32, ClaimCounters(1, 2, 3, 4, 5))

    def kill(self) -> str:
        self.kills += 1
        return "killed"


def served(*members: Any, steps: int = 8, limit: float = 1e9) -> tuple[str, list[str], str]:
    """Two sessions, in turns: why it stopped, who answered, and what the table and the summary say."""
    given = [recorded.Step("ab"[place % 2], place // 2 + 1, ()) for place in range(steps)]
    both = pair._Pair(list(members), given)
    file = io.StringIO()
    with Growing(Console(file=file, width=200), "") as table:
        stopped = both.serve(table, limit)
    return stopped, [turn.node for turn in both.done], "\n".join([file.getvalue(), *both.summary()])


def test_the_first_is_killed_in_its_first_turn_of_the_second_half() -> None:
    a, b = Fake("A"), Fake("B")
    stopped, who, text = served(a, b)
    assert (stopped, who) == ("", ["A", "A", "B", "B", "B", "B", "B", "B"])
    assert (a.kills > 0, b.kills) == (True, 0)
    assert "A    a 3: killed; node B goes on alone" in text
    assert (
        "Then node B answered 4 turns alone, 4 of them as cold; 128 of their tokens came from the pool, computed by others"
        in text
    )
    assert "Node A answered 2 turns: of 3,000 prompt tokens 128 came from the pool, 64 of them new to it" in text
    assert "It claimed and wrote 1 blocks; 2 it found written already, 3 of its commits were refused." in text


def test_a_node_that_ends_by_itself_is_gone_on_without() -> None:
    a, b = Fake("A"), Fake("B", answers=1)
    _, who, text = served(a, b)
    assert who == ["A", "A", "B", "A", "A", "A", "A", "A"]
    assert "B    b 2: killed; node A goes on alone" in text
    assert a.kills == 0  # the last is not killed


def test_when_both_are_gone_that_is_an_error() -> None:
    with pytest.raises(TenureError, match="both nodes have ended, node B at turn 2 of session b: killed"):
        served(Fake("A", answers=0), Fake("B", answers=3))


def test_it_stops_when_its_time_is_over_and_kills_when_half_is(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def ten_seconds_more() -> float:
        nonlocal now
        now += 10
        return now

    monkeypatch.setattr(pair, "monotonic", ten_seconds_more)
    stopped, who, text = served(Fake("A"), Fake("B"), limit=70)
    assert stopped == f"Stopped after {len(who)} of 8 turns: 70 s are over (--seconds)."
    assert who == ["A", "B", "B"]
    assert "A    b 1: killed" in text


def test_an_interruption_keeps_what_was_done() -> None:
    class Interrupted(Fake):
        def tell(self, place: int) -> None:
            if place == 3:
                raise KeyboardInterrupt
            super().tell(place)

    stopped, who, text = served(Fake("A"), Interrupted("B"))
    assert stopped == "Interrupted after 3 of 8 turns."
    assert who == ["A", "A", "B"]
    assert "No node was killed" in text
