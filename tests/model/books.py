"""The reference's books: who refers to what, worked out anew for every question by looking at all sequences and leases.
Base of the reference; it answers questions and changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from .ghosts import Ghosts
from .hashing import bytes_hash, chain_hash, first_salt, space_salt
from .policies import Policy
from .records import Chain, Claim, Gone, Node, Root, Tenant
from .witness import Witness

FIRST_BLOCKS = 1 << 12
"""how many first blocks the ledger remembers"""


@dataclass(frozen=True, slots=True)
class Options:
    """A manager's settings."""

    frames: int
    block_size: int
    seed: int
    pin_budget: float
    partial_reuse: int
    rewrite: bool
    evict_batch: int
    slope: float


class Books:
    """Blocks, sequences, leases and tenants; no count is kept that can be counted."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.now = -float("inf")
        self.nodes: list[Node] = []
        self.chains: list[Chain] = []
        self.claims: list[Claim] = []
        self.tenants: list[Tenant] = []
        self.spaces: list[Root] = []
        self.previous: list[Root | None] = []
        self.policies: list[Policy] = []
        self.policy_name = ""
        self.adopting = False
        self.stamp = 0
        self.joined = 0
        self.refused_leases = 0
        self.ledger: Ghosts[Gone] = Ghosts(min(options.frames, 1 << 16))
        self.first_blocks: Ghosts[int] = Ghosts(FIRST_BLOCKS)
        self.witness = Witness()
        self.events: list[tuple[str, tuple[int, int]]] = []
        """what has happened to which record in this step"""

    # -- who uses a block

    def referenced(self, node: Node) -> int:
        """By how many sequences."""
        return sum((node in chain.table) + (node in chain.twins.values()) for chain in self.chains)

    def held(self, node: Node) -> bool:
        """By a look-up, or as the source of a copy."""
        return any(node is source for chain in self.chains for source, _, _ in chain.copies) or any(
            claim.kind == "lookup" and node in claim.path for claim in self.claims
        )

    def users(self) -> tuple[Counter[Node], Counter[Node], Counter[Node]]:
        """References, pins and holds of every block."""
        refs: Counter[Node] = Counter()
        pins: Counter[Node] = Counter()
        holds: Counter[Node] = Counter()
        for chain in self.chains:
            for node in chain.table:
                refs[node] += 1
            for node in chain.twins.values():
                refs[node] += 1
            for source, _, _ in chain.copies:
                holds[source] += 1
        for claim in self.claims:
            by_kind = holds if claim.kind == "lookup" else pins
            for node in claim.path:
                by_kind[node] += 1
        return refs, pins, holds

    def busy(self) -> set[Node]:
        """All blocks that a sequence refers to or that a lease or a copy needs."""
        found: set[Node] = set()
        for chain in self.chains:
            found.update(chain.table)
            found.update(chain.twins.values())
            found.update(source for source, _, _ in chain.copies)
        for claim in self.claims:
            found.update(claim.path)
        return found

    def pinned(self, tenant: int | None = None) -> set[Node]:
        """All pinned blocks, or a tenant's."""
        found = {node for claim in self.claims if claim.kind != "lookup" for node in claim.path}
        return {node for node in found if tenant is None or node.root.tenant == tenant}

    def note(self, what: str, nodes: Iterable[Node]) -> None:
        self.events.extend((what, node.record) for node in nodes)

    # -- the tree

    def children(self, root: Root, parent: Node | None) -> list[Node]:
        """The newest first."""
        found = [node for node in self.nodes if node.linked and node.root is root and node.parent is parent]
        return sorted(found, key=lambda node: -node.joined)

    def find(self, root: Root, parent: Node | None, extra: bytes | None, tokens: list[int]) -> Node | None:
        for node in self.nodes:
            if node.linked and node.root is root and node.parent is parent and node.extra == extra and node.tokens == tokens:
                return node
        return None

    def below(self, tops: Iterable[Node]) -> set[Node]:
        """These blocks and all that hang below them in the tree."""
        found = set(tops)
        more = True
        while more:
            more = False
            for node in self.nodes:
                if node.linked and node.parent in found and node not in found:
                    found.add(node)
                    more = True
        return found

    def leaves(self, tenant: int) -> list[Node]:
        """What may be evicted of a tenant's: sealed, unused, with nothing below it."""
        if self.adopting:
            return []  # a policy that takes over is told of all blocks before any of them is queued
        busy = self.busy()
        parents = {node.parent for node in self.nodes if node.linked}
        return [
            node for node in self.nodes if node.root.tenant == tenant and node.sealed and node not in busy and node not in parents
        ]

    def chain_of(self, parent: Node | None, extra: bytes | None, tokens: list[int]) -> int:
        before = first_salt(self.options.seed) if parent is None else parent.chain
        return chain_hash(before, bytes_hash(extra), tuple(tokens))

    def ghost_key_of(self, chain: int, space: int) -> int:
        return chain ^ space_salt(self.options.seed, space)

    def ghost_key(self, node: Node) -> int:
        return self.ghost_key_of(node.chain, node.root.space)
