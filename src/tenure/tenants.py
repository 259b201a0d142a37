"""The tenants of a manager by name: their quotas and counters. Called by the manager; the rules themselves are the core's."""

from __future__ import annotations

import threading
from collections.abc import Iterator, MutableMapping

from tenure import _core
from tenure.errors import ConfigError
from tenure.ledger import TenantStats
from tenure.retention import Quota

__all__ = ["Tenants"]


class Tenants(MutableMapping[str, Quota]):
    """`kv.tenants["acme"] = Quota(floor=0.2, cap=0.6)`; a tenant that was given none has Quota()."""

    def __init__(self, core: _core.Pool) -> None:
        self._core = core
        self._numbers: dict[str, int] = {}
        self._quotas: dict[str, Quota] = {}
        self.names: list[str] = []
        self.opening = threading.RLock()  # held by whoever opens a tenant or a namespace

    def __getitem__(self, name: str) -> Quota:
        return self._quotas.get(name, Quota())

    def __setitem__(self, name: str, quota: Quota) -> None:
        """Raises ConfigError when floors add up to more than 1, QuotaError when a floor is in use by others just now."""
        if not isinstance(quota, Quota):
            raise ConfigError(f"a tenant is given a Quota, not {type(quota).__name__}")
        self._core.may_enter()
        with self.opening:
            numbers = (quota.floor, quota.cap, quota.weight, quota.pins)
            self._core.check_quota(self._numbers.get(name, -1), *numbers)  # refused: no new tenant is left behind
            self._core.set_quota(self.open(name), *numbers)
            self._quotas[name] = quota

    def __delitem__(self, name: str) -> None:
        """Takes a tenant's quota away: it has Quota() again. Raises ConfigError for a tenant that was never seen."""
        self.number(name)
        self[name] = Quota()

    def __contains__(self, name: object) -> bool:
        return name in self._numbers

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def open(self, name: str) -> int:
        """The tenant's number; a new one when it is new. Call it with `opening` held."""
        if not isinstance(name, str) or not name:
            raise ConfigError(f"a tenant's name is a non-empty string: got {name!r}")
        number = self._numbers.get(name)
        if number is None:
            number = self._core.open_tenant(name)
            self.names.append(name)
            self._numbers[name] = number
        return number

    def number(self, name: str) -> int:
        """The tenant's number. Raises ConfigError for one that was never seen."""
        if name not in self._numbers:
            raise ConfigError(f"no tenant named {name!r}; there are {', '.join(self.names) or 'none yet'}")
        return self._numbers[name]

    def stats(self, name: str) -> TenantStats:
        """Its frames and counters."""
        row = self._core.tenant(self.number(name), 0)
        return TenantStats(**{key: row[key] for key in TenantStats.__dataclass_fields__})
