"""From an interval to words, by thresholds that stand here: whether a claim holds, and how near to dense something is. Claims and
the operator's table call it; it measures nothing."""

from __future__ import annotations

from tenure.scbench.report.pooling import Compared
from tenure.scbench.report.statistics import Estimate
from tenure.scbench.report.words import percent

__all__ = ["FEWEST", "LOSSLESS", "MARGIN", "USABLE", "above", "grade", "keeps", "stays"]

FEWEST = 10
"""Sessions: of fewer, resampling says too little, and no verdict is given."""
MARGIN = 0.02
"""A difference of scores that is as good as none."""
USABLE = 0.9
"""Of dense's accuracy: less is a loss."""
LOSSLESS = "lossless"
_HOLDS, _NOT = "holds", "does not hold"


def above(estimate: Estimate | None) -> str:
    """Whether a difference is above 0. It is not where all of the interval is under the margin, or no session differs."""
    if (early := _early(estimate)) or estimate is None:
        return early
    if estimate.low > 0:
        return _HOLDS
    return _NOT if estimate.high < MARGIN or _same(estimate) else "not settled: the interval contains 0"


def stays(estimate: Estimate | None) -> str:
    """Whether a difference to dense is no loss beyond the margin."""
    if (early := _early(estimate)) or estimate is None:
        return early
    if estimate.low >= -MARGIN or _same(estimate):
        return _HOLDS
    return _NOT if estimate.high < 0 else f"not settled: the interval goes below -{MARGIN:g} and is not below 0"


def keeps(estimate: Estimate | None) -> str:
    """Whether accuracy relative to dense is usable."""
    if (early := _early(estimate)) or estimate is None:
        return early
    if estimate.low >= USABLE:
        return _HOLDS
    return _NOT if estimate.high < USABLE else f"not settled: the interval contains {USABLE:g}"


def grade(compared: Compared) -> str:
    """ "lossless", "usable" or "loses x %"; "not settled" of few sessions."""
    if compared.difference.sessions < FEWEST:
        return "not settled"
    if compared.difference.low >= -MARGIN or _same(compared.difference):
        return LOSSLESS
    if compared.relative is not None and compared.relative.value >= USABLE:
        return "usable"
    return "loses all" if compared.relative is None else f"loses {percent(1 - compared.relative.value)}"


def _same(difference: Estimate) -> bool:
    """No session differs from dense: the bound on sessions not seen is wide, yet nothing was seen."""
    return difference.exact and difference.value == 0


def _early(estimate: Estimate | None) -> str:
    if estimate is None:
        return "not measured"
    if estimate.sessions < FEWEST:
        return (
            f"not settled: {estimate.sessions} session{'s' * (estimate.sessions > 1)}, and {FEWEST} are the least for a verdict"
        )
    return ""
