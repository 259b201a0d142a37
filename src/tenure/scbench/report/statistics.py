"""Means of sessions with honest intervals: a seeded bootstrap over sessions, and an exact bound where that has no width. Cells
and claims call it; it knows no rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import msgspec
import numpy as np
import numpy.typing as npt

__all__ = ["DRAWS", "SEED", "TAIL", "Estimate", "bound", "draws", "estimate", "mean", "ratio"]

DRAWS = 2_000
SEED = 20_412
TAIL = 0.025
"""What an interval leaves out on each side: intervals are of 95 %."""
_DIGITS = 6  # of what is told: sums in another order give the same numbers
_NONE = 1e-9  # an interval that is narrower has no width

Floats = npt.NDArray[np.float64]
Statistic = Callable[[Floats], Floats]


class Estimate(msgspec.Struct, frozen=True):
    """A value with its 95 % interval. sessions: that it is of. exact: the sessions agree, so a resample shows no spread, and the
    interval is the exact binomial bound instead (see `bound`)."""

    value: float
    low: float
    high: float
    sessions: int
    exact: bool = False

    @property
    def spread(self) -> tuple[float, float]:
        """How far the interval reaches below and above the value."""
        return (self.value - self.low, self.high - self.value)


def bound(sessions: int) -> float:
    """The largest share of sessions that may be otherwise where none of so many was: 1 - .025 ** (1 / n), exactly."""
    return float(1 - TAIL ** (1 / sessions))


@lru_cache(maxsize=256)
def draws(sessions: int, stream: int = 0) -> Floats:
    """How often each resample has each session [DRAWS, sessions]. The same for the same arguments; streams are independent."""
    picked = np.random.default_rng([SEED, stream]).integers(0, sessions, (DRAWS, sessions))
    flat = (picked + sessions * np.arange(DRAWS)[:, None]).ravel()
    counts = np.bincount(flat, minlength=DRAWS * sessions).reshape(DRAWS, sessions).astype(np.float64)
    counts.setflags(write=False)
    return counts


def estimate(strata: Sequence[Floats], statistic: Statistic, lowest: float, highest: float) -> Estimate | None:
    """A statistic of means over sessions. strata: of each task its sessions [sessions, columns]; tasks weigh the same, and a
    resample draws sessions within them. statistic: of the columns' means [..., columns] -> [...], from `lowest` to `highest`.
    None without sessions, or where the statistic is not defined (NaN)."""
    strata = [stratum for stratum in strata if len(stratum)]
    if not strata:
        return None
    middle = np.mean([stratum.mean(axis=0) for stratum in strata], axis=0)
    value = float(statistic(middle))
    if not np.isfinite(value):
        return None
    again = np.mean([draws(len(one), stream) @ one / len(one) for stream, one in enumerate(strata)], axis=0)
    drawn = statistic(again)
    low, high = np.quantile(drawn[np.isfinite(drawn)], [TAIL, 1 - TAIL])
    sessions = sum(map(len, strata))
    exact = bool(high - low < _NONE)
    if exact:  # a share of the sessions up to the bound may be anything
        share = bound(sessions)
        low, high = value * (1 - share) + lowest * share, value * (1 - share) + highest * share
    return Estimate(_rounded(value), _rounded(low), _rounded(high), sessions, exact)


def mean(values: Sequence[float], lowest: float = 0.0, highest: float = 1.0) -> Estimate | None:
    """The mean of one value a session."""
    return estimate([np.asarray(values, np.float64)[:, None]], lambda means: means[..., 0], lowest, highest)


def ratio(strata: Sequence[Floats]) -> Estimate | None:
    """The mean of the first column over the mean of the second; both are scores from 0 to 1."""
    filled = [stratum for stratum in strata if len(stratum)]
    if not filled:
        return None
    below = float(np.mean([stratum[:, 1].mean() for stratum in filled]))
    if below == 0:
        return None

    def divided(means: Floats) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            quotient: Floats = np.divide(means[..., 0], means[..., 1])
        return quotient

    return estimate(filled, divided, 0.0, 1 / below)


def _rounded(number: float) -> float:
    return round(float(number), _DIGITS) + 0.0  # no -0.0
