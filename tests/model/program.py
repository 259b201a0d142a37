"""A program: a string of bytes read as one setting of a manager and a number of steps. Zero bytes mean the simplest choice, and a
step of zeros does nothing, so that a smaller string is a simpler program."""

from __future__ import annotations

from dataclasses import dataclass

from tenure import Identity

from .books import Options

HEAD, WIDTH, STEPS = 8, 8, 200
LENGTH = HEAD + STEPS * WIDTH

TENANTS = ("red", "green", "blue")
"""Two versions of the weights for each tenant, the newer dear to compute; and what all tenants share."""
IDENTITIES = [
    *(Identity("model", weights=w, tenant=t, rebuild=r) for t in TENANTS for w, r in (("old", 1.0), ("new", 2.0))),
    Identity("model", tenant="red", public=True),
]

STEMS = (
    [1, 2, 3, 1, 1, 2, 2, 3] * 4,
    [1, 2, 1, 2, 3, 3, 1, 2] * 4,
    [1, 1, 1, 1, 1, 1, 1, 1] * 4,
    [3, 1, 2, 3, 2, 1, 3, 2] * 4,
)
"""Prompts begin with one of these, so that prefixes meet."""


class Choices:
    """Small numbers out of one larger number."""

    def __init__(self, data: bytes) -> None:
        self._left = int.from_bytes(data, "little")

    def below(self, count: int) -> int:
        self._left, choice = divmod(self._left, count)
        return choice


@dataclass(frozen=True, slots=True)
class Setting:
    """What a manager is made with, and how many identities take part."""

    options: Options
    identities: int
    params: int
    recompute_last: bool


def setting_of(data: bytes) -> Setting:
    """From the first bytes."""
    pick = Choices(data[:HEAD])
    frames, size = (4 + pick.below(21), 48)[pick.below(8) == 7], 1 + pick.below(4)
    options = Options(
        frames=frames,
        block_size=size,
        rewrite=bool(pick.below(2)),
        partial_reuse=min(size, pick.below(3)),
        evict_batch=(1, 1, 3)[pick.below(3)],
        pin_budget=(0.5, 1.0, 0.25)[pick.below(3)],
        seed=(0, 7, 1 << 63)[pick.below(3)],
        slope=(0.25, 2.0)[pick.below(2)],
    )
    return Setting(options, (2, 4, 6, 7)[pick.below(4)], pick.below(3), pick.below(4) == 1)


def steps_of(data: bytes) -> list[bytes]:
    """The steps behind the setting; the ones that do nothing are left out."""
    steps = [data[at : at + WIDTH] for at in range(HEAD, len(data), WIDTH)]
    return [step for step in steps if any(step)]


def join(head: bytes, steps: list[bytes]) -> bytes:
    """The program with this setting and these steps."""
    return head + b"".join(steps)
