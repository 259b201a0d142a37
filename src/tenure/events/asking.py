"""One request to a publisher's ROUTER socket, and all that it answers. Called by the subscriber; it keeps nothing."""

from __future__ import annotations

import time
from typing import NamedTuple

from tenure.errors import ConfigError, EventError
from tenure.events.sockets import zmq
from tenure.events.wire import Batch, decode

__all__ = ["END", "Message", "NoAnswerError", "ask", "batch_of", "connected", "origin"]

END = -1
"""The sequence number that ends an answer."""


class Message(NamedTuple):
    """The frames of one message."""

    topic: bytes
    seq: int
    payload: bytes


class NoAnswerError(Exception):
    """Nothing came in time, or not what was asked for."""


def connected(kind: int, address: str, hwm: int) -> zmq.Socket[bytes]:
    """A socket to this address. All are of the process's one context, which is never ended: that would wait for those that were
    dropped unclosed. Raises ConfigError for what is no address."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context.instance()
    socket = context.socket(kind)
    socket.set_hwm(hwm)
    socket.setsockopt(zmq.LINGER, 0)
    try:
        socket.connect(address)
    except (zmq.ZMQError, TypeError) as error:
        socket.close()
        raise ConfigError(f"there is no way to {address!r}: {error}") from None
    return socket


def ask(address: str, request: bytes, *, patience: float, hwm: int) -> tuple[list[Message], Message]:
    """The messages that answer a request, and the one that ends them. A socket of its own for each request: an answer that comes
    late is nobody's. Raises NoAnswerError after `patience` seconds, or for frames that are no answer."""
    until = time.monotonic() + patience
    answers: list[Message] = []
    with connected(zmq.DEALER, address, hwm) as socket:
        socket.send_multipart((b"", request))
        while True:
            left = until - time.monotonic()
            if left <= 0 or not socket.poll(max(1, int(left * 1000))):
                raise NoAnswerError
            frames = socket.recv_multipart()
            if len(frames) != 4 or len(frames[2]) != 8:
                raise NoAnswerError
            message = Message(frames[1], int.from_bytes(frames[2], "big", signed=True), frames[3])
            if message.seq == END:
                return answers, message
            answers.append(message)


def origin(topic: bytes, node: str) -> tuple[str, str]:
    """The node and boot that a topic tells; one that tells none (an engine's) is of the node given, with an empty boot."""
    parts = topic.decode(errors="replace").split("@")
    return (parts[1], parts[2]) if len(parts) == 3 else (node, "")


def batch_of(message: Message, node: str) -> Batch:
    """What a message says. Raises EventError."""
    ts, events, rank = decode(message.payload)
    if message.seq < 0:
        raise EventError(f"a batch has the number {message.seq}", seq=message.seq)
    return Batch(*origin(message.topic, node), message.seq, ts, events, rank)
