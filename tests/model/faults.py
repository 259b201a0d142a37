"""Managers with one fault each: what the model-based test must be able to find. A fault sits between the manager and its core, or
in the manager's settings. Used by test_reference_catches."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

from tenure import BlockManager, _core
from tenure.errors import CapacityError, StaleHandleError

Build = Callable[..., BlockManager]


class Core:
    """Passes every call on to the real core; a fault overrides one."""

    def __init__(self, core: Any) -> None:
        self.core = core

    def __getattr__(self, name: str) -> Any:
        return getattr(self.core, name)


def built_on(fault: type[Core]) -> Build:
    """Makes managers whose core is wrapped."""

    def build(*args: Any, **settings: Any) -> BlockManager:
        kv = BlockManager(*args, **settings)
        kv._core = kv.tenants._core = fault(kv._core)  # type: ignore[assignment]
        return kv

    return build


def built_with(**change: Callable[[Any], Any]) -> Build:
    """Makes managers with other settings than asked for."""

    def build(*args: Any, **settings: Any) -> BlockManager:
        return BlockManager(*args, **{**settings, **{name: to(settings[name]) for name, to in change.items()}})

    return build


class ForgetsAReference(Core):
    def release(self, handle: int, abort: bool, now: float) -> None:
        self.core.fork(handle, now)
        self.core.release(handle, abort, now)


class HitsAcrossTenants(Core):
    def admit(self, space: int, *rest: Any) -> Any:
        return self.core.admit(0, *rest)


class MatchesAcrossTenants(Core):
    def match(self, space: int, *rest: Any) -> Any:
        return self.core.match(0, *rest)


class NeverExpires(Core):
    def admit(self, space: int, tokens: Any, now: float, request: Any, written: bool) -> Any:
        if request is not None:
            request.expire_after = math.inf
        return self.core.admit(space, tokens, now, request, written)


class LeasesNeverEnd(Core):
    def lease(self, kind: int, space: int, tokens: Any, request: Any, owner: str, deadline: float, now: float) -> Any:
        return self.core.lease(kind, space, tokens, request, owner, math.inf, now)


class ReleasesNoLease(Core):
    def end_lease(self, handle: int, now: float) -> bool:
        return True


class KeepsInvalidated(Core):
    def invalidate(self, space: int, now: float) -> None:
        pass


class TakesStaleHandles(Core):
    def release(self, handle: int, abort: bool, now: float) -> None:
        with contextlib.suppress(StaleHandleError):
            self.core.release(handle, abort, now)


class RefusalsLeaveTraces(Core):
    def admit(self, space: int, tokens: Any, now: float, request: Any, written: bool) -> Any:
        try:
            return self.core.admit(space, tokens, now, request, written)
        except CapacityError:
            self.core.clear(now)
            raise


class MatchingTouches(Core):
    def match(self, space: int, tokens: Any, now: float, request: Any) -> Any:
        found = self.core.match(space, tokens, now, request)
        if len(found[0]):
            handle, *_ = self.core.admit(space, tokens, now, request, False)
            self.core.release(handle, True, now)
        return found


class CapsIgnored(Core):
    def set_quota(self, tenant: int, floor: float, cap: float, weight: float, pins: float) -> None:
        self.core.set_quota(tenant, floor, 1.0, weight, pins)


class FloorsIgnored(Core):
    def set_quota(self, tenant: int, floor: float, cap: float, weight: float, pins: float) -> None:
        self.core.set_quota(tenant, 0.0, cap, weight, pins)


class WeightsIgnored(Core):
    def set_quota(self, tenant: int, floor: float, cap: float, weight: float, pins: float) -> None:
        self.core.set_quota(tenant, floor, cap, 1.0, pins)


class HitsOneTokenMore(Core):
    def admit(self, *args: Any) -> Any:
        handle, hit, *rest = self.core.admit(*args)
        return handle, hit + 1, *rest


class HitsBeyondTheLimit(Core):
    def admit(self, space: int, tokens: Any, now: float, request: Any, written: bool) -> Any:
        if request is not None:
            request.max_hit = 1 << 62
        return self.core.admit(space, tokens, now, request, written)


class TellsNoCopies(Core):
    def append(self, handle: int, tokens: Any, written: bool, now: float) -> Any:
        _, frames, rewrites = self.core.append(handle, tokens, written, now)
        return [], frames, rewrites


class HoldsSourcesForEver(Core):
    def acknowledge(self, handle: int, now: float) -> None:
        pass


class TruncatesTooLittle(Core):
    def truncate(self, handle: int, length: int, now: float) -> None:
        self.core.truncate(handle, min(length + 1, self.core.sequence(handle)[0]), now)


class AbortSealsAll(Core):
    def release(self, handle: int, abort: bool, now: float) -> None:
        self.core.release(handle, False, now)


class AnchorsForgotten(Core):
    def admit(self, space: int, tokens: Any, now: float, request: Any, written: bool) -> Any:
        if request is not None:
            request.anchor_for = 0.0
        return self.core.admit(space, tokens, now, request, written)


class BlamesTheWrongThing(Core):
    def admit(self, *args: Any) -> Any:
        handle, hit, (code, *rest), loads = self.core.admit(*args)
        evicted, never = _core.REASONS.index("evicted"), _core.REASONS.index("never_seen")
        return handle, hit, (never if code == evicted else code, *rest), loads


class TellsTheOtherOrder(Core):
    def parameters(self, tier: int) -> dict[str, float]:
        return {name: 1 - value for name, value in self.core.parameters(tier).items()}


def without_extra_keys(*args: Any, **settings: Any) -> BlockManager:
    """Content is known by its tokens alone."""
    kv = BlockManager(*args, **settings)
    kv._request = lambda extra_keys: _core.Request()  # type: ignore[method-assign]
    return kv


FAULTS: dict[str, Build] = {
    "evicts one too many": built_with(evict_batch=lambda batch: batch + 1),
    "duplicates the other way": built_with(on_duplicate=lambda way: "keep" if way == "rewrite" else "rewrite"),
    "pins half as much": built_with(pin_budget=lambda budget: budget / 2),
    "copies no parts": built_with(partial_reuse=lambda least: 0),
    "extra keys ignored": without_extra_keys,
    **{
        fault.__name__: built_on(fault)
        for fault in (
            ForgetsAReference,
            HitsAcrossTenants,
            MatchesAcrossTenants,
            NeverExpires,
            LeasesNeverEnd,
            ReleasesNoLease,
            KeepsInvalidated,
            TakesStaleHandles,
            RefusalsLeaveTraces,
            MatchingTouches,
            CapsIgnored,
            FloorsIgnored,
            WeightsIgnored,
            HitsOneTokenMore,
            HitsBeyondTheLimit,
            TellsNoCopies,
            HoldsSourcesForEver,
            TruncatesTooLittle,
            AbortSealsAll,
            AnchorsForgotten,
            BlamesTheWrongThing,
            TellsTheOtherOrder,
        )
    },
}
