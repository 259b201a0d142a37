"""Tenure decides how long a KV-cache block lives."""

from tenure import errors
from tenure.identity import Identity, Layout, content_digest
from tenure.lease import Lease
from tenure.ledger import BlockInfo, Counts, Event, LeaseInfo, Reason, State, TenantStats, Why
from tenure.manager import BlockManager
from tenure.retention import PrefillCost, PriorityRange, Quota, Retention
from tenure.sequence import Appended, Copy, Match, Rewrite, Sequence

__version__ = "0.1.0"

__all__ = [
    "Appended",
    "BlockInfo",
    "BlockManager",
    "Copy",
    "Counts",
    "Event",
    "Identity",
    "Layout",
    "Lease",
    "LeaseInfo",
    "Match",
    "PrefillCost",
    "PriorityRange",
    "Quota",
    "Reason",
    "Retention",
    "Rewrite",
    "Sequence",
    "State",
    "TenantStats",
    "Why",
    "content_digest",
    "errors",
]
