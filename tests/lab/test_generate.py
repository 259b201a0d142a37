"""The generator: the same for the same seed, readable again, and shaped as its parameters say."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from tenure.errors import ConfigError
from tenure.lab import bounds
from tenure.lab.generate import generate
from tenure.lab.readers import read
from tenure.lab.trace import Trace
from tenure.lab.workloads import KINDS, Chat, Scan


def same(a: Trace, b: Trace) -> bool:
    columns = ("arrival", "duration", "offsets", "blocks", "output", "tenant", "session", "input_tokens")
    return a.tenants == b.tenants and all(np.array_equal(getattr(a, c), getattr(b, c)) for c in columns)


@pytest.mark.parametrize("what", ["tokens", "hash_ids"])
@pytest.mark.parametrize("kind", [*KINDS, "mixed"])
def test_reading_what_was_written_gives_the_trace(kind: str, what: Literal["tokens", "hash_ids"], tmp_path: Path) -> None:
    made = generate(kind, seconds=200, seed=5, requests=60)
    assert made.write(tmp_path / "t.jsonl", what) == len(made.requests)
    assert same(read(tmp_path / "t.jsonl"), made.trace())


def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        generate("chat", seconds=60, seed=seed).write(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() != (tmp_path / "c").read_bytes()


def test_the_first_line_holds_the_parameters(tmp_path: Path) -> None:
    generate("chat", seconds=60, seed=3, block_size=32, turns=2).write(tmp_path / "t")
    header = json.loads((tmp_path / "t").read_text().splitlines()[0])
    assert header["tenure_trace"] == 1
    assert (header["seed"], header["block_size"], header["seconds"]) == (3, 32, 60)
    assert header["tenants"][""]["turns"] == 2.0
    assert read(tmp_path / "t").block_size == 32


def test_turns_of_a_chat_extend_each_other_and_scans_share_nothing() -> None:
    chat = generate("chat", seconds=300, seed=0, block_size=1, system_prompts=1).trace()
    assert bounds.ceiling(chat) > 0.5
    for session in range(int(chat.session.max())):
        paths = [chat.path(i).tolist() for i in np.flatnonzero(chat.session == session)]
        assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(paths))
    assert bounds.ceiling(generate("scan", seconds=1000, seed=0).trace()) == 0.0


def test_hot_documents_are_shared() -> None:
    hot = bounds.ceiling(generate("rag", seconds=300, seed=0, documents=20, zipf=1.5).trace())
    cold = bounds.ceiling(generate("rag", seconds=300, seed=0, documents=5000, zipf=0.0).trace())
    assert hot > cold + 0.3


def test_mixed_tenants_share_no_block() -> None:
    trace = generate("mixed", seconds=120, seed=0).trace()
    assert set(trace.tenants) == {"acme", "globex", "initech", "batch"}


def test_workloads_of_ones_own() -> None:
    made = generate(tenants={"a": Chat(rate=0.5), "b": Scan(rate=0.1, length=100)}, seconds=60, seed=0)
    assert {tenant for tenant, _ in made.requests} == {"a", "b"}
    assert made.parameters["kind"] == "tenants"


@pytest.mark.parametrize(
    "bad",
    [
        {"kind": "poetry"},
        {"kind": "chat", "verses": 3},
        {"kind": "mixed", "turns": 3},
        {"kind": "chat", "turns": 0.5},
        {"kind": "chat", "user": -1},
        {"seconds": 0},
        {"seconds": float("nan")},
        {"block_size": 0},
        {"seed": -1},
        {"requests": 0},
        {"kind": "chat", "rate": 0},
    ],
)
def test_impossible_parameters_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ConfigError) as caught:
        generate(**bad)  # type: ignore[arg-type]
    assert caught.value.numbers
