"""From an interval to words, by thresholds that stand here: whether a claim holds, and how near to dense something is. Claims and
the operator's table call it; it measures nothing."""

from __future__ import annotations

from tenure.scbench.report.pooling import Compared
from tenure.scbench.report.statistics import Estimate
from tenure.scbench.report.words import DIGITS, percent

__all__ = ["FEWEST", "LOSSLESS", "MARGIN", "UNSETTLED", "USABLE", "above", "early", "grade", "keeps", "stays"]

FEWEST = 10
"""Sessions: of fewer, resampling says too little, and no verdict is given."""
MARGIN = 0.02
"""A difference of scores that is as good as none."""
USABLE = 0.9
"""Of dense's accuracy: less is a loss."""
LOSSLESS, UNSETTLED = "lossless", "not settled"
_HOLDS, _NOT = "holds", "does not hold"


def above(estimate: Estimate | None) -> str:
    """Whether a difference is above 0. It is not where all of the interval is under the margin."""
    if (told := early(estimate)) or estimate is None:
        return told
    if _same(estimate):
        return "not seen: no session differs"
    low, high = _shown(estimate)
    if low > 0:
        return _HOLDS
    return _NOT if high < MARGIN else "not settled: the interval contains 0"


def stays(estimate: Estimate | None) -> str:
    """Whether a difference to dense is no loss beyond the margin."""
    if (told := early(estimate)) or estimate is None:
        return told
    if _same(estimate):
        return "holds: no session differs"
    low, high = _shown(estimate)
    if low >= -MARGIN:
        return _HOLDS
    return _NOT if high < 0 else f"not settled: the interval goes below -{MARGIN:g} and is not below 0"


def keeps(compared: Compared) -> str:
    """Whether accuracy relative to dense is usable."""
    estimate = compared.relative
    if (told := early(estimate)) or estimate is None:
        return told
    if _same(compared.difference):
        return "holds: no session differs"
    low, high = _shown(estimate)
    if low >= USABLE:
        return _HOLDS
    return _NOT if high < USABLE else f"not settled: the interval contains {USABLE:g}"


def grade(compared: Compared) -> str:
    """ "lossless", "usable" or "loses x %"; "not settled" of few sessions."""
    if compared.difference.sessions < FEWEST:
        return UNSETTLED
    if _shown(compared.difference)[0] >= -MARGIN or _same(compared.difference):
        return LOSSLESS
    if compared.relative is not None and compared.relative.value >= USABLE:
        return "usable"
    return "loses all" if compared.relative is None else f"loses {percent(1 - compared.relative.value)}"


def _shown(estimate: Estimate) -> tuple[float, float]:
    """The interval as it is told: no verdict hangs on a digit that nobody sees."""
    return round(estimate.low, DIGITS), round(estimate.high, DIGITS)


def _same(difference: Estimate) -> bool:
    """No session differs: the bound on sessions not seen is wide, yet nothing was seen."""
    return difference.exact and difference.value == 0


def early(estimate: Estimate | None) -> str:
    """The verdict where there is nothing to judge, or too little; else nothing."""
    if estimate is None:
        return "not measured"
    if estimate.sessions < FEWEST:
        return (
            f"not settled: {estimate.sessions} session{'s' * (estimate.sessions > 1)}, and {FEWEST} are the least for a verdict"
        )
    return ""
