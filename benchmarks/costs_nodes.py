"""The part of `benchmarks.costs` that nodes and routers pay: names of blocks, KV events, and an index of who holds what.
Processor time of this process, by process_time: what other work the machine has does not count."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.costs import ROUNDS, WHO, Units, unit
from tenure import BlockManager
from tenure.cluster.index import Index
from tenure.events.mirror import Mirror
from tenure.events.publisher import Publisher
from tenure.events.subscriber import Subscriber
from tenure.events.wire import Batch, BlockRemoved, BlockStored, KVEvent, decode, encode

SIZE = 16
PROMPT = 256
VOCABULARY = 128_000
INDEXED = 50_000
HOLDERS = 64


def prompt(number: int, blocks: int = PROMPT) -> np.ndarray:
    return np.random.default_rng(number).integers(0, VOCABULARY, blocks * SIZE, dtype=np.int64)


def stored(number: int, blocks: int = PROMPT) -> BlockStored:
    tokens = prompt(number, blocks)
    return BlockStored(list(WHO.digest_chain(tokens, SIZE)), None, tokens.tolist(), SIZE, medium="GPU")


def worked(step: Callable[[], Any], count: int) -> float:
    start = time.process_time()
    step()
    return (time.process_time() - start) / count


def chain() -> list[float]:
    tokens = prompt(0, 2048)
    return [worked(lambda: list(WHO.digest_chain(tokens, SIZE)), 2048) for _ in range(ROUNDS)]


def looked_at() -> list[float]:
    """A manager whose every prompt evicts another: what the thread that publishes works for a block that comes or goes."""
    kv = BlockManager(8 * PROMPT, SIZE)
    mirror = Mirror(kv, None)
    found = []
    for turn in range(8 + ROUNDS):
        tokens = prompt(1000 + turn)
        kv.sequence(tokens, WHO, written=True).release()
        moved = []
        start = time.process_time()
        for event in mirror.step():
            moved.append(encode(0.0, [event]))
        spent = time.process_time() - start
        if turn >= 8:
            found.append(spent / (2 * PROMPT))
    return found


def index_units() -> Units:
    parts = [stored(number) for number in range(INDEXED // PROMPT)]
    payloads = [encode(0.0, [part]) for part in parts]
    removed = encode(0.0, [BlockRemoved(parts[0].block_hashes, medium="GPU")])
    one = stored(0, 1)
    sizes = {"many": len(payloads[0]) / PROMPT, "one": len(encode(0.0, [one])), "gone": len(removed) / PROMPT}
    times: list[float] = []
    for _ in range(ROUNDS):
        index = Index()
        times.append(worked(lambda index=index: take(index, "node", payloads), len(payloads) * PROMPT))  # type: ignore[misc]
    tracemalloc.start()
    index = Index()
    before = tracemalloc.get_traced_memory()[0]
    take(index, "node", payloads)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return {
        "event_bytes": unit(f"on the wire, a block stored, {PROMPT} in an event", "bytes", [sizes["many"]]),
        "event_alone_bytes": unit("on the wire, a block stored, alone in its message", "bytes", [sizes["one"]]),
        "removed_bytes": unit(f"on the wire, a block removed, {PROMPT} in an event", "bytes", [sizes["gone"]]),
        "apply": unit("a router decodes a block's event and puts it into its index", "s", times),
        "index_bytes": unit("memory of a router for a block of a node", "bytes", [grown / (len(parts) * PROMPT)]),
    }


def take(index: Index, node: str, payloads: list[bytes]) -> None:
    for seq, payload in enumerate(payloads):
        _, events, _ = decode(payload)
        index.apply(Batch(node, "boot", seq, 0.0, events))


def asked_units() -> Units:
    """A router that asks who holds a prompt of 256 blocks, of 64 nodes: all of which have it, or none."""
    event: list[KVEvent] = [stored(0)]
    all_have, none_has = [], []
    index = Index(silent_after=1e9)
    for node in range(HOLDERS):
        index.apply(Batch(f"node-{node}", "boot", 0, 0.0, event))
    here, elsewhere = prompt(0), prompt(1)
    for _ in range(ROUNDS):
        all_have.append(worked(lambda: [index.holders(here, WHO) for _ in range(5)], 5))
        none_has.append(worked(lambda: [index.holders(elsewhere, WHO) for _ in range(200)], 200))
    held = [(many - none) / (HOLDERS * PROMPT) for many, none in zip(all_have, none_has, strict=True)]
    return {
        "holder": unit("a router looks at a node that has nothing of a prompt", "s", [none / HOLDERS for none in none_has]),
        "held": unit("a router finds that a node has one more block of a prompt", "s", held),
    }


def wire_units() -> Units:
    """From a live publisher to a live subscriber, both in this process: all that is worked for a block, the manager too."""
    found = []
    with (
        Publisher(kv := BlockManager(8 * PROMPT, SIZE)) as publisher,
        Subscriber(publisher.endpoint, replay=publisher.replay, snapshot=publisher.snapshot) as subscriber,
    ):
        for turn in range(8 + ROUNDS):
            prompts = [prompt(2000 + 8 * turn + n) for n in range(8)]
            start = time.process_time()
            for tokens in prompts:
                kv.sequence(tokens, WHO, written=True).release()
            last = publisher.flush()
            end = time.monotonic() + 30
            while subscriber.seq < last:
                subscriber.receive(0.1)
                if time.monotonic() > end:
                    raise RuntimeError("the subscriber does not get what was published")
            found.append((time.process_time() - start) / (8 * 2 * PROMPT))
    return {"through": unit("an event of a block from a manager to a subscriber, both ends", "s", found[8:])}


def units() -> Units:
    return (
        {
            "digest": unit("a node names a block (2,048 in a row)", "s", chain()),
            "mirror": unit("a node finds out that a block came or went, and encodes it", "s", looked_at()),
        }
        | wire_units()
        | index_units()
        | asked_units()
    )
