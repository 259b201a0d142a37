"""Room in the reference: what a tenant may have in use, how blocks come and go, and which goes to make room.
Part of the reference manager, on its books; it knows no request."""

from __future__ import annotations

from collections.abc import Iterable

from tenure.errors import CapacityError, ConfigError, QuotaError

from .books import Books
from .policies import Surroundings
from .records import DisagreementError, Gone, Node, Root

EVENT_OF = {"evicted": "evict", "expired": "expire", "invalidated": "invalidate"}


class Room(Books):
    """Frames, and who may have them."""

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
        cap = self.quota(tenant)[1]
        if sum(node.root.tenant == tenant for node in busy) + more > cap:
            return QuotaError if cap < self.options.frames else CapacityError
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
            self.now,
        )

    def take(self, root: Root) -> Node:
        """A free frame for a new block."""
        if len(self.nodes) >= self.options.frames:
            raise DisagreementError("the manager took a frame that is not there")
        record, frame = self.witness.allocation()
        node = Node(record, frame, root, [])
        self.nodes.append(node)
        self.note("allocate", [node])
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
        self.note(EVENT_OF[reason], [node])
        if reason == "evicted" and asker != tenant:
            self.tenants[tenant].count("evicted_by_others")
        self.nodes.remove(node)

    def settle(self, nodes: Iterable[Node]) -> None:
        """Something stopped using these: what nobody uses now rests, or goes if it was never sealed or is dead."""
        busy = self.busy()
        dead: set[Node] = set()
        for node in nodes:
            if node.sealed and not node.rested and not node.dead and not self.referenced(node):
                node.rested = True
                self.note("release", [node])
            if node in busy or node not in self.nodes:
                continue
            if not node.sealed:
                self.nodes.remove(node)
                self.note("free", [node])
            elif node.dead:
                dead.add(node)
        # What hangs below a block of a dead namespace is garbage already: it may go with it, or when its room is needed.
        for node in self.witness.order_of(dead, self.below(dead) - dead):
            self.drop(node, "invalidated" if node.root.dead else "expired")

    # -- room

    def make_room(self, tenant: int, fresh: int) -> None:
        """First what takes the tenant beyond its cap, of its own; then what is missing. If any must go, at least a batch does."""
        used = sum(node.root.tenant == tenant for node in self.nodes)
        over = max(0, used + fresh - self.quota(tenant)[1])
        for _ in range(over):
            self.evict(tenant, own=True)
        missing = max(0, fresh - (self.options.frames - len(self.nodes)))
        if over or missing:
            for _ in range(max(missing, self.options.evict_batch - over)):
                self.evict(tenant, own=not missing)  # nobody else gives a block that is not missing

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
        self.drop(self.next_to_go(victim_of, leaves), "evicted", asker)

    def next_to_go(self, tenant: int, leaves: list[Node]) -> Node:
        """The leaf that the tenant's policy lets go next."""
        return self.witness.next_of(self.policies[tenant].candidates(leaves, self.now))
