"""`tenure life`: one block's whole life, driven through a BlockManager of four frames and told by its event log. The
states are R1's, in order; it computes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

import typer

from tenure.cli import options
from tenure.identity import Identity
from tenure.ledger import Event
from tenure.manager import BlockManager

FRAMES, BLOCK = 4, 4


class Chapter(NamedTuple):
    """What was done, and what the log says of the block since the chapter before."""

    done: str
    events: list[Event]


def story() -> list[Chapter]:
    """The life of the first block of a prompt, from Free to Free."""
    now = 0.0
    kv = BlockManager(frames=FRAMES, block_size=BLOCK, policy="lru", clock=lambda: now)
    who = Identity(model="demo", tenant="acme")
    prompt = list(range(100, 100 + BLOCK))
    seen = 0
    block: tuple[int, int] | None = None

    def chapter(done: str) -> Chapter:
        nonlocal seen, block
        events = [event for event in kv.events() if event.seq >= seen]
        seen = events[-1].seq + 1 if events else seen
        if block is None:
            block = (events[0].block, events[0].generation)
        return Chapter(done, [event for event in events if event.block == block[0] and event.generation == block[1]])

    def tell() -> Iterator[Chapter]:
        nonlocal now
        first = kv.sequence(prompt, who)
        yield chapter(f"A request with {BLOCK} tokens is admitted: its block takes a frame and is written.")
        now = 1.0
        first.append([7])
        yield chapter("The engine has written the tokens and appends one: the block is full and others may hit it.")
        now = 2.0
        first.release()
        yield chapter("The request ends: nobody refers to the block, but it stays for the next one.")
        now = 3.0
        second = kv.sequence([*prompt, 8], who)
        yield chapter(f"A request with the same beginning hits it: {second.hit_tokens} tokens need no prefill.")
        now = 4.0
        second.release()
        yield chapter("That request ends too.")
        now = 5.0
        kv.sequence(list(range(500, 500 + FRAMES * BLOCK)), who).release()
        yield chapter("A long prompt needs every frame: the block is evicted.")

    return list(tell())


def lines(chapters: list[Chapter]) -> Iterator[str]:
    """The story as text: what was done, then each event as time, event and the state it led to."""
    state = "Free"
    for done, events in chapters:
        yield done
        for event in events:
            yield f"    {event.time:4.1f} s  {event.what:<9} {state} -> {event.state.value}"
            state = event.state.value


def command(as_json: options.AsJson = False) -> None:
    """Show one block's whole life: Free, Active, Sealed, Cached, hit, Cached, Free."""
    chapters = story()
    if as_json:
        typer.echo(
            json.dumps(
                [
                    {"done": done, "events": [{"time": e.time, "what": e.what, "state": e.state.value} for e in events]}
                    for done, events in chapters
                ]
            )
        )
        return
    for line in lines(chapters):
        typer.echo(line)
