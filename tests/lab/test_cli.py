"""The command line: what each command prints, and that bad input is one line and exit code 2 with nothing written."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("typer")

from typer.testing import CliRunner

import tenure
from tenure.cli import show
from tenure.cli.life import lines, story
from tenure.cli.main import app
from tenure.lab.replay import Row
from tenure.ledger import State

Result = Any


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Calls `tenure ...` in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> Result:
        return CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "120"})

    return call


@pytest.fixture
def traffic(run: Any) -> Path:
    """Five minutes of chat, at most 200 requests."""
    assert run("generate", "t.jsonl", "--kind", "chat", "--seconds", 300, "--requests", 200, "--seed", 3).exit_code == 0
    return Path("t.jsonl")


def test_replay_prints_a_table_and_writes_the_plot(run: Any, traffic: Path) -> None:
    result = run("replay", traffic, "--policy", "lru,arc", "--capacity", "5%,20%")
    assert result.exit_code == 0, result.output
    for word in ("requests", "ceiling", "lru", "arc", "hit rate", "optimum", "gap closed", "prefill saved"):
        assert word in result.stdout
    assert "Plot: hit-rate.png, hit-rate.svg" in result.stdout
    assert Path("hit-rate.png").read_bytes().startswith(b"\x89PNG")
    assert "arc" in Path("hit-rate.svg").read_text()


def test_replay_as_json_prints_nothing_else_and_writes_nothing(run: Any, traffic: Path) -> None:
    before = set(Path().iterdir())
    result = run("replay", traffic, "--policy", "lru,arc", "--capacity", "100,400", "--json")
    document = json.loads(result.stdout)
    assert document["trace"].keys() >= {"requests", "blocks", "distinct", "ceiling"}
    assert [(row["policy"], row["capacity"]) for row in document["rows"]] == [
        ("lru", 100),
        ("lru", 400),
        ("arc", 100),
        ("arc", 400),
    ]
    for row in document["rows"]:
        assert 0 <= row["hit_rate"] <= row["optimum"] <= document["trace"]["ceiling"]
        assert {"gap_closed", "evictions", "seconds"} <= row.keys()
    assert set(Path().iterdir()) == before


def test_overlap_off_serves_one_after_the_other(run: Any, traffic: Path) -> None:
    rows = [
        json.loads(run("replay", traffic, "--policy", "lru", "--capacity", 60, "--overlap", mode, "--json").stdout)
        for mode in ("on", "off")
    ]
    assert rows[0]["trace"]["overlap"] is True
    assert rows[1]["rows"][0]["waited"] == 0


def test_a_policys_parameters_can_be_given(run: Any, traffic: Path) -> None:
    result = run("replay", traffic, "--policy", "lfu:ageing=0,lfu", "--capacity", 200, "--json")
    assert [row["policy"] for row in json.loads(result.stdout)["rows"]] == ["lfu:ageing=0", "lfu"]


def test_requests_that_waited_are_told_under_the_table(run: Any, traffic: Path) -> None:
    waited = json.loads(run("replay", traffic, "--policy", "lru", "--capacity", 60, "--json").stdout)["rows"][0]["waited"]
    assert waited > 0
    table = run("replay", traffic, "--policy", "lru", "--capacity", 60, "--no-plot").stdout
    assert f"At 60 frames {waited} of " in table
    assert "requests waited for room." in table


def test_a_gap_closed_is_never_minus_nothing() -> None:
    from rich.console import Console

    rows = [Row("fifo", 10, 0.2, 0, 0.0, optimum=0.5, gap_closed=gap) for gap in (-0.003, None, -0.1)]
    screen = Console(width=120, record=True)
    screen.print(show.table(rows))
    assert [word for word in screen.export_text().split() if word in ("-", "0%", "-0%", "-10%")] == ["0%", "-", "-10%"]


def test_traces_come_through_standard_input_too(run: Any, traffic: Path) -> None:
    for command in ("replay", "why"):
        arguments = [command, "-", "--capacity", "5%", "--json"]
        piped = CliRunner().invoke(app, arguments, input=traffic.read_bytes())
        assert piped.exit_code == 0, piped.output
        assert json.loads(piped.stdout).keys() == json.loads(run(command, traffic, *arguments[2:]).stdout).keys()
    broken = CliRunner().invoke(app, ["why", "-"], input=traffic.read_bytes() + b"{broken")
    assert broken.exit_code == 2
    assert broken.stderr.startswith("tenure: <stdin>:")


def test_the_version(run: Any) -> None:
    result = run("--version")
    assert (result.exit_code, result.stdout) == (0, f"tenure {tenure.__version__}\n")


def test_skipped_lines_are_told_on_stderr(run: Any, traffic: Path) -> None:
    traffic.write_text(traffic.read_text() + '{"timestamp": 1\n')
    result = run("replay", traffic, "--capacity", 100, "--json", "--skip-bad")
    assert json.loads(result.stdout)["trace"]["skipped"] == 1
    assert "skipped 1 bad line; the first: t.jsonl:" in result.stderr


def test_plan_says_frames_and_memory(run: Any, traffic: Path) -> None:
    result = run("plan", traffic, "--hit-rate", 0.5, "--bytes-per-block", "2MiB", "--policy", "lru,arc")
    assert result.exit_code == 0, result.output
    assert "frames" in result.stdout
    assert "2 MiB blocks" in result.stdout
    (row,) = json.loads(run("plan", traffic, "--hit-rate", 0.5, "--bytes-per-block", "2MiB", "--json").stdout)["rows"]
    assert row["bytes"] == row["frames"] * 2**21
    reached = json.loads(run("replay", traffic, "--policy", "lru", "--capacity", row["frames"], "--json").stdout)
    assert reached["rows"][0]["hit_rate"] >= 0.5


def test_why_explains_the_worst_loss_and_any_request(run: Any, traffic: Path) -> None:
    result = run("why", traffic, "--capacity", "5%")
    assert "evicted" in result.stdout
    assert "too early, to make room: " in result.stdout
    assert "tenant" not in result.stdout  # the trace has none
    assert "Assumed: policy lru, " in result.stdout
    assert "`hit` counts only requests that found every full block" in result.stdout
    first = json.loads(run("why", traffic, "--request", 0, "--json").stdout)["request"]
    assert (first["number"], first["found"], first["reason"]) == (0, 0, "never_seen")


def test_why_names_the_tenants_of_a_trace_that_has_some(run: Any) -> None:
    run("generate", "t.jsonl", "--seconds", 120, "--seed", 2)
    assert "to make room for tenant 'acme'" in run("why", "t.jsonl", "--capacity", "10%").stdout
    assert json.loads(run("why", "t.jsonl", "--request", 0, "--json").stdout)["request"]["tenant"] == "acme"


def test_why_counts_a_prompt_shorter_than_a_block_as_too_short(run: Any, traffic: Path) -> None:
    last = json.loads(traffic.read_text().splitlines()[-1])
    traffic.write_text(traffic.read_text() + json.dumps({**last, "tokens": [1]}) + "\n")
    document = json.loads(run("why", traffic, "--json").stdout)
    assert {"reason": "too_short", "requests": 1, "tokens_missed": 0} in document["reasons"]
    number = len(traffic.read_text().splitlines()) - 2
    assert "does not fill one block of 16 tokens" in run("why", traffic, "--request", number).stdout


def test_why_of_a_request_longer_than_the_pool(run: Any) -> None:
    rows = [{"timestamp": t, "tokens": list(range(64))} for t in range(2)]
    Path("t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = run("why", "t.jsonl", "--capacity", 1, "--request", 1).stdout
    assert "it is longer than 1 frame." in text
    assert "or all that the pool holds of a longer one" in text


def test_why_of_the_reasons_adds_up(run: Any, traffic: Path) -> None:
    document = json.loads(run("why", traffic, "--capacity", "5%", "--json").stdout)
    assert sum(row["requests"] for row in document["reasons"]) == len(traffic.read_text().splitlines()) - 1


def test_life_is_r1_in_order() -> None:
    chapters = story()
    states = [event.state for _, events in chapters for event in events]
    assert states == [State.ACTIVE, State.SEALED, State.CACHED, State.SEALED, State.CACHED, State.FREE]
    text = "\n".join(lines(chapters))
    for step in ("Free -> Active", "Active -> Sealed", "Sealed -> Cached", "Cached -> Sealed", "Cached -> Free"):
        assert step in text


def test_life_prints_the_story(run: Any) -> None:
    assert "Cached -> Free" in run("life").stdout
    assert len(json.loads(run("life", "--json").stdout)) == 6


def test_the_tour_writes_its_files_and_shows_each_part(run: Any) -> None:
    result = run("tour", "--out", "shown", "--seconds", 120)
    assert result.exit_code == 0, result.output
    assert {path.name for path in Path("shown").iterdir()} == {
        "traffic.jsonl",
        "rows.json",
        "hit-rate.png",
        "hit-rate.svg",
    }
    for word in ("Traffic", "hazard", "optimum", "One block's life", "One miss explained", "Cached -> Free"):
        assert word in result.stdout
    again = json.loads(run("replay", "shown/traffic.jsonl", "--policy", "lru", "--capacity", "25%", "--json").stdout)
    shown = json.loads(Path("shown/rows.json").read_text())["rows"]
    assert again["rows"][0]["hit_rate"] in [row["hit_rate"] for row in shown if row["policy"] == "lru"]


def test_doctor_finds_the_core(run: Any) -> None:
    found = json.loads(run("doctor", "--json").stdout)
    assert found["ok"]
    assert found["core"]["bytes"] > 0
    assert "core" in run("doctor").stdout


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_the_extra_the_message_names_it(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; import tenure.cli.main"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert result.stderr == "tenure: the command line needs more: pip install 'tenure[cli,lab]'\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("replay", "none.jsonl"), "none.jsonl: cannot be read"),
        (("replay", "t.jsonl", "--policy", "nru"), "no policy named 'nru'"),
        (("replay", "t.jsonl", "--policy", "lfu:colour=1"), "no parameter 'colour'"),
        (("replay", "t.jsonl", "--policy", "lfu:ageing=7"), "outside"),
        (("replay", "t.jsonl", "--capacity", "lots"), "no capacity: 'lots'"),
        (("replay", "t.jsonl", "--capacity", "0"), "possible are 1 to"),
        (("replay", "t.jsonl", "--format", "csv"), "unknown trace format 'csv'"),
        (("replay", "t.jsonl", "--interleave", "-3"), "interleave must be seconds"),
        (("replay", "t.jsonl", "--decode", "-1"), "seconds per token"),
        (("replay", "bad.jsonl"), "bad.jsonl:2: "),
        (("replay", "t.jsonl", "--block-size", "8"), "t.jsonl: has blocks of 16 tokens, not 8"),
        (("plan", "t.jsonl", "--hit-rate", "1.2"), "hit rate must be between 0 and 1, not 1.2"),
        (("plan", "t.jsonl", "--hit-rate", "0.999"), "cannot be reached"),
        (("plan", "t.jsonl", "--hit-rate", "0.5", "--bytes-per-block", "big"), "no size in bytes"),
        (("why", "t.jsonl", "--request", "5000"), "there is no request 5000"),
        (("why", "t.jsonl", "--policy", "lru,arc"), "one policy and one capacity"),
        (("generate", "g.jsonl", "--kind", "poetry"), "no kind of traffic named 'poetry'"),
        (("generate", "g.jsonl", "--set", "turns"), "no parameter: 'turns'"),
        (("generate", "g.jsonl", "--kind", "chat", "--set", "seed=3"), "seed has an option of its own"),
        (("generate", "no/such/folder/g.jsonl"), "cannot be written"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(run: Any, traffic: Path, arguments: tuple[str, ...], words: str) -> None:
    Path("bad.jsonl").write_text(traffic.read_text().splitlines()[1] + "\n{broken\n")
    before = {path: path.read_bytes() for path in Path().iterdir()}
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert words in result.stderr
    assert result.stderr.startswith("tenure: ")
    assert result.stderr.count("\n") == 1
    assert {path: path.read_bytes() for path in Path().iterdir()} == before
