"""The reference's books: who refers to what, worked out anew for every question by looking at all sequences and leases.
Base of the reference; it answers questions and lets blocks come and go, and knows no request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from tenure.errors import CapacityError, ConfigError, QuotaError

from .ghosts import Ghosts
from .hashing import bytes_hash, chain_hash, first_salt, space_salt
from .policies import Policy, Surroundings
from .records import Chain, Claim, Disagreement, Gone, Node, Root, Tenant
from .witness import Witness

PAGES = 1 << 12
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
        self.first_blocks: Ghosts[int] = Ghosts(PAGES)
        self.witness = Witness()

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

    # -- tenants

    def quota(self, tenant: int) -> tuple[int, int]:
        """Floor and cap in frames."""
        t = self.tenants[tenant]
        return int(t.floor * self.options.frames), int(t.cap * self.options.frames)

    def promised(self, busy: set[Node], tenant: int, more: int) -> int:
        """Frames that are in use or promised, if `more` of the tenant's were in use."""
        total = 0
        for t in range(len(self.tenants)):
            used = sum(node.root.tenant == t for node in busy) + (more if t == tenant else 0)
            total += max(used, self.quota(t)[0])
        return total

    def refusal(self, tenant: int, more: int) -> type[CapacityError] | None:
        """Why `more` frames of the tenant's may not be in use besides those that are; None: they may."""
        if more == 0:
            return None
        busy = self.busy()
        if sum(node.root.tenant == tenant for node in busy) + more > self.quota(tenant)[1]:
            return QuotaError
        return CapacityError if self.promised(busy, tenant, more) > self.options.frames else None

    def require(self, tenant: int, more: int, counted: bool = True) -> None:
        refusal = self.refusal(tenant, more)
        if refusal is not None:
            if counted:
                self.tenants[tenant].count("refused")
            raise refusal("no room")

    def set_quota(self, tenant: int, floor: float, cap: float, weight: float, pins: float) -> None:
        """Refuses floors that cannot be promised: ever, or now."""
        if floor + sum(t.floor for i, t in enumerate(self.tenants) if i != tenant) > 1 + 1e-9:
            raise ConfigError("floors add up to more than all")
        t = self.tenants[tenant]
        before, t.floor = t.floor, floor
        if self.promised(self.busy(), tenant, 0) > self.options.frames:
            t.floor = before
            raise QuotaError("the floor is in use")
        t.cap, t.weight, t.pins = cap, weight, pins

    def next_tenant(self, asker: int) -> int | None:
        """Whose block goes: the one furthest above its fair share, of those that have one to give and are above their floor."""
        frames = self.options.frames
        used = [sum(node.root.tenant == t for node in self.nodes) for t in range(len(self.tenants))]
        weights = sum(t.weight for i, t in enumerate(self.tenants) if used[i] or i == asker)
        shares = {}
        for i, t in enumerate(self.tenants):
            floor = self.quota(i)[0]
            if self.leaves(i) and (i == asker or used[i] > floor):
                shares[i] = used[i] / max(1.0, float(floor), frames * t.weight / weights)
        return max(shares, key=lambda i: (shares[i], -i)) if shares else None

    # -- blocks come and go

    def cost(self, node: Node) -> float:
        return node.root.rebuild * (1 + self.options.slope * self.options.block_size * node.depth)

    def surroundings(self, tenant: int) -> Surroundings:
        return Surroundings(
            self.options.frames,
            lambda: [node for node in self.nodes if node.entered and node.root.tenant == tenant],
            lambda: self.leaves(tenant),
            self.cost,
        )

    def take(self, root: Root) -> Node:
        """A free frame for a new block."""
        if len(self.nodes) >= self.options.frames:
            raise Disagreement("the manager took a frame that is not there")
        record, frame = self.witness.allocation()
        node = Node(record, frame, root, [])
        self.nodes.append(node)
        return node

    def drop(self, node: Node, reason: str, asker: int | None = None) -> None:
        """A sealed block goes for good."""
        tenant = node.root.tenant
        key = self.ghost_key(node)
        if node.entered and reason == "evicted":
            self.policies[tenant].chosen(node, key)
        elif node.entered:
            self.policies[tenant].forget(node)
        self.ledger.put(key, Gone(reason, self.now, self.policy_name, asker))
        self.tenants[tenant].count(reason)
        if reason == "evicted" and asker != tenant:
            self.tenants[tenant].count("evicted_by_others")
        self.nodes.remove(node)

    def settle(self, nodes: Iterable[Node]) -> None:
        """Something stopped using these: what nobody uses now rests, or goes if it was never sealed or is dead."""
        busy = self.busy()
        dead: set[Node] = set()
        for node in nodes:
            if node.sealed and not node.dead and not self.referenced(node):
                node.rested = True
            if node in busy or node not in self.nodes:
                continue
            if not node.sealed:
                self.nodes.remove(node)
            elif node.dead:
                dead.add(node)
        for node in self.witness.order_of(self.below(dead)):
            self.drop(node, "invalidated" if node.root.dead else "expired")

    # -- room

    def make_room(self, tenant: int, fresh: int) -> None:
        """First what takes the tenant beyond its cap, of its own; then what is missing, or a whole batch."""
        used = sum(node.root.tenant == tenant for node in self.nodes)
        for _ in range(used + fresh - self.quota(tenant)[1]):
            self.evict(tenant, own=True)
        missing = fresh - (self.options.frames - len(self.nodes))
        if missing > 0:
            for _ in range(max(missing, self.options.evict_batch)):
                self.evict(tenant, own=False)

    def garbage(self) -> list[Node]:
        """Blocks of dead namespaces that nobody uses."""
        busy = self.busy()
        return [node for node in self.nodes if node.root.dead and node not in busy]

    def evict(self, asker: int, own: bool) -> None:
        """One block: of a dead namespace if there is one, else the one whose turn it is."""
        parents = {node.parent for node in self.nodes if node.linked}
        dead = [n for n in self.garbage() if n not in parents and not (own and n.root.tenant != asker)]
        if dead:
            self.drop(self.witness.next_of(dead), "invalidated", asker)
            return
        victim_of = asker if own else self.next_tenant(asker)
        leaves = [] if victim_of is None else self.leaves(victim_of)
        if victim_of is None or not leaves:
            return
        victim = self.policies[victim_of].victim(leaves, self.now)
        self.drop(self.witness.next_of([victim]), "evicted", asker)
