"""Runs a peer's request workload through a manager, and names what it evicts by content, as the drivers do."""

from __future__ import annotations

from typing import Any

from workloads import block_names

from tenure import BlockManager, CapacityError, Identity, Sequence

WHO = Identity(model="m")


class Run:
    def __init__(self, manager: BlockManager, *, seal_at_end: bool = False) -> None:
        self.seal_at_end = seal_at_end
        self.manager = manager
        self.running: dict[str, tuple[Sequence, list[int]]] = {}
        self.names: dict[tuple[int, int], list[Any]] = {}
        self.seen = 0

    def operations(self, ops: list[list[Any]]) -> list[dict[str, Any]]:
        return [self.operation(*op) for op in ops]

    def operation(self, kind: str, rid: str, *rest: Any) -> dict[str, Any]:
        result: dict[str, Any] = {}
        if kind == "admit":
            tokens = list(rest[0])
            try:
                sequence = self.manager.sequence(tokens, WHO, written=True, priority=rest[1] if len(rest) > 1 else None)
                self.running[rid] = (sequence, tokens)
                result = {"hit": sequence.hit_tokens, "failed": False}
            except CapacityError:
                result = {"failed": True}
        elif rid not in self.running:
            return {"skipped": True}
        elif kind == "append":
            sequence, tokens = self.running[rid]
            try:
                sequence.append(rest[0], written=not self.seal_at_end)
                tokens.extend(rest[0])
                result = {"failed": False}
            except CapacityError:
                result = {"failed": True}
        else:
            self.running.pop(rid)[0].release()
        result["evicted"] = self.evicted()
        self.learn()
        return result

    def learn(self) -> None:
        """Names the blocks of running requests: a block is evicted only after it was in one."""
        for sequence, tokens in self.running.values():
            names = block_names(tokens, self.manager.block_size)
            for frame, name in zip(sequence.block_table, names, strict=False):
                block = self.manager.block(int(frame))
                assert block is not None
                self.names[block.handle] = list(name)

    def evicted(self) -> list[list[Any]]:
        events = self.manager.events(self.seen)
        if events:
            assert events[0].seq == self.seen, "the event log is too short for this test"
            self.seen = events[-1].seq + 1
        return [self.names[e.block, e.generation] for e in events if e.what == "evict"]


def without_copies(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A peer's results as `Run.operations` gives them."""
    keys = ("hit", "failed", "evicted", "skipped")
    kept = [{key: r[key] for key in keys if key in r} for r in results]
    for r in kept:
        if r.get("failed"):
            r.pop("hit", None)
    return kept
