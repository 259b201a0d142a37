"""What the manager's event log says happened in one step. It settles what the semantics leave open: the record and frame that a
new block gets, and which of several blocks goes first that may or must go. The reference says which those are."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable

from tenure import _core

from .records import DisagreementError, Node

ALLOCATE = _core.EVENTS.index("allocate")
GONE = frozenset(_core.EVENTS.index(name) for name in ("evict", "expire", "invalidate"))

Row = tuple[float, int, int, int, int, int, int, int]
"""time, what, block, generation, frame, tenant, state"""


class Witness:
    """The allocations and the departures of one step, in order."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self._came: deque[tuple[tuple[int, int], int]] = deque()
        self._went: deque[tuple[tuple[int, int], str]] = deque()
        self._all: list[tuple[str, tuple[int, int]]] = []
        for _, what, block, generation, frame, *_ in rows:
            self._all.append((_core.EVENTS[what], (block, generation)))
            if what == ALLOCATE:
                self._came.append(((block, generation), frame))
            elif what in GONE:
                self._went.append(((block, generation), _core.EVENTS[what]))

    def allocation(self) -> tuple[tuple[int, int], int]:
        """The record and the frame of the next new block."""
        if not self._came:
            raise DisagreementError("a block more should have been taken")
        return self._came.popleft()

    def next_of(self, candidates: Collection[Node]) -> Node:
        """Which of several blocks, any of which may go, went."""
        gone, _ = self._went.popleft() if self._went else (None, "")
        for node in candidates:
            if node.record == gone:
                return node
        expected = ", ".join(str(node.tokens) for node in candidates)
        raise DisagreementError(f"of the blocks {expected} one should have gone next; the manager dropped record {gone}")

    def order_of(self, nodes: Collection[Node], others: Collection[Node] = ()) -> list[Node]:
        """The order in which blocks went that all go, and among them those of some others that may go with them."""
        left, may, ordered = set(nodes), set(others), []
        while left:
            node = self.next_of(left | may)
            left.discard(node)
            may.discard(node)
            ordered.append(node)
        return ordered

    def more_of(self, nodes: Collection[Node], why: str) -> list[Node]:
        """Those of these blocks that went next, for this reason."""
        by_record = {node.record: node for node in nodes}
        ordered = []
        while self._went and self._went[0][1] == why and self._went[0][0] in by_record:
            ordered.append(by_record[self._went.popleft()[0]])
        return ordered

    def finish(self, events: list[tuple[str, tuple[int, int]]]) -> None:
        """These must be all the events of the step, in whatever order."""
        if self._went:
            raise DisagreementError(f"blocks too many went: {list(self._went)}")
        if sorted(self._all) != sorted(events):
            told, right = Counter(self._all), Counter(events)
            raise DisagreementError(f"events: too many {list(told - right)}, missing {list(right - told)}")
