"""However two nodes' run ends, its processes, its server and its files end with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

import pytest

for package in ("typer", "torch", "transformers", "xxhash", "zstandard", "ml_dtypes"):
    pytest.importorskip(package, reason="needs tenure[cli,model]")

from tenure.cli import pair_node, pair_process, recorded
from tenure.cli.pair_node import Setup
from tenure.starting import uninterrupted
from tests.cli.making import NOBODY_THERE, embedded, tiny, write_sessions
from tests.pool.servers import until


@embedded
def test_a_process_that_is_told_to_end_ends_what_it_has_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_process, "ValkeyTier", partial(pair_process.ValkeyTier, timeout=60.0))
    before = signal.getsignal(signal.SIGTERM)
    sockets: list[Path] = []

    def told() -> None:
        with pair_process.in_order(), pair_process.pool_at("embedded") as address:
            sockets.append(Path(address.removeprefix("unix://")))
            assert sockets[0].is_socket()
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(SystemExit) as ended:
        told()
    assert ended.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before
    assert not sockets[0].parent.exists()


def test_ctrl_c_is_not_lost_while_a_process_starts() -> None:
    """Also where another thread gets it: the mask is of one thread, what is done about a signal is of all."""
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    left: list[int] = []

    def interrupted(thread: int | None) -> None:
        with uninterrupted():
            signal.pthread_kill(thread, signal.SIGINT) if thread else os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.2)
            left.append(1)
        until("it is heard", lambda: False)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it may be ignored
    other.start()
    try:
        for count, thread in enumerate((other.ident, None), 1):
            with pytest.raises(KeyboardInterrupt):
                interrupted(thread)
            assert len(left) == count, "it came in between"
    finally:
        signal.signal(signal.SIGINT, before)
        done.set()
        other.join()


@embedded
@pytest.mark.parametrize(("number", "to_all", "status"), [(signal.SIGINT, True, 130), (signal.SIGTERM, False, 143)])
def test_a_run_that_is_ended_leaves_nothing_behind(tmp_path: Path, number: int, to_all: bool, status: int) -> None:
    """Ctrl-C reaches every process of a terminal, and only the first minds it."""
    write_sessions(tmp_path / "chat.jsonl", [f"s{number}" for number in range(30)])
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # in the background it may be ignored
        "from functools import partial; from tenure.cli import demo, main, pair_process; from tests.cli.making import gated\n"
        "demo.load, demo._NEEDED = gated, ()\n"
        "pair_process.ValkeyTier = partial(pair_process.ValkeyTier, timeout=60.0)\n"
        "main.app(['demo', '--session', 'chat.jsonl', '--block-size', '4', '--new', '3', '--pool', 'embedded'])"
    )
    path = os.pathsep.join(os.path.abspath(folder or ".") for folder in sys.path)
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.Popen(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONPATH": path, "TMPDIR": folder, "PYTHONUNBUFFERED": "1"},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            assert run.stdout is not None
            while not (line := run.stdout.readline()).endswith(" same\n"):
                assert line
            (os.killpg if to_all else os.kill)(run.pid, number)
            if to_all:  # the nodes end in order, after their turn
                (tmp_path / "go").touch()
            said, wrong = run.communicate(timeout=120)
            assert run.returncode == status, said + wrong
            assert "Traceback" not in wrong
            assert (" of 120 turns." in said) == ("Node B: kv.check(): every invariant holds" in said) == to_all
            until("all processes have ended", lambda: not group(run.pid))
            assert [name for name in os.listdir(folder) if name.startswith("tenure")] == []  # torch has a folder of its own
        finally:
            if group(run.pid):
                os.killpg(run.pid, signal.SIGKILL)


def group(leader: int) -> bool:
    """Whether anybody is left of it."""
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_node_whose_starter_has_gone_ends(tmp_path: Path) -> None:
    write_sessions(tmp_path / "chat.jsonl")
    setup = Setup(tiny, "chat", recorded.read(tmp_path / "chat.jsonl"), 3, 4, None, None, {}, {})
    here, there = pair_process._SPAWN.Pipe()
    process = pair_process._SPAWN.Process(target=pair_node.main, args=(there, "A", NOBODY_THERE, setup), daemon=True)
    process.start()
    there.close()
    try:
        assert isinstance(here.recv(), pair_node.Ready)
        here.close()
        process.join(60)
        assert process.exitcode == 0
    finally:
        process.kill()
        process.join()
