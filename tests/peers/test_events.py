"""KV events between us and the engines: each reads what the other sends, by its own classes and over its own sockets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("zmq", reason="pyzmq is not installed")

from tenure import BlockManager, Identity
from tenure.cluster.index import Holder, Index
from tenure.events import AllBlocksCleared, Batch, BlockRemoved, BlockStored, Publisher, Subscriber, decode, encode

DRIVER = Path(__file__).resolve().parent / "events_driver.py"
WHO = Identity(model="m")
pytestmark = [pytest.mark.peers, pytest.mark.parametrize("peer", ["vllm", "sglang"])]


def command(peer: str, *more: str) -> list[str]:
    folder = os.environ.get("TENURE_PEERS")
    python = Path(folder or "") / peer / "bin" / "python"
    if not folder or not python.exists():
        pytest.skip(f"{peer} is not installed: make test-peers installs it (tools/peers.sh), and TENURE_PEERS names the folder")
    return [str(python), str(DRIVER), peer, *more]


def drive(peer: str, *commands: list[Any]) -> list[Any]:
    done = subprocess.run(command(peer), input=json.dumps(commands), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: list[Any] = json.loads(done.stdout)
    return found


def test_theirs_in_both_generations_are_read(peer: str) -> None:
    for old, payloads in enumerate(drive(peer, ["encode", False], ["encode", True])):
        stored, removed, cleared = (decode(bytes.fromhex(payload)) for payload in payloads)
        assert stored[0] == 1.5
        (event,) = stored[1]
        assert isinstance(event, BlockStored)
        expected = ([(1 << 63) - 1, 2], None, [1, 2, 3, 4], 2, "GPU")
        assert (event.block_hashes, event.parent_block_hash, event.token_ids, event.block_size, event.medium) == expected, old
        assert removed[1] == [BlockRemoved([2], "GPU")]
        assert cleared[1] == [AllBlocksCleared()]


def test_ours_are_read_by_their_decoder(peer: str) -> None:
    names: list[Any] = [7, 1 << 62] if peer == "sglang" else [b"d" * 32, 7]  # SGLang's names are numbers
    stored = BlockStored(names, None, [1, 2, 3, 4], 2, None, "GPU", "x", [("x", "salt"), None])
    payload = encode(2.5, [stored, BlockRemoved(names, "CPU"), AllBlocksCleared()])
    ((ts, events),) = drive(peer, ["decode", payload.hex()])
    plain = [name.hex() if isinstance(name, bytes) else name for name in names]
    assert ts == 2.5
    assert [event["type"] for event in events] == ["BlockStored", "BlockRemoved", "AllBlocksCleared"]
    assert (events[0]["block_hashes"], events[0]["token_ids"], events[0]["lora_name"]) == (plain, [1, 2, 3, 4], "x")
    assert (events[1]["block_hashes"], events[1]["medium"]) == (plain, "CPU")


def test_ours_are_followed_live_and_again(peer: str) -> None:
    if peer == "sglang":
        pytest.skip("SGLang's names of blocks are 64-bit numbers, ours are digests: its own classes cannot read them")
    kv = BlockManager(4, 4)
    with Publisher(kv) as pub:
        kv.sequence(range(16), WHO).release()
        pub.flush()
        kv.sequence(range(100, 116), WHO).release()
        (batches,) = drive(peer, ["follow", pub.endpoint, pub.replay, pub.flush()])
    events = [event for _, events in batches for event in events]
    digests = [digest.hex() for digest in WHO.digest_chain(range(16), 4)]
    assert events[0]["type"] == "AllBlocksCleared"
    assert events[1]["block_hashes"] == digests
    assert events[1]["token_ids"] == list(range(16))
    (removed,) = (event for event in events if event["type"] == "BlockRemoved")
    assert sorted(removed["block_hashes"]) == sorted(digests)


def test_their_publisher_is_followed(peer: str) -> None:
    """A subscriber that comes late has the first batches by their replay, and the index finds their blocks by tokens."""
    pipe = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": sys.stderr, "text": True}
    engine = subprocess.Popen(command(peer, "publish"), **pipe)  # type: ignore[call-overload]
    try:
        endpoint, replay = json.loads(engine.stdout.readline())
        index = Index()
        index.engine("engine", "m")
        with Subscriber(endpoint, replay=replay, node="engine", patience=10.0) as sub:
            given = until(sub, 2)
            assert [type(batch.events[-1]) for batch in given] == [BlockStored, BlockRemoved]
            for batch in given:
                index.apply(batch)
            assert index.holders([1, 2, 3, 4], WHO) == [Holder("engine", 2, {"GPU": 2})]
            engine.stdin.write("\n")
            engine.stdin.flush()
            for batch in until(sub, 1):
                index.apply(batch)
            assert index.holders([1, 2, 3, 4], WHO) == []
    finally:
        engine.stdin.close()
        engine.wait(30)


def until(sub: Subscriber, count: int) -> list[Batch]:
    given: list[Batch] = []
    for _ in range(100):
        given += sub.receive(0.2)
        if len(given) >= count:
            break
    return given
