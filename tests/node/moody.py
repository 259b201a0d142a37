"""Tiers that misbehave as they are told, and a node whose lower tier has what its device has not. For the tests of faults."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tenure.errors import StoreError, TierError
from tenure.node import Level, Node
from tenure.tiers import DiskTier, HostTier, Record
from tenure.tiers.base import Outcome
from tests.node.making import LAYOUT, WHO, node, prompt, serve


class Moody(HostTier):
    """A tier that hangs, fails or raises as it is told. `asked` is set by every call."""

    def __init__(self, frames: int = 64, name: str = "moody", **settings: Any) -> None:
        super().__init__(LAYOUT, frames, name=name, **settings)
        self.fails = ""
        self.raises = False
        self.gate = threading.Event()
        self.gate.set()
        self.reads = 0
        self.asked = threading.Event()

    def _mood(self, frames: list[int]) -> list[Outcome] | None:
        self.asked.set()
        self.gate.wait()
        if self.raises:
            raise RuntimeError("a defect")
        return [TierError(self.fails, "the cable is out") for _ in frames] if self.fails else None

    def _read(self, frames: list[int], records: Sequence[Record], into: list[memoryview]) -> list[Outcome]:
        self.reads += len(frames)
        return self._mood(frames) or super()._read(frames, records, into)

    def _write(self, frames: list[int], blocks: list[memoryview], records: Sequence[Record]) -> list[Outcome]:
        return self._mood(frames) or super()._write(frames, blocks, records)


def filled(tier: HostTier, now: list[float] | None = None, frames: int = 8, **level: Any) -> Node:
    """A node whose lower tier has prompt 0, and whose device has not. A deadline holds only once it is filled."""
    settings: dict[str, Any] = {} if now is None else {"clock": lambda: now[0]}
    deadline = level.get("deadline")
    kv = node(frames, Level(tier, **(level if deadline is None else level | {"deadline": 3600.0})), **settings)
    serve(kv, prompt(0, 4))
    kv.flush()
    for which in range(1, 1 + -(-frames // 8)):
        serve(kv, prompt(which, 8))
    kv.flush()
    assert len(kv.match(prompt(0, 4), WHO).lower) == 4
    if isinstance(tier, Moody):
        tier.asked.clear()
    kv._lanes[tier.name].deadline = deadline
    return kv


def started(work: Callable[[], Any]) -> threading.Thread:
    """Runs in a thread that may be left hanging."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def ends(thread: threading.Thread, within: float = 30) -> bool:
    """Whether it comes to its end, in far more time than it needs."""
    thread.join(within)
    return not thread.is_alive()


class Gated(DiskTier):
    """A disk whose table of namespaces hangs or fails as it is told."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, LAYOUT, 4 << 20, segment_bytes=1 << 20)
        self.gate = threading.Event()
        self.gate.set()
        self.asked = threading.Event()
        self.fails = False

    def _mood(self) -> None:
        self.asked.set()
        self.gate.wait()
        if self.fails:
            raise StoreError("the disk is read-only")

    def put_namespace(self, namespace: bytes, value: bytes) -> None:
        self._mood()
        super().put_namespace(namespace, value)

    def drop_namespace(self, namespace: bytes) -> bool:
        self._mood()
        return super().drop_namespace(namespace)
