"""A grid: what is measured of a session, against the runner asked for each cell by itself; and what is refused."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

torch = pytest.importorskip("torch", reason="needs tenure[model]")
pytest.importorskip("transformers", reason="needs tenure[model]")

from tenure.errors import ConfigError
from tenure.scbench import measuring as at_work
from tenure.scbench import serving
from tenure.scbench.contexts import Contexts
from tenure.scbench.grid import Cell, Grid, prompt_tokens
from tenure.scbench.measuring import Measuring
from tenure.scbench.methods import METHODS
from tenure.scbench.model import Subject, subject
from tenure.scbench.modes import MODES
from tenure.scbench.report.samples import first
from tenure.scbench.results import Row
from tenure.scbench.runner import run, run_all
from tenure.scbench.serving import Server
from tenure.scbench.tasks import TASKS

from .test_subject import users

NAMES = ("dense", "snapkv", "kivi-int4", "quest", "a_shape", "prefix", "swapped", "recompute")
SIZE = 12


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    """Any model will do: answers need not be right to be compared."""
    return subject(users(tmp_path_factory.mktemp("models") / "mine", max_position_embeddings=2048))


@pytest.fixture(scope="module")
def measuring(model: Subject) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(at_work, "subject", lambda name, dtype, device: model)
        grid = Grid(
            model="mine", sizes={"retr_kv": SIZE, "multi_hop": SIZE}, methods=NAMES, budgets=(0.5, 0.25), sessions=3, turns=3
        )
        one = Measuring(grid)
        yield one
        one.close()


@pytest.fixture(scope="module")
def rows(measuring: Measuring) -> list[Row]:
    return measuring.session("retr_kv", 1)


def test_cells_are_all_modes_methods_and_budgets(measuring: Measuring) -> None:
    cells = measuring.grid.cells
    assert len(cells) == len(set(cells)) == 2 * (1 + 2 + 1 + 2 + 2 + 1 + 1 + 1)
    assert Cell("multi_turn", "snapkv", 0.25) in cells
    assert [cell.budget for cell in cells if cell.method == "kivi-int4"] == [1.0, 1.0]


def test_a_row_a_cell_in_order(measuring: Measuring, rows: list[Row]) -> None:
    assert [Cell(row.mode, row.method, row.budget) for row in rows] == measuring.grid.cells
    assert {(row.model, row.task, row.size, row.seed) for row in rows} == {("mine", "retr_kv", SIZE, 1)}
    assert all(len(row.scores) == len(row.kinds) == len(row.predictions) == 3 for row in rows)
    assert rows[0].lengths == tuple(len(turn.answer) for turn in TASKS["retr_kv"].seeded(1, SIZE, 3).turns)  # a token a byte
    assert {row.stage for row in rows} == {"none", "compression", "loading", "generation", "retrieval"}


@pytest.mark.parametrize("name", [name for name in NAMES if name in METHODS])
def test_a_cell_is_what_the_runner_says_of_it_alone(model: Subject, rows: list[Row], name: str) -> None:
    task = TASKS["retr_kv"]
    session = task.seeded(1, SIZE, 3)
    for row in (row for row in rows if row.method == name):
        alone = run(Contexts(model), session, task, MODES[row.mode](session), METHODS[name], row.budget)
        assert row.predictions == tuple(one.prediction for one in alone.outcomes)
        assert row.scores == tuple(one.score for one in alone.outcomes)
        assert (row.asked, row.prefilled) == (alone.asked, alone.prefilled)
        assert (row.resident, row.full) == (alone.outcomes[0].resident, alone.outcomes[0].full)
        assert row.read == pytest.approx(sum(one.read for one in alone.outcomes) / 3)


def test_serving_with_reuse_says_the_same_and_runs_less(rows: list[Row]) -> None:
    by = {(row.mode, row.method): row for row in rows if row.budget == 1}
    for mode in MODES:
        warm, cold, dense = by[mode, "prefix"], by[mode, "recompute"], by[mode, "dense"]
        assert warm.predictions == cold.predictions == dense.predictions == by[mode, "swapped"].predictions
        assert by[mode, "swapped"].prefilled == warm.prefilled
        assert warm.asked == cold.asked == cold.prefilled == dense.asked
        assert dense.prefilled <= warm.prefilled < cold.prefilled  # whole blocks are hit
        assert warm.prefilled - dense.prefilled < 3 * 2 * 16


def test_seconds_are_of_methods_alone_and_others_have_none(measuring: Measuring, rows: list[Row]) -> None:
    served = ("prefix", "swapped", "recompute")
    last = measuring.session("multi_hop", 2)
    assert all(row.seconds is row.encoding is None for row in last)
    first = measuring.session("multi_hop", 0)
    assert all((row.seconds is not None) == (row.mode == "multi_turn") for row in first)
    assert all(row.encoding > 0 for row in first if row.mode == "multi_turn" and row.method not in served)


def test_methods_are_timed_one_by_one_in_another_order_each_session(
    model: Subject, measuring: Measuring, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = msgspec.structs.replace(measuring.grid, modes=("multi_turn",), methods=("dense", "snapkv", "a_shape"))
    monkeypatch.setattr(at_work, "subject", lambda name, dtype, device: model)
    ran: list[tuple[str, float]] = []
    known: list[int] = []

    def run_and_tell(contexts: Contexts, *rest: Any) -> Any:
        ran.append((rest[-2].name, rest[-1]))
        known.append(0 if contexts._last is None else len(contexts._last[2].known))
        return run(contexts, *rest)

    monkeypatch.setattr(at_work, "run", run_and_tell)
    order = [("dense", 1.0), ("snapkv", 0.5), ("snapkv", 0.25), ("a_shape", 0.5), ("a_shape", 0.25)]
    rows = Measuring(grid).session("retr_kv", 0)
    assert ran == [("dense", 1.0), *order]  # after what warms up
    assert known == [0] * 6
    assert len({row.encoding for row in rows if row.method != "a_shape"}) == 1
    assert len({row.encoding for row in rows}) == 3
    ran.clear()
    assert [(row.method, row.budget) for row in Measuring(grid).session("retr_kv", 1)] == order
    assert ran == [("dense", 1.0), *order[2:], *order[:2]]
    ran.clear()
    Measuring(grid).session("retr_kv", 2)
    assert ran == []  # the third is not timed


def test_few_at_once_say_the_same(model: Subject, measuring: Measuring, rows: list[Row], monkeypatch: pytest.MonkeyPatch) -> None:
    groups: list[int] = []

    def counted(contexts: Any, session: Any, task: Any, steps: Any, lanes: Any) -> Any:
        groups.append(len(lanes))
        return run_all(contexts, session, task, steps, lanes)

    monkeypatch.setattr(at_work, "run_all", counted)
    monkeypatch.setattr(at_work, "_HELD", 4 * rows[0].full)
    monkeypatch.setattr(measuring, "grid", msgspec.structs.replace(measuring.grid, timed=0))
    again = measuring.session("retr_kv", 1)
    assert max(groups) <= 4
    assert len(groups) > 4
    assert [(row.scores, row.predictions, row.resident) for row in again] == [
        (row.scores, row.predictions, row.resident) for row in rows
    ]


def test_kv_leaves_the_device_between_requests_and_comes_back(model: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that only what takes the KV's place moves: that is in no seconds."""
    clock = [0.0]
    monkeypatch.setattr(serving, "now", lambda model: clock[0])
    task = TASKS["retr_kv"]
    session = task.seeded(1, SIZE, 3)
    steps = MODES["multi_turn"](session)
    prompt = [*model.start, *model.encode(session.context)]
    with closing(Server(model, 16, 4096)) as server:
        lower: list[tuple[int, int, bool]] = []
        push = server._push_out

        def seen() -> None:
            before = server._node.match(prompt, server._engine.who.with_(tenant="run 1"))
            push()
            clock[0] += 1000
            after = server._node.match(prompt, server._engine.who.with_(tenant="run 1"))
            lower.append((len(before.lower), len(after.lower), set(after.lower) == {"host"}))

        server._push_out = seen  # type: ignore[method-assign]
        asked = server.run(session, task, steps, "swapped")
        blocks = len(prompt) // 16
        assert lower == [(0, blocks, True)] * 3
        assert server._node.tier_stats("host").loaded >= 2 * blocks
        assert asked.prefilled < asked.asked / 2
        assert (asked.seconds, clock[0]) == (0, 3000)
        stays = server.run(session, task, steps, "prefix")
        assert [one.prediction for one in stays.outcomes] == [one.prediction for one in asked.outcomes]
        assert len(lower) == 3


def test_a_session_gives_the_same_rows_again(measuring: Measuring, rows: list[Row]) -> None:
    measuring.session("multi_hop", 1)
    again = measuring.session("retr_kv", 1)
    still = [msgspec.structs.replace(row, seconds=None, encoding=None) for row in rows]
    assert [msgspec.structs.replace(row, seconds=None, encoding=None) for row in again] == still


def test_the_longest_prompt_is_counted(model: Subject) -> None:
    session = TASKS["retr_kv"].seeded(1, SIZE, 3)
    asked = session.context + session.primer + session.close.join(turn.query for turn in session.turns)
    answers = [len(turn.answer) for turn in session.turns]
    assert prompt_tokens(model, session) == 1 + len(asked) + sum(answers[:2]) + 16  # <s>, a token a byte, the last answer at most
    assert prompt_tokens(model, session, own=True) == 1 + len(asked) + 3 * 16
    first = replace(session, turns=(replace(session.turns[0], limit=500), *session.turns[1:]))
    assert prompt_tokens(model, first) == 1 + len(session.context + session.primer + session.turns[0].query) + 500


def test_data_of_scbenchs_own(model: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = [{"input": "Key a:", "answer": "1"}, {"input": "Key b:", "answer": "2"}]
    lines = [json.dumps({"id": at, "context": f'{{"a": "{at}"}}', "multi_turns": turns}) for at in range(3)]
    (tmp_path / "scbench_kv.jsonl").write_text("\n".join(lines))
    monkeypatch.setattr(at_work, "subject", lambda name, dtype, device: model)
    settings: dict[str, Any] = {"model": "mine", "data": str(tmp_path), "sizes": {"kv": 0}, "methods": ("dense", "streaming")}
    grid = Grid(**settings, fitting={"kv": (0, 2)}, budgets=(0.5,), turns=2)
    assert grid.seeds("kv") == (0, 2)
    rows = Measuring(grid).session("kv", 2)
    assert [row.seed for row in rows] == [2] * 4
    assert rows[0].kinds == ("kv", "kv")
    with pytest.raises(ConfigError, match="fitting"):
        Grid(**settings)
    with pytest.raises(ConfigError, match="session of kv is 3"):
        Measuring(grid).session("kv", 3)


def test_a_letter_is_enough_where_options_are_chosen(model: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row says how short a right answer may be: of one token, the prefill itself gives it."""
    turn = {"input": "Who?", "answer": "Carl", "options": ["Ann", "Bob", "Carl", "Dora"]}
    (tmp_path / "scbench_choice_eng.jsonl").write_text(json.dumps({"context": "Carl did it.", "multi_turns": [turn]}))
    monkeypatch.setattr(at_work, "subject", lambda name, dtype, device: model)
    grid = Grid(model="mine", data=str(tmp_path), sizes={"choice_eng": 0}, fitting={"choice_eng": (0,)}, methods=("dense",))
    rows = Measuring(grid).session("choice_eng", 0)
    assert {row.lengths for row in rows} == {(1,)}
    assert [first(row) is None for row in rows] == [True, False]  # in a conversation; not across requests


def test_a_session_that_does_not_fit_is_refused(model: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(at_work, "subject", lambda name, dtype, device: model)
    grid = Grid(model="mine", sizes={"retr_kv": 300}, methods=("dense",))
    with pytest.raises(ConfigError, match=r"takes \d+ tokens: mine was made for 2048"):
        Measuring(grid).session("retr_kv", 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sizes": {}}, "there is no task"),
        ({"sizes": {"retr": 3}}, "task 'retr' is not known: one of retr_kv"),
        ({"methods": ("dense", "snap")}, "method 'snap' is not known"),
        ({"methods": ("dense", "tova", "tova")}, "named twice"),
        ({"methods": ("tova",)}, "lack dense"),
        ({"modes": ("single",)}, "mode 'single' is not known"),
        ({"budgets": (0.5, 0)}, "budget is 0"),
        ({"budgets": (1.5,)}, "budget is 1.5"),
        ({"budgets": ()}, "no budgets"),
        ({"sessions": 0}, "sessions is 0"),
        ({"timed": -1}, "timed is -1"),
        ({"block_size": True}, "block_size"),
    ],
)
def test_bad_grids_are_refused_by_name(changes: dict[str, Any], message: str) -> None:
    settings: dict[str, Any] = {"model": "mine", "sizes": {"retr_kv": 3}, "methods": ("dense", "tova")}
    with pytest.raises(ConfigError, match=message):
        Grid(**(settings | changes))
