"""The reference's look-up: which leading blocks are there, and why it ended where it did. Reads the books; changes nothing."""

from __future__ import annotations

from typing import NamedTuple

from tenure.errors import TokenError

from .records import Gone, Node, Reason, Wishes
from .room import Room

EXPLAINED = 4
"""children that an explanation looks at; the copy of a part looks at all"""


class Found(NamedTuple):
    """The blocks that are there, and the reasons any of which is right."""

    nodes: list[Node]
    reasons: list[Reason]


class Lookup(Room):
    """Matching of prompts."""

    def match(self, space: int, tokens: list[int], wishes: Wishes) -> Found:
        """The longest prefix of full blocks that is in the tree and allowed to be hit."""
        size = self.options.block_size
        if any(block * size >= len(tokens) for block in wishes.extras):
            raise TokenError("an extra key beyond the prompt")
        root = self.spaces[space]
        found: list[Node] = []
        for i in range(int(min(len(tokens), wishes.max_hit)) // size):
            block = tokens[i * size : (i + 1) * size]
            node = self.find(root, found[-1] if found else None, wishes.extras.get(i), block)
            if node is None:
                break
            found.append(node)
        return Found(found, self.explain(space, found, tokens, wishes))

    def explain(self, space: int, found: list[Node], tokens: list[int], wishes: Wishes) -> list[Reason]:
        """Why the block after those found was not found."""
        size = self.options.block_size
        at = len(found) * size
        if len(found) == len(tokens) // size:
            return [Reason("hit" if found else "too_short", at)]
        if at + size > wishes.max_hit:
            return [Reason("limit", at)]
        root, parent, extra = self.spaces[space], found[-1] if found else None, wishes.extras.get(len(found))
        block = tokens[at : at + size]
        chain = self.chain_of(parent, extra, block)
        gone = self.ledger.get(self.ghost_key_of(chain, space))
        if gone is not None:
            return [self.reason_of(gone, at)]
        reasons = []
        if not found:
            if self.was_in_previous(space, extra, block):
                # Until something needs the room of the old root's blocks, it can still be seen that they were there.
                reasons.append(Reason("invalidated", at))
            began = self.first_blocks.get(chain)
            if began is not None and began != space:
                return [*reasons, Reason("foreign", at, space=began)]
        nearest, same = self.nearest(self.children(root, parent)[:EXPLAINED], extra, tokens[at:], size)
        diverged = nearest is not None and (bool(found) or same > 0)
        return [*reasons, Reason("diverged" if diverged else "never_seen", at + same)]

    def reason_of(self, gone: Gone, at: int) -> Reason:
        if gone.reason != "evicted":
            return Reason(gone.reason, at, gone.when)
        asker = None if gone.asker is None else self.tenants[gone.asker].name
        return Reason("evicted", at, gone.when, gone.policy, asker)

    def was_in_previous(self, space: int, extra: bytes | None, block: list[int]) -> bool:
        """Is this first block still somewhere in the root that the namespace had before?"""
        previous = self.previous[space]
        return any(
            node.root is previous and node.sealed and node.depth == 0 and node.extra == extra and node.tokens == block
            for node in self.nodes
        )

    def nearest(self, children: list[Node], extra: bytes | None, tokens: list[int], most: int) -> tuple[Node | None, int]:
        """The child that shares most leading tokens, the newest of those; and how many."""
        best, shared = None, 0
        for child in children:
            if child.extra != extra:
                continue
            same = 0
            while same < min(len(tokens), most) and child.tokens[same] == tokens[same]:
                same += 1
            if best is None or same > shared:
                best, shared = child, same
        return best, shared
