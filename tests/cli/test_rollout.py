"""`tenure rollout` on a pool in this process: each step, what it shows, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("typer")

from typer.testing import CliRunner

from tenure.cli import rollout
from tenure.cli.main import app
from tests.cluster.memory import MemoryPool
from tests.cluster.rolling import A1, A2, W1, W2, Fleet, Request, ask
from tests.node.making import LAYOUT, prompt

Result = Any


@pytest.fixture
def fleet(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    """Two nodes; they poll while the command sleeps."""
    with Fleet(2) as made:
        monkeypatch.setattr(rollout, "pool_at", lambda url, prefix: MemoryPool(made.server, LAYOUT))
        monkeypatch.setattr(rollout.time, "sleep", lambda seconds: made.poll())
        made.poll()
        yield made


def run(*arguments: object) -> Result:
    env = {"COLUMNS": "120", "TENURE_POOL": "valkey://pool:6379"}
    return CliRunner().invoke(app, ["rollout", *map(str, arguments)], env=env)


def started() -> None:
    assert run("start", "m", "--old", f"weights={W1}", "--new", f"weights={W2}").exit_code == 0


def test_from_the_beginning_to_the_end(fleet: Fleet) -> None:
    for kv in fleet.nodes:
        ask(kv, "s", prompt(0, 3))
    result = run("start", "m", "--old", f"weights={W1}", "--new", f"weights={W2}")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[0] == (
        f"m: announced; 0 of the sessions get weights={W2[:12]}, the others weights={W1[:12]}"
    )
    assert "Next: warm" in result.stdout
    assert "m: warming" in run("warm", "--prefixes", 8).stdout
    assert "m: shifting; 0.5 of the sessions" in run("shift", 0.5).stdout
    request = Request(fleet.nodes[0], "s", prompt(0, 2))
    assert f"all sessions get weights={W2[:12]}" in run("drain").stdout
    result = run("reclaim")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "tenure: n0, n1 may still give out" in result.stderr
    text = run("status").stdout
    assert "m: draining" in text
    assert text.count("not yet") == 2
    fleet.poll()
    document = json.loads(run("status", "--json").stdout)
    assert [(node["name"], node["heard"], node["old"]["sequences"]) for node in document[0]["nodes"]] == [
        ("n0", True, 1),
        ("n1", True, 0),
    ]
    assert "reclaiming" in run("reclaim").stdout
    fleet.poll()
    request.finish()
    result = run("reclaim", "--wait", "--every", 0.1)
    assert result.exit_code == 0, result.output
    assert "left: 1 sequences" in result.stderr
    assert result.stdout == f"m: done; weights={W2[:12]} stays, weights={W1[:12]} is gone\n"
    ask(fleet.nodes[0], "s", prompt(0, 3))
    fleet.poll()
    text = run("status", "--model", "m").stdout
    assert "m: done" in text
    assert text.splitlines()[2].split() == ["n0", "yes", "0", "0", "0", "3", "0", "0", "s", "ago"]


def test_waiting_begins_with_the_nodes_that_have_not_heard(fleet: Fleet) -> None:
    started()
    run("shift", 1)
    run("drain")
    result = run("reclaim", "--wait")
    assert "waiting for n0, n1 to hear of it" in result.stderr
    assert "m: done" in result.stdout


def test_going_back(fleet: Fleet) -> None:
    started()
    run("shift", 0.1)
    result = run("back")
    assert f"m: draining back; all sessions get weights={W1[:12]}, weights={W2[:12]} goes" in result.stdout
    assert "m: done, rolled back" in run("reclaim", "--wait").stdout


def test_the_model_must_be_named_where_several_are_meant(fleet: Fleet) -> None:
    result = run("shift", 0.5)
    assert (result.exit_code, "none goes on" in result.stderr) == (2, True)
    started()
    assert run("start", "bot", "--old", f"adapter={A1}", "--new", f"adapter={A2}").exit_code == 0
    result = run("shift", 0.5)
    assert (result.exit_code, "bot, m go on: give --model" in result.stderr) == (2, True)
    assert "bot: shifting" in run("shift", 0.5, "--model", "bot").stdout
    assert "m: announced" in run("status").stdout


def test_no_rollout(fleet: Fleet) -> None:
    assert run("status").stdout == "There is no rollout.\n"
    assert json.loads(run("status", "--json").stdout) == []


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("start", "m", "--old", "weights", "--new", f"weights={W2}"), "FIELD=VALUE"),
        (("start", "m", "--old", "weights=v1", "--new", f"weights={W2}"), "content digest"),
        (("start", "m", "--old", f"weights={W1}", "--old", f"weights={W1}", "--new", f"weights={W2}"), "once for each"),
        (("start", "m", "--old", "tenant=a", "--new", "tenant=b"), "fields"),
        (("shift", "0.5", "--model", "strange"), "strange"),
        (("reclaim", "--wait", "--every", "0"), "every"),
    ],
)
def test_bad_input_is_one_line(fleet: Fleet, arguments: tuple[str, ...], text: str) -> None:
    before = dict(fleet.server.names)
    result = run(*arguments)
    assert result.exit_code == 2
    assert text in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert fleet.server.names == before


def test_a_pool_that_is_down_is_one_line(fleet: Fleet) -> None:
    fleet.server.down = True
    result = run("status")
    assert (result.exit_code, result.stderr) == (2, "tenure: the server does not answer\n")
    fleet.server.down = False


def test_without_the_packages_of_a_pool_only_this_command_is_missing() -> None:
    code = "import sys; sys.modules['xxhash'] = None; from tenure.cli.main import app; app()"
    arguments = ["rollout", "status", "--url", "valkey://127.0.0.1:1"]
    result = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (2, "tenure: a pool needs more packages: pip install 'tenure[cli,valkey]'\n")


def test_an_embedded_pool_has_nothing_to_roll_out() -> None:
    result = run("status", "--url", "embedded")
    assert (result.exit_code, "of one process" in result.stderr) == (2, True)
