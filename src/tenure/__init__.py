"""Tenure decides how long a KV-cache block lives."""

from tenure.errors import (
    BudgetError,
    CapacityError,
    ConfigError,
    EventError,
    ForeignHandleError,
    IdentityError,
    IntegrityError,
    PolicyError,
    QuotaError,
    RecordError,
    ReentrancyError,
    StaleHandleError,
    StateError,
    StoreError,
    TenureError,
    TierError,
    TokenError,
    TraceError,
)
from tenure.identity import Identity, Layout, content_digest
from tenure.lease import Lease
from tenure.ledger import BlockInfo, Counts, Event, LeaseInfo, Reason, State, TenantStats, TierStats, Why
from tenure.lower import LowerTier
from tenure.manager import BlockManager
from tenure.retention import PrefillCost, PriorityRange, Quota, Retention
from tenure.sequence import Appended, Copy, Match, Rewrite, Sequence
from tenure.transfers import BlockName, Content, Discovered, Load, Reach, Write

__version__ = "0.1.0"

__all__ = [
    "Appended",
    "BlockInfo",
    "BlockManager",
    "BlockName",
    "BudgetError",
    "CapacityError",
    "ConfigError",
    "Content",
    "Copy",
    "Counts",
    "Discovered",
    "Event",
    "EventError",
    "ForeignHandleError",
    "Identity",
    "IdentityError",
    "IntegrityError",
    "Layout",
    "Lease",
    "LeaseInfo",
    "Load",
    "LowerTier",
    "Match",
    "PolicyError",
    "PrefillCost",
    "PriorityRange",
    "Quota",
    "QuotaError",
    "Reach",
    "Reason",
    "RecordError",
    "ReentrancyError",
    "Retention",
    "Rewrite",
    "Sequence",
    "StaleHandleError",
    "State",
    "StateError",
    "StoreError",
    "TenantStats",
    "TenureError",
    "TierError",
    "TierStats",
    "TokenError",
    "TraceError",
    "Why",
    "Write",
    "content_digest",
]
