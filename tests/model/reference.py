"""The manager in plain Python, slow and from its semantics: admission, growth, release, settings. The model-based test runs it beside
the real one. It hands out no handles: a sequence or a lease is the object itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tenure.errors import CapacityError, TokenError

from .books import Options
from .policies import BUILT_IN, Custom, Policy, adopt
from .records import Chain, Claim, Node, Reason, Root, Tenant, Use, Wishes
from .retention import Retention


class Admitted(NamedTuple):
    """A new sequence, the tokens it need not compute, and the reasons any of which is right."""

    chain: Chain
    hit_tokens: int
    reasons: list[Reason]


class Grown(NamedTuple):
    """What an append did: copies to make, new blocks, and (position, old frame, new frame) of entries that changed."""

    copies: list[tuple[Node, Node, int]]
    added: list[Node]
    rewrites: list[tuple[int, int, int]]


class Reference(Retention):
    """Every call first lets time pass; a call that raises has changed nothing else."""

    def __init__(self, options: Options, policy: str | object, params: Mapping[str, float]) -> None:
        super().__init__(options)
        self.policy: str | object = policy
        self.params = dict(params)
        self.policy_name = policy if isinstance(policy, str) else "custom"

    # -- settings

    def make_policy(self, tenant: int) -> Policy:
        around = self.surroundings(tenant)
        return BUILT_IN[self.policy](around, self.params) if isinstance(self.policy, str) else Custom(around, self.policy)

    def open_tenant(self, name: str) -> int:
        self.tenants.append(Tenant(name))
        self.policies.append(self.make_policy(len(self.tenants) - 1))
        return len(self.tenants) - 1

    def open_space(self, tenant: int, rebuild: float) -> int:
        self.spaces.append(Root(len(self.spaces), tenant, rebuild))
        self.previous.append(None)
        return len(self.spaces) - 1

    def set_policy(self, policy: str | object, params: Mapping[str, float]) -> None:
        """A new policy takes over what is there."""
        self.policy, self.params = policy, dict(params)
        self.policy_name = policy if isinstance(policy, str) else "custom"
        self.policies = [self.make_policy(tenant) for tenant in range(len(self.tenants))]
        self.adopting = True
        for tenant, made in enumerate(self.policies):
            adopt(made, [n for n in self.nodes if n.entered and n.root.tenant == tenant], self.ghost_key)
        self.adopting = False

    def set_params(self, params: Mapping[str, float]) -> None:
        self.params.update(params)
        for policy in self.policies:
            policy.params.update(params)

    def order(self, tenant: int) -> list[Node] | None:
        """What may be evicted of a tenant's, the next first; None when its policy decides only when asked."""
        policy = self.policies[tenant]
        return policy.order(self.leaves(tenant), self.now) if policy.definite else None

    # -- the life of a request

    def admit(self, space: int, tokens: list[int], wishes: Wishes) -> Admitted:
        """Hits are held, a part that matches is copied, the rest is new: all or nothing."""
        if not tokens:
            raise TokenError("an empty prompt")
        size, root = self.options.block_size, self.spaces[space]
        tenant = self.tenants[root.tenant]
        self.check_count(len(tokens))
        found, reasons = self.match(space, tokens, wishes)
        fresh = self.blocks_for(len(tokens)) - len(found)
        idle = len(set(found) - self.busy())
        source, copied = self.part_to_copy(root, found, tokens, wishes)
        if source is not None and self.refusal(root.tenant, idle + fresh + (source not in self.busy())):
            source, copied = None, 0
        self.require(root.tenant, idle + fresh)

        known = len(found) * size
        expires = self.now + wishes.expire_after
        extras = [wishes.extras.get(i) for i in range(self.blocks_for(len(tokens)))]
        chain = Chain(space, root, list(tokens), wishes, expires, known + copied, len(found), len(tokens), extras)
        chain.table = list(found)
        self.chains.append(chain)
        for node in found:
            node.rested = False
        if source is not None:
            # The target does not exist yet, but the source must not go to make room for it.
            chain.copies = [(source, source, copied)]
        self.make_room(root.tenant, fresh)
        for i in range(len(found), len(found) + fresh):
            self.add_block(chain, tokens[i * size : (i + 1) * size])
        if source is not None:
            chain.copies = [(source, chain.table[len(found)], copied)]
            tenant.count("copies")
        if wishes.written:
            chain.written = len(tokens)
            self.seal_written(chain)
        full = len(tokens) // size
        for what, by in (
            ("requests", 1),
            ("blocks_asked", full),
            ("blocks_hit", len(found)),
            ("tokens_asked", len(tokens)),
        ):
            tenant.count(what, by)
        tenant.count("tokens_hit", known + copied)
        return Admitted(chain, known + copied, reasons)

    def part_to_copy(self, root: Root, found: list[Node], tokens: list[int], wishes: Wishes) -> tuple[Node | None, int]:
        """The block whose leading tokens the first new block can take over, and how many."""
        known = len(found) * self.options.block_size
        least = self.options.partial_reuse
        if not least or known >= len(tokens) or known >= wishes.max_hit:
            return None, 0
        most = int(min(len(tokens), wishes.max_hit, known + self.options.block_size)) - known
        children = self.children(root, found[-1] if found else None)
        source, same = self.nearest(children, wishes.extras.get(len(found)), tokens[known:], most)
        return (source, same) if same >= least else (None, 0)

    def append(self, chain: Chain, tokens: list[int]) -> Grown:
        """Slots for more tokens; a shared open block is copied first; all that is there counts as written."""
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
        chain.written = len(chain.tokens)
        rewrites = self.seal_written(chain, reserve=fresh)
        self.make_room(chain.root.tenant, fresh)
        if tail is not None and copy:
            self.copy_on_write(chain, tail, offset)
        added = []
        done = 0
        while done < len(tokens):
            part = tokens[done : done + size - offset]
            if not offset:
                added.append(self.add_block(chain, []))
            node = chain.table[-1]
            node.tokens = node.tokens[:offset] + part
            done += len(part)
            offset = 0
        chain.tokens = chain.tokens + tokens
        chain.output += len(tokens)
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

    def add_block(self, chain: Chain, tokens: list[int]) -> Node:
        node = self.take(chain.root)
        position = len(chain.table)
        node.tokens = list(tokens)
        node.extra = chain.extras[position] if position < len(chain.extras) else None
        chain.table.append(node)
        return node

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

    def seal_written(self, chain: Chain, reserve: int = 0) -> list[tuple[int, int, int]]:
        """Full written blocks join the tree, in order. Where an equal block is there already it stands for the own one. Sealing waits
        while others share the own one (theirs must hang under the same parent), or while the other's frame may not be in use
        besides `reserve` new ones."""
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
                goes_back = self.options.rewrite and not self.held(node)
                if equal not in self.busy() and not goes_back and self.refusal(chain.root.tenant, 1 + reserve):
                    break
                if self.referenced(node) > 1:
                    break
                self.tenants[chain.root.tenant].count("duplicates")
                equal.rested = False
                if self.options.rewrite:
                    rewrites.append((i, node.frame, equal.frame))
                    self.replace(chain, i, equal)
                else:
                    chain.twins[i] = equal
        return rewrites

    def seal_block(self, chain: Chain, node: Node, position: int, parent: Node | None) -> None:
        node.sealed = True
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

    def fork(self, chain: Chain) -> Chain:
        """Shares every block; what the parent has counted as used is not counted again."""
        size = self.options.block_size
        child = Chain(
            chain.space,
            chain.root,
            list(chain.tokens),
            chain.wishes,
            chain.expires,
            chain.written,
            chain.matched,
            chain.prompt,
            chain.extras,
            counts_from=len(chain.tokens) // size,
            output=chain.output,
            table=list(chain.table),
            twins=dict(chain.twins),
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
        if full in chain.twins:  # what follows will not be what the twin holds
            self.settle([chain.twins.pop(full)])

    def release(self, chain: Chain, abort: bool) -> None:
        self.copied(chain)
        if not abort:
            chain.written = len(chain.tokens)
        self.seal_written(chain)
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

    # -- small things

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.options.block_size)

    def check_count(self, tokens: int) -> None:
        if tokens > self.options.frames * self.options.block_size:
            raise CapacityError("more tokens than the pool has room for")

    def forget(self, claim: Claim) -> bool:
        """Ends one lease; False when it had ended."""
        if claim not in self.claims:
            return False
        self.end(lambda other: other is claim)
        return True
