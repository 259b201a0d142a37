"""Every operation that a step of a program may be, and how often each is drawn. Used by the runner."""

from __future__ import annotations

from collections.abc import Callable

from .leasing import lookup, match, pin, protect, release_kept, release_lease, unknown_lease
from .operating import clear, invalidate, set_params, set_policy, set_quota, sweep
from .program import Choices
from .requests import abort, admit, append, copied, finish, foreign, fork, release, seal, stale, truncate
from .subject import Subject

Operation = Callable[[Subject, Choices], "str | None"]


def nothing(subject: Subject, pick: Choices) -> str | None:
    """What a step of zero bytes does."""
    return None


OPERATIONS: list[tuple[Operation, int]] = [
    (nothing, 1),
    (admit, 24),
    (finish, 14),
    (append, 14),
    (release, 13),
    (abort, 3),
    (seal, 5),
    (fork, 5),
    (truncate, 5),
    (copied, 3),
    (match, 3),
    (lookup, 3),
    (pin, 4),
    (protect, 2),
    (release_lease, 5),
    (release_kept, 1),
    (unknown_lease, 1),
    (invalidate, 2),
    (sweep, 1),
    (clear, 1),
    (set_quota, 3),
    (set_params, 1),
    (stale, 2),
    (foreign, 1),
]
"""each with how often it is drawn"""

POLICY_CHANGES: list[tuple[Operation, int]] = [(set_policy, 8), (set_params, 4)]
