"""Does with an engine's own classes what the commands on stdin say, a JSON list, and prints what came of each.

Runs inside an environment that has the engine:

    python events_driver.py vllm|sglang

* ``["decode", hex]``: a payload of ours, decoded by the engine: ``[ts, events, rank]`` as JSON (bytes as hex).
* ``["encode", old]``: payloads of the engine's, hex: one with each kind of event; ``old``: of the former generation, in which
  an event is an array.
* ``["follow", endpoint, replay, last]``: subscribes to a publisher of ours as the engine's examples do, asks for what it has
  sent, and decodes up to batch ``last``.

    python events_driver.py vllm|sglang publish

The engine's own publisher: prints its addresses, sends two batches, a third after a line on stdin, and ends after another.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from typing import Any

os.environ.update(VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1", HF_HUB_OFFLINE="1", SGLANG_RUST_BUILD_MODE="never")

import msgspec
import zmq

with contextlib.redirect_stdout(sys.stderr):
    if sys.argv[1] == "vllm":
        from vllm.distributed import kv_events as engine
    else:
        from sglang.srt.disaggregation import kv_events as engine

DECODER = msgspec.msgpack.Decoder(engine.KVEventBatch)


def decode(payload: bytes) -> Any:
    batch = DECODER.decode(payload)
    events = []
    for event in batch.events:
        fields = {name: getattr(event, name) for name in event.__struct_fields__}
        events.append({"type": type(event).__name__, **fields})
    return json.loads(json.dumps([batch.ts, events], default=lambda value: value.hex()))


def stored(kind: Any) -> Any:
    given = {"block_hashes": [(1 << 63) - 1, 2], "parent_block_hash": None, "token_ids": [1, 2, 3, 4], "block_size": 2}
    return kind(**given, lora_id=None, medium="GPU", lora_name=None)


def encode(old: bool) -> list[str]:
    kinds = [engine.BlockStored, engine.BlockRemoved, engine.AllBlocksCleared]
    if old:
        names = ("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name")
        fields = {"BlockStored": names, "BlockRemoved": ("block_hashes", "medium"), "AllBlocksCleared": ()}
        kinds = [
            msgspec.defstruct(kind.__name__, [(name, Any) for name in fields[kind.__name__]], tag=True, array_like=True)
            for kind in kinds
        ]
    events = [stored(kinds[0]), kinds[1](block_hashes=[2], medium="GPU"), kinds[2]()]
    return [msgspec.msgpack.encode(engine.KVEventBatch(ts=1.5, events=[event])).hex() for event in events]


def follow(endpoint: str, replay: str, last: int) -> list[Any]:
    context = zmq.Context()
    live, asking = context.socket(zmq.SUB), context.socket(zmq.DEALER)
    live.connect(endpoint)
    live.setsockopt_string(zmq.SUBSCRIBE, "")
    asking.connect(replay)
    asking.send_multipart((b"", (0).to_bytes(8, "big")))
    found: dict[int, Any] = {}
    while asking.poll(20_000):
        _, _topic, seq, payload = asking.recv_multipart()
        if seq == engine.ZmqEventPublisher.END_SEQ:
            break
        found[int.from_bytes(seq, "big")] = decode(payload)
    while last not in found and live.poll(20_000):
        _topic, seq, payload = live.recv_multipart()
        found[int.from_bytes(seq, "big")] = decode(payload)
    context.destroy(linger=0)
    return [found[number] for number in sorted(found)]


def publish() -> None:
    addresses = []
    for _ in range(2):
        with zmq.Context() as context, context.socket(zmq.PUB) as probe:
            addresses.append(f"tcp://127.0.0.1:{probe.bind_to_random_port('tcp://127.0.0.1')}")
    wild = [address.replace("127.0.0.1", "*") for address in addresses]
    with contextlib.redirect_stdout(sys.stderr):
        publisher = engine.ZmqEventPublisher(0, wild[0], wild[1])
    print(json.dumps(addresses), flush=True)
    kind = engine.BlockStored
    publisher.publish(engine.KVEventBatch(ts=time.time(), events=[stored(kind)]))
    publisher.publish(engine.KVEventBatch(ts=time.time(), events=[engine.BlockRemoved(block_hashes=[2], medium="GPU")]))
    sys.stdin.readline()
    publisher.publish(engine.KVEventBatch(ts=time.time(), events=[engine.AllBlocksCleared()]))
    sys.stdin.readline()
    publisher.shutdown()


if __name__ == "__main__":
    if sys.argv[2:] == ["publish"]:
        publish()
    else:
        commands = {"encode": encode, "follow": follow, "decode": lambda payload: decode(bytes.fromhex(payload))}
        print(json.dumps([commands[name](*rest) for name, *rest in json.load(sys.stdin)]))
