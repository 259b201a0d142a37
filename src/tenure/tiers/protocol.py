"""What goes over the wire to a Valkey server: addresses, commands, and replies, in its own protocol.
Made by the Valkey tier, carried by connections; it opens and reads nothing."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

__all__ = ["Address", "Command", "Landed", "Late", "Login", "Refused", "Reply", "Word", "packed"]


class Address(NamedTuple):
    """Where a server listens; without a port `host` is the path of a unix socket."""

    host: str
    port: int | None

    def __str__(self) -> str:
        return self.host if self.port is None else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Login:
    """What a server wants to see before commands."""

    user: str | None = None
    password: str | None = None
    database: int = 0
    tls: ssl.SSLContext | None = None


class Late(NamedTuple):
    """A word that is made when it is sent, in pieces: `size` bytes in all."""

    size: int
    make: Callable[[], tuple[bytes | memoryview, ...]]


Word: TypeAlias = bytes | Late


class Command(NamedTuple):
    """key: decides which server of a cluster gets it. into: memory that a bulk reply just fills, one piece behind the other."""

    key: bytes
    words: tuple[Word, ...]
    into: tuple[memoryview, ...] = ()


class Refused(NamedTuple):
    """An error as a reply, or that no reply came (`lost`)."""

    text: str
    lost: bool = False


class Landed(NamedTuple):
    """A bulk reply went into the memory given for it, if it had just that size in bytes."""

    size: int


Reply: TypeAlias = "bytes | int | Landed | Refused | list[Reply] | None"


def packed(commands: Iterable[Command]) -> Iterator[bytes | bytearray | memoryview]:
    """Commands as they go over the wire, in pieces to be sent one behind the other; words in pieces are not copied."""
    small = bytearray()
    for command in commands:
        small += b"*%d\r\n" % len(command.words)
        for word in command.words:
            if isinstance(word, bytes):
                small += b"$%d\r\n%b\r\n" % (len(word), word)
                continue
            small += b"$%d\r\n" % word.size
            yield small
            yield from word.make()
            small = bytearray(b"\r\n")
    yield small
