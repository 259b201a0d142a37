"""Sealing in the reference: written blocks join the prefix tree. Part of the reference manager."""

from __future__ import annotations

from .records import Chain, Node
from .retention import Retention


class Sealing(Retention):
    """From Active to Sealed."""

    def seal_written(self, chain: Chain, reserve: int = 0, leaving: bool = False) -> list[tuple[int, int, int]]:
        """Full written blocks join the tree, in order. Where an equal block is there already it stands for the own one: it
        replaces it, or is referred to beside it. Sealing waits there while others share the own block (what they have below it
        must hang under the same parent), or while the equal one's frame may not be in use besides `reserve` new ones and the
        own one cannot go for it: it can when tables are rewritten or the sequence is `leaving`, and nothing reads it."""
        size = self.options.block_size
        rewrites = []
        for i in range(chain.written // size):
            node = chain.table[i]
            if node.sealed or i in chain.twins:
                continue
            parent = chain.in_tree(i - 1) if i else None
            equal = self.find(chain.root, parent, node.extra, node.tokens)
            if chain.root.dead or (parent is not None and parent.dead):
                self.seal_block(chain, node, i, parent)
                node.doomed = True
            elif equal is None:
                self.seal_block(chain, node, i, parent)
                self.join(chain, node)
            else:
                beside = equal in self.busy() or self.refusal(chain.root.tenant, 1 + reserve) is None
                replaces = self.options.rewrite or (leaving and not beside)
                if self.referenced(node) > 1 or not (beside or (replaces and not self.held(node))):
                    break
                self.tenants[chain.root.tenant].count("duplicates")
                self.note("duplicate", [node])
                self.note("hit", [equal])
                equal.rested = False
                if replaces:
                    rewrites.append((i, node.frame, equal.frame))
                    self.replace(chain, i, equal)
                else:
                    chain.twins[i] = equal
        return rewrites

    def seal_block(self, chain: Chain, node: Node, position: int, parent: Node | None) -> None:
        node.sealed = True
        self.note("seal", [node])
        node.parent = parent
        node.depth = position
        node.chain = self.chain_of(parent, node.extra, node.tokens)

    def join(self, chain: Chain, node: Node) -> None:
        self.joined += 1
        node.joined = self.joined
        node.linked = node.entered = True
        node.deadline = chain.expires
        if node.depth == 0:
            self.first_blocks.put(node.chain, chain.space)
        self.policies[chain.root.tenant].enter(node, self.ghost_key(node))

    def replace(self, chain: Chain, position: int, equal: Node) -> None:
        """The table takes the tree's block; a copy into the own one need not be made any more."""
        own = chain.table[position]
        chain.table[position] = equal
        sources = [source for source, target, _ in chain.copies if target is own]
        chain.copies = [copy for copy in chain.copies if copy[1] is not own]
        self.settle([*sources, own])
