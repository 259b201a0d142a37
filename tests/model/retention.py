"""What outlives a request, in the reference: leases, expiry, invalidation. Part of the reference manager."""

from __future__ import annotations

from collections.abc import Callable

from tenure.errors import BudgetError

from .lookup import Lookup
from .records import Chain, Claim, Node, Root, Wishes


class Retention(Lookup):
    """Leases and the end of content."""

    # -- time

    def tick(self, now: float) -> None:
        """Leases that are due end; then content that is due goes, with all that hangs below it."""
        self.now = max(self.now, now)
        self.end(lambda claim: claim.deadline <= self.now)
        due = {node for node in self.nodes if node.deadline <= self.now and not node.doomed}
        if due:
            self.expire(due)

    def expire(self, due: set[Node]) -> None:
        """What nobody uses goes now, what is read when it is no longer; pins end."""
        doomed = self.below(due)
        for node in doomed:
            node.doomed = True
        ended = self.remove(lambda claim: claim.kind != "lookup" and bool(claim.path) and claim.path[-1].doomed)
        busy = self.busy()
        for node in doomed & busy:
            node.linked = False
        # What only hangs below it in a dead namespace is garbage already: it may go with it, or when its room is needed.
        garbage = {node for node in doomed - busy - due if node.root.dead}
        gone = self.witness.order_of(doomed - busy - garbage, garbage)
        gone += self.witness.more_of(garbage.difference(gone), "expire")
        for node in garbage.difference(gone):
            node.doomed = False
        for node in gone:
            self.drop(node, "expired")
        self.settle(node for claim in ended for node in reversed(claim.path))

    # -- leases

    def end(self, which: Callable[[Claim], bool]) -> None:
        """Ends leases, and lets go of what only they needed."""
        if ended := self.remove(which):
            self.settle(node for claim in ended for node in reversed(claim.path))

    def remove(self, which: Callable[[Claim], bool]) -> list[Claim]:
        ended = [claim for claim in self.claims if which(claim)]
        self.claims = [claim for claim in self.claims if claim not in ended]
        for claim in ended:
            self.note("unpin", claim.path)
        return ended

    def add(self, claim: Claim) -> Claim:
        self.claims.append(claim)
        self.note("pin", claim.path)
        return claim

    def within_budget(self, tenant: int, path: list[Node]) -> bool:
        """May all of the path be pinned, in all and by its tenant?"""
        frames = self.options.frames
        pinned, own = self.pinned(), self.pinned(tenant)
        return len(pinned | set(path)) <= int(self.options.pin_budget * frames) and len(own | set(path)) <= int(
            self.tenants[tenant].pins * frames
        )

    def lease(self, kind: str, space: int, tokens: list[int], wishes: Wishes, owner: str, deadline: float) -> Claim:
        """Claims what is there of a prompt: a look-up holds it, all else pins it within the budgets."""
        path = self.match(space, tokens, wishes).nodes
        root = self.spaces[space]
        if path:
            if kind != "lookup" and not self.within_budget(root.tenant, path):
                self.refused_leases += 1
                raise BudgetError("over budget")
            self.require(root.tenant, len(set(path) - self.busy()), counted=False)
        return self.add(Claim(kind, path, root, root.tenant, deadline, owner))

    def keep(self, chain: Chain) -> None:
        """At release: protection for a time, and the session's anchor moves on to its newest prefix, if the budgets allow it."""
        wishes = chain.wishes
        if chain.root.dead:
            return
        path: list[Node] = []
        for i in range(len(chain.tokens) // self.options.block_size):
            node = chain.in_tree(i)
            if not node.linked or node.dead:
                break
            path.append(node)
        if wishes.protect_for > 0:
            self.keep_path(chain, path, "protect", wishes.protect_for)
        if wishes.anchor_for > 0:
            old = [c for c in self.claims if (c.kind, c.tenant, c.owner) == ("anchor", chain.root.tenant, wishes.session)]
            self.end(lambda claim: claim in old)
            kept = self.keep_path(chain, path, "anchor", wishes.anchor_for)
            if not kept:
                for claim in old:
                    if claim.path and claim.path[-1] in self.nodes:
                        self.add(claim)

    def keep_path(self, chain: Chain, path: list[Node], kind: str, seconds: float) -> bool:
        if not path or not self.within_budget(chain.root.tenant, path):
            self.refused_leases += 1
            return False
        self.add(Claim(kind, path, chain.root, chain.root.tenant, self.now + seconds, chain.wishes.session))
        return True

    def forget(self, claim: Claim) -> bool:
        """Ends one lease; False when it had ended."""
        if claim not in self.claims:
            return False
        self.end(lambda other: other is claim)
        return True

    # -- invalidation

    def invalidate(self, space: int) -> None:
        """The namespace gets a new root; what hangs under the old one can never be hit again, and nothing pins it."""
        old = self.spaces[space]
        old.dead = True
        self.previous[space] = old
        self.spaces[space] = Root(space, old.tenant, old.rebuild)
        self.end(lambda claim: claim.root is old and claim.kind != "lookup")

    def sweep(self) -> int:
        """All that is dead and unused goes."""
        before = len(self.nodes)
        for node in self.witness.order_of(self.garbage()):
            self.drop(node, "invalidated")
        return before - len(self.nodes)

    def clear(self) -> int:
        """All that is unused goes, tenant by tenant in its policy's order."""
        before = len(self.nodes)
        self.sweep()
        for tenant in range(len(self.tenants)):
            while leaves := self.leaves(tenant):
                self.drop(self.next_to_go(tenant, leaves), "invalidated")
        return before - len(self.nodes)
