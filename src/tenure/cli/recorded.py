"""Recorded chats, as the steps at which a model had to answer: JSONL of messages, one a line or a list of them a line.
Read by `tenure demo`; it knows no tokens and no model. docs/demo.md says what a line may hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from tenure.errors import TraceError
from tenure.lab.readers.base import MALFORMED, BadLineError, Problems, Source

__all__ = ["BUNDLED", "Message", "Step", "read"]

BUNDLED = Path(__file__).parent / "sessions" / "ferries.jsonl"
"""Three sessions of an agent with one system prompt, interleaved."""
_ANSWER = "assistant"


class Message(NamedTuple):
    """What a chat template is given."""

    role: str
    content: str


class Step(NamedTuple):
    """A prompt that is to be answered: the session's messages so far. `turn` counts from 1."""

    session: str
    turn: int
    messages: tuple[Message, ...]


class _Part(msgspec.Struct):
    type: str
    text: str | None = None


class _Function(msgspec.Struct):
    name: str
    arguments: str | dict[str, Any] = ""


class _Call(msgspec.Struct):
    function: _Function


class _Said(msgspec.Struct):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[_Part] | None = None
    tool_calls: list[_Call] | None = None


class _Labels(msgspec.Struct):
    """What a line of either form may have beside its messages."""

    messages: list[_Said] | None = None
    role: str | None = None
    session: str | int | None = None
    session_id: str | int | None = None


@dataclass
class _Talk:
    """A session while it is read. `asked`: the length of the last prompt that became a step."""

    name: str
    named: bool
    messages: list[Message] = field(default_factory=list)
    asked: int = 0
    turns: int = 0

    def step(self, length: int) -> Step:
        self.turns += 1
        self.asked = length
        return Step(self.name, self.turns, tuple(self.messages[:length]))


def read(path: Path) -> list[Step]:
    """The steps of a file in its order: each answer that was recorded is one, and each end that was not answered.

    Raises TraceError with the file and the line for what cannot be read or used.
    """
    source = Source(path, Problems())
    source.check()
    talks: dict[str, _Talk] = {}
    steps: list[Step] = []
    for number, raw in source.lines():
        try:
            steps += _line(raw, talks)
        except (*MALFORMED, BadLineError) as problem:
            source.bad(number, str(problem))
    steps += [talk.step(len(talk.messages)) for talk in talks.values() if _open(talk)]
    if not steps:
        raise TraceError(
            f"{source.name}: has no turn: an answer, or a message to be answered, is needed", file=source.name, line=0
        )
    return steps


def _line(raw: bytes, talks: dict[str, _Talk]) -> Iterator[Step]:
    labels = msgspec.json.decode(raw, type=_Labels)
    given = labels.session if labels.session is not None else labels.session_id
    if labels.messages is None and labels.role is None:
        raise BadLineError("has neither `messages` nor the `role` and `content` of one message")
    if labels.messages is None:
        message = _message(msgspec.json.decode(raw, type=_Said))
        name = "1" if given is None else str(given)
        talk = talks.setdefault(name, _Talk(name, True))
        if message.role == _ANSWER and talk.messages:
            yield talk.step(len(talk.messages))
        talk.messages.append(message)
        return
    messages = [_message(said) for said in labels.messages]
    cuts = [place for place, message in enumerate(messages) if message.role == _ANSWER and place]
    if messages and messages[-1].role != _ANSWER:
        cuts.append(len(messages))
    if not cuts:
        raise BadLineError("`messages` has nothing that is to be answered")
    talk, goes_on = _talk(given, messages, talks)
    if talk.messages:  # what an earlier line has asked is not asked again
        cuts = [cut for cut in cuts if cut > talk.asked] if goes_on else cuts[-1:]
    talk.messages = messages
    yield from (talk.step(cut) for cut in cuts)


def _talk(given: str | int | None, messages: list[Message], talks: dict[str, _Talk]) -> tuple[_Talk, bool]:
    """The session of a line, and whether the line goes on from what that session's earlier lines had. Without a name it is the
    newest unnamed one that it goes on from, or a new one."""

    def goes_on(talk: _Talk) -> bool:
        return messages[: len(talk.messages)] == talk.messages

    if given is None:
        for talk in reversed(talks.values()):
            if not talk.named and goes_on(talk):
                return talk, True
    name = str(len(talks) + 1) if given is None else str(given)
    talk = talks.setdefault(name, _Talk(name, given is not None))
    return talk, goes_on(talk)


def _open(talk: _Talk) -> bool:
    return talk.messages[-1].role != _ANSWER and talk.asked < len(talk.messages)


def _message(said: _Said) -> Message:
    """Its text; calls of tools follow as SmolLM2 and its like write them."""
    parts = said.content if isinstance(said.content, list) else []
    for part in parts:
        if part.type != "text" or part.text is None:
            raise BadLineError(f"a part of a message is {part.type!r}: only text can be read")
    text = said.content if isinstance(said.content, str) else "".join(part.text or "" for part in parts)
    if said.tool_calls:
        calls = [{"name": call.function.name, "arguments": _arguments(call.function.arguments)} for call in said.tool_calls]
        text = "\n".join(filter(None, [text, f"<tool_call>{msgspec.json.encode(calls).decode()}</tool_call>"]))
    elif said.content is None:
        raise BadLineError(f"a message of role {said.role!r} has neither content nor tool_calls")
    return Message(said.role, text)


def _arguments(given: str | dict[str, Any]) -> Any:
    if isinstance(given, dict):
        return given
    try:
        return msgspec.json.decode(given)
    except msgspec.DecodeError:  # not every model writes JSON
        return given
