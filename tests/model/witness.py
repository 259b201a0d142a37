"""What the manager's event log says happened in one step. It settles the two things that the semantics leave open: the record and
frame that a new block gets, and the order of blocks that go at once. Used by the reference, which may choose only what it allows."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable

from tenure import _core

from .records import Disagreement, Node

ALLOCATE = _core.EVENTS.index("allocate")
GONE = frozenset(_core.EVENTS.index(name) for name in ("evict", "expire", "invalidate"))

Row = tuple[float, int, int, int, int, int, int]
"""time, what, block, generation, frame, tenant, state"""


class Witness:
    """The allocations and the departures of one step, in order."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self._came: deque[tuple[tuple[int, int], int]] = deque()
        self._went: deque[tuple[int, int]] = deque()
        for _, what, block, generation, frame, _, _ in rows:
            if what == ALLOCATE:
                self._came.append(((block, generation), frame))
            elif what in GONE:
                self._went.append((block, generation))

    def allocation(self) -> tuple[tuple[int, int], int]:
        """The record and the frame of the next new block."""
        if not self._came:
            raise Disagreement("a block more should have been taken")
        return self._came.popleft()

    def next_of(self, candidates: Collection[Node]) -> Node:
        """Which of several blocks, any of which may go, went."""
        gone = self._went.popleft() if self._went else None
        for node in candidates:
            if node.record == gone:
                return node
        expected = ", ".join(str(node.tokens) for node in candidates)
        raise Disagreement(f"of the blocks {expected} one should have gone next; the manager dropped record {gone}")

    def order_of(self, nodes: Collection[Node]) -> list[Node]:
        """The order in which blocks went that all go."""
        left, ordered = set(nodes), []
        while left:
            node = self.next_of(left)
            left.remove(node)
            ordered.append(node)
        return ordered

    def finish(self) -> None:
        """Nothing else may have happened."""
        if self._came:
            raise Disagreement(f"blocks too many were taken: {list(self._came)}")
        if self._went:
            raise Disagreement(f"blocks too many went: {list(self._went)}")
