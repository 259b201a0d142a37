"""Leases as a manager gives them: look-ups, pins, protection; and those in force. Base of BlockManager; which frames a lease
holds and what a budget allows is the core's."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from tenure import _core
from tenure._core import Request
from tenure.checks import integer, seconds
from tenure.errors import StaleHandleError
from tenure.identity import Identity
from tenure.lease import Lease
from tenure.ledger import LeaseInfo
from tenure.tenants import Tenants

__all__ = ["MOST_HANDLE", "Leasing"]

MOST_HANDLE = (1 << 64) - 1
_PIN, _PROTECT, _LOOKUP = (_core.LEASES.index(kind) for kind in ("pin", "protect", "lookup"))


class Leasing:
    """The leasing half of BlockManager."""

    block_size: int
    tenants: Tenants
    _core: _core.Pool
    _clock: Callable[[], float]
    _enter: Callable[..., tuple[int, Any]]
    _request: Callable[..., Request]
    _patiently: Callable[..., Any]

    def lookup(
        self, tokens: Any, who: Identity, *, owner: str, ttl: float, extra_keys: Mapping[int, bytes] | None = None
    ) -> Lease:
        """Finds and holds in one step: nothing under the lease is evicted until it is released or `ttl` s have passed."""
        return self._lease(_LOOKUP, tokens, who, owner, seconds("ttl", ttl), extra_keys)

    def pin(
        self,
        tokens: Any,
        who: Identity,
        *,
        owner: str,
        ttl: float | None = None,
        extra_keys: Mapping[int, bytes] | None = None,
    ) -> Lease:
        """Pins what is cached of this prefix, until released or for `ttl` s. Raises BudgetError beyond the pin budget."""
        return self._lease(_PIN, tokens, who, owner, None if ttl is None else seconds("ttl", ttl), extra_keys)

    def protect(self, tokens: Any, who: Identity, *, ttl: float, owner: str = "") -> Lease:
        """Keeps what is cached of this prefix from eviction for `ttl` s (R4.1). Raises BudgetError beyond the pin budget."""
        return self._lease(_PROTECT, tokens, who, owner, seconds("ttl", ttl), None)

    def leases(self) -> list[LeaseInfo]:
        """All leases in force: pins, anchors, protection, look-ups."""
        return [
            LeaseInfo(
                handle,
                _core.LEASES[kind],
                self.tenants.names[tenant],
                owner,
                blocks,
                deadline if math.isfinite(deadline) else None,
            )
            for handle, kind, tenant, blocks, deadline, owner in self._core.leases(self._clock())
        ]

    def release_lease(self, lease: int) -> bool:
        """Ends a lease by its id; False when it had ended. Raises StaleHandleError for an id that was never given."""
        return self._core.end_lease(integer("lease", lease, 0, MOST_HANDLE, StaleHandleError), self._clock())

    def _lease(
        self,
        kind: int,
        tokens: Any,
        who: Identity,
        owner: str,
        ttl: float | None,
        extra_keys: Mapping[int, bytes] | None,
    ) -> Lease:
        request = self._request(extra_keys)
        request.leave_last &= kind == _LOOKUP  # what is pinned is for requests that go on beyond it
        space, tokens = self._enter(who, tokens)
        lasting = math.inf if ttl is None else ttl
        handle, blocks = self._patiently(lambda: self._core.lease(kind, space, tokens, request, owner, lasting, self._clock()))
        return Lease(self, handle, blocks * self.block_size)
