"""The manager in plain Python, slow and from its semantics: admission, growth, release, settings. The model-based test runs it
beside the real one. It hands out no handles: a sequence or a lease is the object itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from tenure.errors import CapacityError, TokenError

from .books import Options
from .policies import Custom, Policy
from .records import Chain, Claim, Node, Reason, Root, Tenant, Use, Wishes
from .registry import BUILT_IN, adopt
from .sealing import Sealing


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


class Reference(Sealing):
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

    def close_space(self) -> None:
        """The last one opened, which nothing has used."""
        self.spaces.pop()
        self.previous.pop()

    def close_tenant(self) -> None:
        """The last one opened, which nothing has used."""
        self.tenants.pop()
        self.policies.pop()

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

    # -- the life of a request

    def admit(self, space: int, tokens: list[int], wishes: Wishes) -> Admitted:
        """Hits are held, a part that matches is copied, the rest is new: all or nothing."""
        if not tokens:
            raise TokenError("an empty prompt")
        self.check_count(len(tokens))
        root = self.spaces[space]
        found, reasons = self.match(space, tokens, wishes)
        fresh = self.blocks_for(len(tokens)) - len(found)
        needed = fresh + len(set(found) - self.busy())
        source, copied = self.part_to_copy(root, found, tokens, wishes)
        if source is not None and self.refusal(root.tenant, needed + (source not in self.busy())):
            source, copied = None, 0
        self.require(root.tenant, needed)

        hit = len(found) * self.options.block_size + copied
        chain = self.open(space, tokens, wishes, found, hit)
        if source is not None:
            chain.copies = [(source, source, copied)]  # the target is not there yet, but the source must not go for its sake
        self.make_room(root.tenant, fresh)
        self.add_blocks(chain, tokens[len(found) * self.options.block_size :])
        if source is not None:
            chain.copies = [(source, chain.table[len(found)], copied)]
            self.tenants[root.tenant].count("copies")
        if wishes.written:
            chain.written = len(tokens)
            self.seal_written(chain)
        self.count_request(root.tenant, len(tokens), len(found), hit)
        return Admitted(chain, hit, reasons)

    def open(self, space: int, tokens: list[int], wishes: Wishes, found: list[Node], hit: int) -> Chain:
        """A sequence that holds what was found."""
        extras = [wishes.extras.get(i) for i in range(self.blocks_for(len(tokens)))]
        expires = self.now + wishes.expire_after
        chain = Chain(space, self.spaces[space], list(tokens), wishes, expires, hit, len(found), len(tokens), extras)
        chain.table = list(found)
        self.chains.append(chain)
        self.note("hit", found)
        for node in found:
            node.rested = False
        return chain

    def count_request(self, tenant: int, tokens: int, found: int, hit: int) -> None:
        counts = self.tenants[tenant]
        counts.count("requests")
        counts.count("blocks_asked", tokens // self.options.block_size)
        counts.count("blocks_hit", found)
        counts.count("tokens_asked", tokens)
        counts.count("tokens_hit", hit)

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
