"""What a running sequence does in the reference: append, seal, fork, truncate, release. Part of the reference manager."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from tenure.errors import CapacityError, TokenError

from .records import Chain, Node, Use
from .sealing import Sealing


class Grown(NamedTuple):
    """What an append did: copies to make, new blocks, and (position, old frame, new frame) of entries that changed."""

    copies: list[tuple[Node, Node, int]]
    added: list[Node]
    rewrites: list[tuple[int, int, int]]


class Growth(Sealing):
    """The life of a sequence after its admission."""

    def append(self, chain: Chain, tokens: list[int], written: bool = True) -> Grown:
        """Slots for more tokens; a shared open block is copied first. All tokens count as written after it, if `written`."""
        self.check_count(len(chain.tokens) + len(tokens))
        if not tokens:
            return Grown([], [], [])
        size = self.options.block_size
        offset = len(chain.tokens) % size
        tail = chain.table[-1] if offset else None
        copy = tail is not None and self.is_shared(tail, offset)
        fresh = self.blocks_for(len(chain.tokens) + len(tokens)) - len(chain.table) + copy
        self.require(chain.root.tenant, fresh)
        self.copied(chain)
        if written:
            chain.written = len(chain.tokens)
        rewrites = self.seal_written(chain, reserve=fresh)
        self.make_room(chain.root.tenant, fresh)
        if tail is not None and copy:
            self.copy_on_write(chain, tail, offset)
        if offset:
            chain.table[-1].tokens = chain.table[-1].tokens[:offset] + tokens[: size - offset]
        added = self.add_blocks(chain, tokens[size - offset :] if offset else tokens)
        chain.tokens = chain.tokens + tokens
        chain.output += len(tokens)
        if written:
            chain.written = len(chain.tokens)
        rewrites += self.seal_written(chain)
        return Grown(list(chain.copies), added, rewrites)

    def is_shared(self, node: Node, offset: int) -> bool:
        """May others still read what a write at `offset` would change?"""
        return node.sealed or self.referenced(node) > 1 or (self.held(node) and offset < len(node.tokens))

    def copy_on_write(self, chain: Chain, tail: Node, offset: int) -> None:
        target = self.take(chain.root)
        target.tokens, target.extra = tail.tokens[:offset], tail.extra
        self.touch(chain, len(chain.table) - 1)
        chain.table[-1] = target
        chain.copies = [(tail, target, offset)]
        self.tenants[chain.root.tenant].count("copies")
        self.settle([tail])

    def add_blocks(self, chain: Chain, tokens: list[int]) -> list[Node]:
        """New blocks for these tokens, at the table's end."""
        size, first = self.options.block_size, len(chain.table)
        for at in range(0, len(tokens), size):
            node = self.take(chain.root)
            node.tokens = tokens[at : at + size]
            position = len(chain.table)
            node.extra = chain.extras[position] if position < len(chain.extras) else None
            chain.table.append(node)
        return chain.table[first:]

    def copied(self, chain: Chain) -> None:
        """The copies have been made."""
        sources = [source for source, _, _ in chain.copies]
        chain.copies = []
        self.settle(sources)

    def seal(self, chain: Chain, upto: int) -> list[tuple[int, int, int]]:
        if upto > len(chain.tokens):
            raise TokenError("beyond the end")
        self.copied(chain)
        chain.written = max(chain.written, upto)
        return self.seal_written(chain)

    def fork(self, chain: Chain) -> Chain:
        """Shares every block; what the parent has counted as used is not counted again."""
        child = replace(
            chain,
            counts_from=len(chain.tokens) // self.options.block_size,
            table=list(chain.table),
            twins=dict(chain.twins),
            copies=[],
        )
        self.chains.append(child)
        return child

    def truncate(self, chain: Chain, length: int) -> None:
        if length > len(chain.tokens):
            raise TokenError("beyond the end")
        self.copied(chain)
        self.give_back(chain, self.blocks_for(length))
        chain.output -= min(chain.output, len(chain.tokens) - length)
        chain.tokens = chain.tokens[:length]
        chain.written = min(chain.written, length)
        full = length // self.options.block_size
        chain.matched = min(chain.matched, full)
        chain.counts_from = min(chain.counts_from, full)
        if full in chain.twins:  # what follows will not be what the twin holds
            self.settle([chain.twins.pop(full)])

    def release(self, chain: Chain, abort: bool) -> None:
        self.copied(chain)
        if not abort:
            chain.written = len(chain.tokens)
        self.seal_written(chain, leaving=True)
        if not abort:
            self.keep(chain)
        self.give_back(chain, 0)
        self.chains.remove(chain)

    def give_back(self, chain: Chain, keep: int) -> None:
        """The blocks from position `keep` on, the last first, each touched once."""
        while len(chain.table) > keep:
            position = len(chain.table) - 1
            self.touch(chain, position)
            twin = chain.twins.pop(position, None)
            own = chain.table.pop()
            self.settle([own] if twin is None else [twin, own])

    def touch(self, chain: Chain, position: int) -> None:
        """The request has used this block: it is the most recent now."""
        node = chain.in_tree(position)
        if not node.linked or node.dead:
            return
        first = node.stamp == 0
        self.stamp += 1
        node.stamp, node.last = self.stamp, self.now
        node.uses += position >= chain.counts_from
        priority, duration = self.priority_of(chain, position * self.options.block_size)
        self.policies[chain.root.tenant].touch(node, Use(self.now, first, position >= chain.matched, priority, duration))

    def priority_of(self, chain: Chain, token: int) -> tuple[int | None, float | None]:
        if token >= chain.prompt:
            return chain.wishes.decode or (None, None)
        for given in reversed(chain.wishes.ranges):
            if given.start <= token < given.end:
                return given.priority, given.duration
        return None, None

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.options.block_size)

    def check_count(self, tokens: int) -> None:
        if tokens > self.options.frames * self.options.block_size:
            raise CapacityError("more tokens than the pool has room for")
