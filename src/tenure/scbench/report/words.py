"""Numbers and names as the report writes them. Tables, plots and the page call it; it computes nothing."""

from __future__ import annotations

from fractions import Fraction

from tenure.scbench.report.statistics import Estimate

__all__ = ["DIGITS", "budget", "group", "interval", "number", "percent", "plain", "times"]

DIGITS = 2
"""After the point, of whatever is told."""
_NOTHING = "-"


def number(value: float | None, sign: bool = False) -> str:
    """A number, or a dash for none."""
    if value is None:
        return _NOTHING
    value = round(value, DIGITS) + 0.0  # no -0.00
    return f"{value:{'+' if sign and value else ''}.{DIGITS}f}"


def interval(estimate: Estimate | None, sign: bool = False) -> str:
    """An estimate as "0.85 [0.78, 0.91]", starred where the interval is the exact bound."""
    if estimate is None:
        return _NOTHING
    low, high = number(estimate.low, sign), number(estimate.high, sign)
    return f"{number(estimate.value, sign)} [{low}, {high}]{'*' if estimate.exact else ''}"


def percent(value: float | None) -> str:
    """A share, in whole percent, with a digit more where it is small."""
    if value is None:
        return _NOTHING
    shown = 100 * value
    return f"{shown:.1f} %" if 0 < abs(shown) < 9.95 else f"{shown:.0f} %".replace("-0 %", "0 %")


def times(value: float | None) -> str:
    """A ratio of durations."""
    return _NOTHING if value is None else f"{value:.2g}x" if value < 10 else f"{value:.0f}x"


def budget(value: float) -> str:
    """A budget: 1/4 where it is such a fraction."""
    part = Fraction(value).limit_denominator(1024)
    return str(part) if part.numerator == 1 and abs(part - value) < 1e-9 else f"{value:g}"


def group(stage: str, memory: str) -> str:
    """What methods are shown together: their stage, which compression splits by what it leaves."""
    return {"none": "dense"}.get(stage, f"{stage}, {memory}" if stage == "compression" else stage)


def plain(text: str) -> str:
    """A name on one line, without what no page or picture can show."""
    return "".join(one if one.isprintable() else " " for one in text)
