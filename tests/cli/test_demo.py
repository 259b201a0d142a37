"""The demo from end to end on a small model: every tier serves, answers are the cold run's, the store outlives the run."""

from __future__ import annotations

import importlib.util
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

for package in ("typer", "torch", "transformers", "xxhash", "zstandard", "ml_dtypes"):
    pytest.importorskip(package, reason="needs tenure[cli,model]")

import torch
from typer.testing import CliRunner

from tenure.cli import demo, serving
from tenure.cli.main import app
from tenure.cli.serving import Run, compare
from tenure.cli.turns import Turn, Verdict
from tenure.engines import build
from tenure.models import Loaded
from tenure.node import Node
from tenure.tiers.device import DeviceArena
from tests.cli.making import SESSIONS, tiny, write_sessions

Result = Any
TIERS = ("device", "host", "disk")


@pytest.fixture(scope="module")
def loaded() -> Loaded:
    return tiny()


@pytest.fixture
def in_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """No threads: each turn is written down before the next, so that every run is the same."""
    answer = serving.Serving.turn

    def turn(self: serving.Serving, prompt: serving.Prompt) -> Turn:
        found = answer(self, prompt)
        self._kv.flush()
        return found

    monkeypatch.setattr(serving.Serving, "turn", turn)
    monkeypatch.setattr(build, "Node", partial(Node, background=False))


@pytest.fixture
def run(loaded: Loaded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Calls `tenure demo` on that model, with three sessions of four turns and tiers too small for them."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "load", lambda: loaded)
    write_sessions(Path("chat.jsonl"))

    def call(*arguments: object) -> Result:
        given = ["--session", "chat.jsonl", "--out", "o", "--block-size", 4, "--new", 3, "--host", "280KiB", "--disk", "2MiB"]
        return CliRunner().invoke(app, ["demo", *map(str, given), *map(str, arguments)], env={"COLUMNS": "120"})

    return call


def turns() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(Path("o/turns.json").read_text())
    return found


def test_every_tier_serves_and_every_answer_is_the_cold_runs(run: Any, in_step: None) -> None:
    result = run()
    assert result.exit_code == 0, result.output
    rows = turns()
    assert [(row["session"], row["number"]) for row in rows] == [(s, n) for n in range(1, 5) for s in SESSIONS]
    assert {row["answer"]["verdict"] for row in rows} == {"same"}
    assert all(sum(row["reused"].values()) + row["computed"] == row["prompt"] for row in rows)
    assert all(sum(row["reused"][tier] for row in rows) for tier in TIERS)
    assert sum(row["evicted"]["device"] for row in rows) > 0
    assert all(row["counts"]["sealed"] * 4 >= sum(row["reused"].values()) for row in rows)
    assert "this run begins cold" in result.stdout
    assert "kv.check(): every invariant holds" in result.stdout
    assert len([line for line in result.stdout.splitlines() if line.endswith(" same")]) == 12


def test_the_second_run_begins_warm_from_disk_and_a_fresh_one_does_not(run: Any, in_step: None) -> None:
    first = run()
    kept = int(first.stdout.split(" blocks are kept on disk")[0].split()[-1])
    cold = sum(row["computed"] for row in turns())
    second = run()
    assert f"Warm from disk: {kept} blocks found in o/store" in second.stdout
    rows = turns()
    assert rows[0]["reused"]["disk"] > 0
    assert sum(row["computed"] for row in rows) < cold / 2
    assert {row["answer"]["verdict"] for row in rows} == {"same"}
    fresh = run("--fresh")
    assert "this run begins cold" in fresh.stdout
    assert sum(row["computed"] for row in turns()) == cold


def test_kv_that_is_not_the_prompts_is_noticed(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the comparison looks at what was really reused."""
    gather = DeviceArena.gather

    def zeros(self: DeviceArena, frames: Any, into: Any, at: int = 0, tokens: int | None = None) -> None:
        gather(self, frames, into, at, tokens)
        into[:, :, :, at : at + 4] = 0

    monkeypatch.setattr(DeviceArena, "gather", zeros)
    result = run()
    assert result.exit_code == 1
    assert "are WRONG: their logits are not the cold run's." in result.stdout
    assert [row["answer"]["verdict"] for row in turns()][-1] == "WRONG"


def test_an_interrupted_run_leaves_no_traceback_and_a_store_that_counts(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    scatter = DeviceArena.scatter
    calls = 0

    def interrupted(self: DeviceArena, *given: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 7:  # in the midst of a warm answer
            raise KeyboardInterrupt
        scatter(self, *given)

    with monkeypatch.context() as patched:
        patched.setattr(DeviceArena, "scatter", interrupted)
        result = run()
    assert result.exit_code == 130
    assert "Traceback" not in result.output
    done = len(turns())
    assert 0 < done < 12
    assert f"Interrupted after {done} of 12 turns; what they computed is kept." in result.stdout
    assert "kv.check(): every invariant holds" in result.stdout
    again = run()
    assert again.exit_code == 0, again.output
    assert "Warm from disk: " in again.stdout
    assert {row["answer"]["verdict"] for row in turns()} == {"same"}


def test_a_run_ends_when_its_time_is_over(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 1000, 10))
    monkeypatch.setattr(demo, "monotonic", lambda: float(next(now)))
    result = run("--seconds", 35)
    assert "Stopped after 3 of 12 turns: 35 s are over (--seconds)." in result.stdout
    assert len(turns()) == 3
    assert run("--turns", 2).exit_code == 0
    assert len(turns()) == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--device", "3KiB"), "--device has room for 2 blocks: turn 4 of session"),
        (("--device", "much"), "no size in bytes: 'much'"),
        (("--policy", "lru,arc"), "one policy at a time"),
        (("--policy", "nru"), "no policy named 'nru'"),
        (("--new", "0"), "--new is 0"),
        (("--turns", "0"), "--turns is 0"),
        (("--seconds", "-1"), "--seconds is -1.0"),
        (("--new", "200"), "the model has room for 256"),
        (("--session", "none.jsonl"), "none.jsonl: cannot be read"),
        (("--disk", "1"), "too small for one block"),
        (("--out", "chat.jsonl"), "cannot be written"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(run: Any, arguments: tuple[str, ...], words: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stderr.startswith("tenure: ")
    assert result.stderr.count("\n") == 1
    assert not Path("o/turns.json").exists()


def test_fresh_does_not_touch_a_store_in_use(run: Any) -> None:
    from tenure.tiers.files import Lock
    from tenure.tiers.store import LOCK

    run()
    before = {path.name for path in Path("o/store").iterdir()}
    lock = Lock(Path("o/store") / LOCK)
    try:
        result = run("--fresh")
    finally:
        lock.release()
    assert result.exit_code == 2
    assert "is open in this process" in result.stderr
    assert {path.name for path in Path("o/store").iterdir()} == before


def test_missing_packages_are_named_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real = importlib.util.find_spec
    absent = ("torch", "ml_dtypes")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in absent else real(name))
    monkeypatch.setattr(demo, "_NEEDED", absent)
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert result.stderr == (
        "tenure: the demo runs a real model and needs torch, ml_dtypes: pip install 'tenure[cli,lab,model]'\n"
    )


def answered(tokens: list[int], *rows: list[float]) -> Run:
    return Run(0.1, tokens, tuple(torch.tensor([row]) for row in rows))


def test_two_answers_are_the_same_tie_or_are_wrong() -> None:
    cold = answered([0, 1], [5.0, 1.0], [1.0, 1.0001])
    assert compare(cold, answered([0, 1], [5.0, 1.0002], [1.0, 1.0001])).verdict is Verdict.SAME
    tie = compare(cold, answered([0, 0], [5.0, 1.0], [1.0001, 1.0]))
    assert (tie.verdict, tie.at) == (Verdict.TIE, 1)
    assert tie.difference == pytest.approx(1e-4, rel=0.01)
    wrong = compare(cold, answered([0, 1], [5.0, 1.5], [1.0, 1.0001]))  # the right tokens from wrong logits
    assert (wrong.verdict, wrong.at) == (Verdict.WRONG, 0)
    assert compare(cold, answered([0, 1], [5.0, 1.0], [1.0, float("nan")])).verdict is Verdict.WRONG
    assert compare(cold, answered([0], [5.0, 1.0])).verdict is Verdict.WRONG
    assert serving.TOLERANCE < 0.01
