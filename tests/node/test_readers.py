"""The threads for calls that may hang are there from the first call on, and not before."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tenure import ConfigError
from tenure.node import Level, Node
from tenure.readers import Readers
from tests.node.making import SIZE, ArrayDevice, host


def running(name: str) -> list[str]:
    return sorted(thread.name for thread in threading.enumerate() if thread.name.startswith(name))


def test_no_thread_runs_before_the_first_job() -> None:
    readers: Readers[int] = Readers("lazy", threads=2)
    assert running("lazy") == []
    assert readers.submit(lambda: 3).result(30) == 3
    assert running("lazy") == ["lazy-0", "lazy-1"]
    assert readers.submit(lambda: 4).result(30) == 4
    assert running("lazy") == ["lazy-0", "lazy-1"]
    threads = list(readers._threads)
    readers.close()
    for thread in threads:
        thread.join(30)
    assert running("lazy") == []


def test_closed_readers_that_had_no_job_start_nothing() -> None:
    readers: Readers[int] = Readers("unused")
    readers.close()
    assert readers.submit(lambda: 3).cancelled()
    assert running("unused") == []


def test_threads_that_cannot_be_had_fail_the_call_and_are_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    readers: Readers[int] = Readers("scarce", threads=2)
    start = threading.Thread.start
    left = [1]

    def scarce(thread: threading.Thread) -> None:
        if not left[0]:
            raise RuntimeError("can't start new thread")
        left[0] -= 1
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", scarce)
        with pytest.raises(RuntimeError, match="new thread"):
            readers.submit(lambda: 3).result(30)
    assert readers.submit(lambda: 4).result(30) == 4
    assert running("scarce") == ["scarce-0", "scarce-1"]
    readers.close()


def test_a_node_that_is_refused_leaves_no_thread() -> None:
    device, tier = ArrayDevice(8), host(8, name="refused")

    def opened(**settings: Any) -> Node:
        return Node(device, [Level(tier, deadline=1.0)], SIZE, **settings)

    with opened():
        with pytest.raises(ConfigError, match="in use"):
            opened()
        assert running("tenure-refused") == []


def test_a_job_that_is_given_up_before_its_turn_is_never_run_and_holds_nothing() -> None:
    gate, ran = threading.Event(), []
    readers: Readers[None] = Readers("r", threads=1)
    first = readers.submit(lambda: gate.wait() and None)
    while not first.running():
        pass
    readers.give_up(readers.submit(lambda: ran.append(2)))
    assert not readers._jobs
    assert not readers.stuck
    readers.give_up(first)
    assert readers.stuck
    gate.set()
    assert readers.submit(lambda: ran.append(3)).result(30) is None
    assert ran == [3]
    assert not readers.stuck


def test_closed_readers_cancel_what_waits_and_what_comes() -> None:
    gate = threading.Event()
    readers: Readers[bool] = Readers("r", threads=1)
    running = readers.submit(gate.wait)
    while not running.running():
        pass
    waiting = readers.submit(gate.wait)
    readers.close()
    assert waiting.cancelled()
    assert readers.submit(gate.wait).cancelled()
    gate.set()
    assert running.result(30)
