"""BlockManager, the one door: an engine asks it for the blocks of a request and is told what is there and what to copy first.
Called by engines, the simulator and the tests; it owns no bytes, does no I/O and reads no clock but the one it was given."""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from tenure import _core
from tenure.checks import blocks_and_keys, fraction, integer, numbers, positive, seconds
from tenure.errors import ConfigError, IdentityError, StaleHandleError, TokenError
from tenure.identity import Identity
from tenure.inspection import Inspection
from tenure.leasing import MOST_HANDLE, Leasing
from tenure.ledger import POLICY_NAMES, REASONS, Reason, Why
from tenure.lower import WRITE_MODES, LowerTier
from tenure.presets import preset_options
from tenure.retention import PrefillCost, Retention
from tenure.sequence import Match, Sequence
from tenure.tenants import Tenants
from tenure.transfers import Transfers

__all__ = ["BlockManager"]

T = TypeVar("T")
_TAGS = itertools.count(1)
_DEVICE = 0
_MOST_FRAMES = (1 << 31) - 1


class BlockManager(Inspection, Leasing, Transfers):
    """The blocks of one pool of frames.

    frames: how many blocks have room. block_size: tokens a block. policy: the name of a built-in policy, or an object with
    `priority(block) -> float` (the least goes first); params: that policy's parameters. clock: seconds, never falling.
    pin_budget: the fraction of the frames that pins, protection and anchors may take. partial_reuse: copy the matching tokens
    out of a block that diverges, from this many on (0 = never). on_duplicate: when a block seals whose content is there already,
    "keep" the own copy until release, or "rewrite" the table. recompute_last: never hit a prompt's last token (an engine must
    compute at least one to have logits). seed: salts the hashes. events: how many events to keep. evict_batch: blocks to evict
    at least when any must go (1 = the exact shortfall). prefill, block_tokens: what prefill costs, and how many tokens a block
    stands for, to the policies that weigh it. lower: the tiers below the device, the fastest first; whoever owns the bytes makes
    the copies (`Sequence.loads`, `take_writes`).

    All methods may be called from any thread. Raises ConfigError for settings that do not fit.
    """

    def __init__(
        self,
        frames: int,
        block_size: int = 16,
        *,
        policy: str | object = "lru",
        params: Mapping[str, float] | None = None,
        clock: Callable[[], float] = time.monotonic,
        seed: int = 0,
        pin_budget: float = 0.5,
        partial_reuse: int = 0,
        on_duplicate: str = "keep",
        recompute_last: bool = False,
        events: int = 4096,
        evict_batch: int = 1,
        prefill: PrefillCost | None = None,
        block_tokens: float | None = None,
        lower: Iterable[LowerTier] = (),
    ) -> None:
        integer("frames", frames, 1, _MOST_FRAMES)
        integer("block_size", block_size, 1, 65535)
        integer("seed", seed, 0, (1 << 64) - 1)
        integer("partial_reuse", partial_reuse, 0, block_size)
        integer("events", events, 0, 1 << 28)
        integer("evict_batch", evict_batch, 1, frames)
        fraction("pin_budget", pin_budget)
        if on_duplicate not in ("keep", "rewrite"):
            raise ConfigError(f"on_duplicate is {on_duplicate!r}: 'keep' or 'rewrite' is needed")
        tiers = _checked(lower)
        self.frames = frames
        self.block_size = block_size
        self.kept_events = events
        self.tiers = ("device", *(tier.name for tier in tiers))
        self._clock = clock
        self._recompute_last = recompute_last
        self._policies = [policy, *(tier.policy for tier in tiers)]
        self._core = _core.Pool(
            frames=frames,
            block_size=block_size,
            policy=policy,
            parameters=numbers(params),
            seed=seed,
            pin_budget=float(pin_budget),
            partial_reuse=partial_reuse,
            rewrite=on_duplicate == "rewrite",
            events=events,
            evict_batch=evict_batch,
            tag=next(_TAGS) & 0xFFF,
            slope=(prefill or PrefillCost()).slope,
            block_tokens=float(block_size) if block_tokens is None else positive("block_tokens", block_tokens),
            lower=[(tier.frames, WRITE_MODES.index(tier.write), tier.uses) for tier in tiers],
        )
        for number, tier in enumerate(tiers, 1):
            self._core.set_policy(number, tier.policy, numbers(tier.params), -math.inf)
        self.tenants = Tenants(self._core)
        self._spaces: dict[bytes, int] = {}
        self._identities: list[Identity] = []
        self._orphans: deque[int] = deque()

    @classmethod
    def preset(cls, name: str, frames: int, block_size: int | None = None, **settings: Any) -> BlockManager:
        """A manager that evicts as `name` does: "vllm", "sglang", "tensorrt-llm" or "lmcache". Further settings override."""
        options = preset_options(name, settings)
        if block_size is not None:
            options["block_size"] = block_size
        return cls(frames, **options)

    # -- requests

    def sequence(
        self,
        tokens: Any,
        who: Identity,
        *,
        session: str | None = None,
        priority: int | Retention | None = None,
        protect_for: float | None = None,
        expire_after: float | None = None,
        anchor_for: float | None = None,
        extra_keys: Mapping[int, bytes] | None = None,
        max_hit: int | None = None,
        written: bool = False,
    ) -> Sequence:
        """Admits a request: hits are held, the rest is reserved, all or nothing.

        tokens: ids in [0, 2^31), one dimension: an array, any buffer, a list. session: whose turn this is; anchor_for keeps its
        newest prefix that many seconds after release. priority: 0-100 for the whole request, or a Retention. protect_for: seconds
        after release in which the prefix is not evicted. expire_after: seconds from now after which what this request computes
        must be gone. extra_keys: block of the prompt -> bytes that belong to its content (an image's digest and offset).
        max_hit: at most so many tokens may be hits. written: the engine writes in lock-step, so full prompt blocks can be hit at
        once; else they can be after the first append, seal or release.

        Raises TokenError, CapacityError (QuotaError), ConfigError or IdentityError, and has then changed nothing.
        """
        if self._orphans:
            self._release_orphans()
        request = None
        if (
            session is not None
            or priority is not None
            or protect_for is not None
            or expire_after is not None
            or anchor_for is not None
            or extra_keys is not None
        ):
            request = self._request(extra_keys)
            if session is not None:
                request.session = session
            if priority is not None:
                (priority if isinstance(priority, Retention) else Retention.of(priority)).fill(request)
            if protect_for is not None:
                request.protect_for = seconds("protect_for", protect_for)
            if expire_after is not None:
                request.expire_after = seconds("expire_after", expire_after)
            if anchor_for is not None:
                if session is None:
                    raise ConfigError("anchor_for needs a session: whose newest prefix is to be kept?")
                request.anchor_for = seconds("anchor_for", anchor_for)
        if max_hit is not None or self._recompute_last:
            request = request or self._request(None)
            if max_hit is not None:
                request.max_hit = integer("max_hit", max_hit, 0, 1 << 62)
        space, tokens = self._enter(who, tokens, 1)
        handle, hit, why, _loads = self._patiently(lambda: self._core.admit(space, tokens, self._clock(), request, written))
        return Sequence(self, handle, hit, why, who)

    def match(self, tokens: Any, who: Identity, *, extra_keys: Mapping[int, bytes] | None = None) -> Match:
        """What a request with these tokens would find; holds nothing and touches nothing. Raises TokenError."""
        request = self._request(extra_keys) if self._recompute_last or extra_keys is not None else None
        space, tokens = self._enter(who, tokens)
        frames, tiers, why = self._core.match(space, tokens, self._clock(), request)
        return Match(len(frames) * self.block_size, frames, self._why(why, who), tuple(self.tiers[tier] for tier in tiers))

    def resume(self, handle: int) -> Sequence:
        """The sequence of a handle kept as a number. Raises StaleHandleError or ForeignHandleError."""
        integer("handle", handle, 0, MOST_HANDLE, StaleHandleError)
        matched = self._core.sequence(handle)[2]
        return Sequence(self, handle, matched * self.block_size, (0, 0, math.nan, 0, -1, -1), None, owns=False)

    # -- what an operator does

    def invalidate(self, **fields: Any) -> int:
        """Makes every block unhittable whose identity has these field values: O(1) a namespace. Running sequences finish, and
        their blocks go straight to Free. Returns the number of namespaces. Raises IdentityError for an unknown field."""
        spaces = self._spaces_of(fields)
        for space in spaces:
            self._core.invalidate(space, self._clock())
        return len(spaces)

    def sweep(self) -> int:
        """Frees now what has expired or was invalidated (else done when frames are needed); returns how many blocks went."""
        return self._core.sweep(self._clock())

    def clear(self) -> int:
        """Drops every block that is not in use or pinned; returns how many went. Never needs an idle engine."""
        return self._core.clear(self._clock())

    @property
    def policy(self) -> str:
        """The device's policy in force: a built-in's name, or the class name of a policy of your own."""
        return self.policy_of("device")

    @property
    def params(self) -> dict[str, float]:
        """The parameters of the device's policy."""
        return self._core.parameters(_DEVICE)

    def policy_of(self, tier: str) -> str:
        """A tier's policy in force. Raises ConfigError for a tier that is not there."""
        number = self._tier(tier)
        name = POLICY_NAMES[self._core.policy(number)]
        return type(self._policies[number]).__name__ if name == "custom" else name

    def set_policy(self, policy: str | object, *, tier: str = "device", **params: float) -> None:
        """Changes a tier's policy on the live pool; what is cached stays, by last use. Raises ConfigError or PolicyError."""
        number = self._tier(tier)
        self._core.set_policy(number, policy, numbers(params), self._clock())
        self._policies[number] = policy

    def set_params(self, *, tier: str = "device", **params: float) -> None:
        """Changes parameters of a tier's policy. Raises ConfigError for one it does not have or a value out of range."""
        self._core.set_parameters(self._tier(tier), numbers(params), self._clock())

    # -- inside

    def _enter(self, who: Identity, tokens: Any, least: int = 0) -> tuple[int, Any]:
        """The namespace, and the tokens in a form that can be read again."""
        try:
            return self._spaces[who.namespace], tokens
        except KeyError:
            tokens = _core.as_tokens(tokens)  # a refused call leaves no namespace behind
            if len(tokens) < least:
                raise TokenError("the prompt is empty: a sequence starts with at least one token", tokens=0) from None
            return self._open(who), tokens
        except AttributeError:
            raise IdentityError(f"who is {who!r}: an Identity is needed") from None

    def _open(self, who: Identity) -> int:
        self._core.may_enter()  # a policy that calls back must not wait for a lock that waits for the policy
        with self.tenants.opening:
            space = self._spaces.get(who.namespace)
            if space is None:
                space = self._core.open_space(self.tenants.open(who.account), float(who.rebuild), self._tiers_for(who))
                self._identities.append(who.with_(tenant=who.account))
                self._spaces[who.namespace] = space
            return space

    def _spaces_of(self, fields: Mapping[str, Any]) -> list[int]:
        """The namespaces whose identity has these values. Raises IdentityError for an unknown field."""
        known = {name for name in Identity.__dataclass_fields__ if name != "namespace"}
        if not fields or set(fields) - known:
            raise IdentityError(
                f"invalidate by one or more of {', '.join(sorted(known))}: got {', '.join(sorted(fields)) or 'none'}"
            )
        found = enumerate(self._identities)
        return [space for space, who in found if all(getattr(who, name) == value for name, value in fields.items())]

    def _patiently(self, call: Callable[[], T]) -> T:
        """A call that may raise CapacityError; a node tries again when its own copies are what is in the way."""
        return call()

    def _tiers_for(self, who: Identity) -> int:
        """Which tiers this namespace's blocks may be written to, a bit each."""
        return (1 << len(self.tiers)) - 1

    def _request(self, extra_keys: Mapping[int, bytes] | None) -> _core.Request:
        request = _core.Request()
        request.leave_last = self._recompute_last
        for block, key in blocks_and_keys(extra_keys):
            request.add_extra(block, key)
        return request

    def _why(self, why: tuple[int, int, float, int, int, int], who: Identity | None) -> Why:
        code, at, when, policy, tenant, space = why
        reason = REASONS[code]
        return Why(
            reason=reason,
            at=at,
            when=None if math.isnan(when) else when,
            policy=POLICY_NAMES[policy] if reason is Reason.EVICTED else None,
            tenant=self.tenants.names[tenant] if reason is Reason.EVICTED and tenant >= 0 else None,
            differs=() if space < 0 or who is None else who.differs(self._identities[space]),
        )

    def _release_orphans(self) -> None:
        self._core.may_enter()
        while self._orphans:
            with contextlib.suppress(StaleHandleError, IndexError):  # released by its number, or by another thread just now
                self._core.release(self._orphans.popleft(), True, self._clock())


def _checked(lower: Iterable[LowerTier]) -> list[LowerTier]:
    tiers = list(lower)
    for tier in tiers:
        if not isinstance(tier, LowerTier):
            raise ConfigError(f"a tier below the device is described by a LowerTier, not {type(tier).__name__}")
    names = [tier.name for tier in tiers]
    if len(set(names)) != len(names):
        raise ConfigError(f"two tiers have one name: {', '.join(names)}")
    return tiers


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
