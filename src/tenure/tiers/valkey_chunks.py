"""A block's bytes beside its head: the commands that write them and commit it, those that read them, and what the replies mean.
Used by the Valkey tier, which sends them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tenure.errors import TierError
from tenure.tiers import valkey_scripts as scripts
from tenure.tiers.base import Outcome
from tenure.tiers.heads import Claim, Get, Keys, Put
from tenure.tiers.protocol import Command, Landed, Late, Refused, Reply
from tenure.tiers.valkey_entries import script, trouble

__all__ = ["came", "committed", "reading", "writing"]


def writing(keys: Keys, put: Put, owner: bytes, claim_ms: int, ttl_ms: int) -> list[Command]:
    """Writes what goes beside the head, for as long as a claim lasts, then commits it if the claim still stands."""
    key, head = keys.head(put.digest), put.head
    pieces: dict[bytes, Late] = {}
    for number, name in enumerate(keys.chunks(put.digest, head.token, head.chunks)):
        part = put.payload[number * head.chunk : (number + 1) * head.chunk]
        if number:
            pieces[name] = Late(len(part), partial(tuple, [part]))
        else:
            pieces[name] = Late(head.envelope + len(part), lambda first=part: (put.seal(), first))  # type: ignore[misc]
    lengths = [piece.size for piece in pieces.values()]
    claim = Claim(head.token, owner).encode()
    commit = script(scripts.COMMIT, [key, *pieces], claim, head.encode(), ttl_ms, *lengths)
    return [*(Command(key, (b"SET", name, piece, b"PX", b"%d" % claim_ms)) for name, piece in pieces.items()), commit]


def committed(replies: Sequence[Reply]) -> Outcome | bytes:
    """What became of a block that was written: None, why not, or what stands at its head when its claim had run out."""
    wrong = next((reply for reply in replies if isinstance(reply, Refused)), None)
    if wrong is not None:
        return trouble(wrong)
    if replies[-1] == 1:
        return None
    return replies[-1] if isinstance(replies[-1], bytes) else b""


def reading(keys: Keys, get: Get) -> list[Command]:
    """Asks for what is beside the head, each part into its place in memory."""
    key, head = keys.head(get.digest), get.head
    commands = []
    for number, name in enumerate(keys.chunks(get.digest, head.token, head.chunks)):
        part = get.payload[number * head.chunk : (number + 1) * head.chunk]
        commands.append(Command(key, (b"GET", name), (part,) if number else (get.envelope, part)))
    return commands


def came(commands: Sequence[Command], replies: Sequence[Reply]) -> Outcome:
    """What is wrong with what came for `reading`."""
    missing = 0
    for command, reply in zip(commands, replies, strict=True):
        if isinstance(reply, Refused):
            wrong = trouble(reply)
            return TierError("torn", str(wrong)) if wrong.kind == "foreign" else wrong
        missing += reply is None
        size = sum(map(len, command.into))
        if isinstance(reply, Landed) and reply.size != size:
            return TierError("torn", f"a part of the block has {reply.size} bytes: {size} are needed", found=reply.size)
    if missing:
        kind = "empty" if missing == len(commands) else "torn"
        return TierError(kind, f"{missing} of the block's {len(commands)} parts are gone", missing=missing)
    return None
