"""Every typed error of Tenure, in one place; raised by the core and by the Python face.
An error carries the numbers that explain it in `.numbers`; a call that raises one has changed nothing."""

from __future__ import annotations

from typing import Any

__all__ = [
    "BudgetError",
    "CapacityError",
    "ConfigError",
    "EventError",
    "ForeignHandleError",
    "IdentityError",
    "IntegrityError",
    "PolicyError",
    "QuotaError",
    "RecordError",
    "ReentrancyError",
    "StaleHandleError",
    "StateError",
    "StoreError",
    "TenureError",
    "TierError",
    "TokenError",
    "TraceError",
]


class TenureError(Exception):
    """Base of all. `numbers` maps a name to the figure that explains the refusal."""

    def __init__(self, message: str, **numbers: Any) -> None:
        super().__init__(message)
        self.numbers: dict[str, Any] = numbers


class TokenError(TenureError, ValueError):
    """Token ids or extra keys that are not what they must be (sign, size, type, length)."""


class ConfigError(TenureError, ValueError):
    """A setting that does not exist or does not fit: policy, parameter, size, quota."""


class IdentityError(TenureError, ValueError):
    """An identity field that is missing, of the wrong type, or not a content digest."""


class CapacityError(TenureError):
    """The frames asked for cannot be had now: too many are referenced, pinned or held."""


class QuotaError(CapacityError):
    """The tenant's own cap, or another tenant's floor, forbids it."""


class BudgetError(TenureError):
    """A pin or an anchor would exceed its budget."""


class StaleHandleError(TenureError):
    """The handle's sequence, block or lease has ended."""


class ForeignHandleError(TenureError):
    """The handle belongs to another manager."""


class StateError(TenureError):
    """A transition that R1 does not know; names the block, its state and the event."""


class IntegrityError(TenureError):
    """`check()` found the books wrong; says with numbers what."""


class PolicyError(TenureError):
    """A user's policy is unusable: no `priority`, or it raised or returned no number."""


class ReentrancyError(TenureError):
    """A policy called back into the manager that was asking it."""


class TraceError(TenureError, ValueError):
    """A trace line or file that cannot be used; names the file and the line."""


class EventError(TenureError, ValueError):
    """A message that is no batch of KV events."""


class RecordError(TenureError, ValueError):
    """A record that is malformed, or bytes that are no record."""


class StoreError(TenureError):
    """A store on disk that cannot be opened or changed: of another format, in use, no room, not writable."""


class TierError(TenureError):
    """Why a tier did not keep or give one block; the caller treats it as a miss. `kind` says which sort (tenure.tiers.KINDS)."""

    def __init__(self, kind: str, message: str, **numbers: Any) -> None:
        super().__init__(message, **numbers)
        self.kind = kind
