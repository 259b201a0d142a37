"""Which blocks of a chain a look-up asks a pool for first, so that two trips do for a chain of any length. Pure arithmetic, for
the tier that asks and for the simulation of many that do."""

from __future__ import annotations

__all__ = ["first_asked"]

_AT_ONCE = 16
"""Blocks at the start that are asked for whatever is there."""


def first_asked(count: int) -> list[int]:
    """Of `count` blocks some at the start, every one whose number is a power of two, and the last; ascending."""
    first = {*range(min(count, _AT_ONCE)), *(1 << n for n in range(count.bit_length())), count - 1}
    return sorted(number for number in first if 0 <= number < count)
