"""The manager in plain Python, slow and from its semantics: settings and admission, on all the parts below it. The model-based
test runs it beside the real one. It hands out no handles: a sequence or a lease is the object itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tenure.errors import TokenError

from .books import Options
from .growth import Growth
from .policies import Custom, Policy
from .records import Chain, Node, Reason, Root, Tenant, Wishes
from .registry import BUILT_IN, adopt


class Admitted(NamedTuple):
    """A new sequence, the tokens it need not compute, and the reasons any of which is right."""

    chain: Chain
    hit_tokens: int
    reasons: list[Reason]


class Reference(Growth):
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

    # -- admission

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
