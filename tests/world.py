"""A manager in the middle of its work, for tests that nothing in it changes. The fixture `world` is in conftest.py."""

from __future__ import annotations

from dataclasses import dataclass

from tenure import BlockManager, Identity, Lease, Sequence


@dataclass
class World:
    """A manager in the middle of its work."""

    kv: BlockManager
    who: Identity
    seq: Sequence
    child: Sequence
    done: Sequence
    lease: Lease
    elsewhere: Sequence
