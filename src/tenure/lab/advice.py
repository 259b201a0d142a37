"""From replayed rows to sentences an operator can act on: what each policy gains, what more frames would bring, and the
frames a target needs. The command line calls it. It replays nothing, and says when a number is interpolated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tenure.errors import ConfigError
from tenure.lab.replay import BASELINE, Row
from tenure.lab.settings import share

_TIE = 0.0005  # hit rates nearer than 0.05 points are a tie with LRU
_SAME = 0.00005  # and these are equal as they are shown
_TENTH_SHOWN = 0.0005  # what a tenth of a point is rounded from


@dataclass(frozen=True, slots=True)
class Need:
    """Frames that reach a target: replayed, or (`interpolated`) between the replayed capacities `low` and `high`."""

    policy: str
    target: float
    frames: int
    low: int
    high: int
    interpolated: bool


def frames_needed(rows: Sequence[Row], target: float, ceiling: float) -> Need:
    """The least capacity of one policy's rows that reaches `target`, on a line over log(frames) between two rows.

    Raises ConfigError when the target is above 1, above the ceiling, or above all rows.
    """
    share(target, "hit rate")
    if target > ceiling:
        raise ConfigError(
            f"a hit rate of {target:.4f} cannot be reached: without any limit it is {ceiling:.4f}",
            hit_rate=target,
            ceiling=ceiling,
        )
    ordered = sorted(rows, key=lambda row: row.capacity)
    above = next((i for i, row in enumerate(ordered) if row.hit_rate >= target), None)
    if above is None:
        best = max((row.hit_rate for row in ordered), default=0.0)
        raise ConfigError(
            f"no capacity that was replayed reaches {target:.4f}; the best is {best:.4f}", hit_rate=target, best=best
        )
    high = ordered[above]
    if above == 0 or high.hit_rate == target:
        return Need(high.policy, target, high.capacity, high.capacity, high.capacity, interpolated=False)
    low = ordered[above - 1]
    part = (target - low.hit_rate) / (high.hit_rate - low.hit_rate)
    frames = math.ceil(math.exp(math.log(low.capacity) + part * math.log(high.capacity / low.capacity)) - 1e-6)
    return Need(high.policy, target, min(frames, high.capacity), low.capacity, high.capacity, interpolated=True)


def frames(count: int) -> str:
    """ "1 frame", "2,000 frames"."""
    return f"{count:,} frame{'' if count == 1 else 's'}"


def advise(rows: Sequence[Row], ceiling: float) -> list[str]:
    """A few lines: the best policy at each capacity against LRU and the optimum, and what the next capacity adds."""
    if ceiling <= 0:
        return ["No block is ever asked for twice: no size and no policy gives a hit."]
    lines: list[str] = []
    by_capacity = _by_capacity(rows)
    sizes = sorted(by_capacity)
    best = {size: max(row.hit_rate for row in by_capacity[size]) for size in sizes}
    for size, following in zip(sizes, [*sizes[1:], None], strict=True):
        text = _best(size, by_capacity[size])
        if following is not None and abs(gain := best[following] - best[size]) >= _TENTH_SHOWN:
            text += f"; {frames(following)} {'add' if gain > 0 else 'lose'} {100 * abs(gain):.1f} points"
        lines.append(text + ".")
    enough = next((size for size in sizes if best[size] >= 0.99 * ceiling), None)
    if enough is None:
        return [*lines, f"More frames may still help: the ceiling, with no limit to them, is {ceiling:.2%}."]
    short = ceiling - best[enough]
    verb = ("reaches" if enough == 1 else "reach") if short < 1e-9 else ("comes" if enough == 1 else "come")
    within = "" if short < 1e-9 else f" within {math.ceil(1000 * short - 1e-6) / 10:.1f} points of"
    return [*lines, f"{frames(enough)} {verb}{within} the ceiling, which is {ceiling:.2%} with no limit to the frames."]


def waits(rows: Sequence[Row], requests: int) -> list[str]:
    """A line a capacity at which requests waited for room; over all policies shown."""
    lines = []
    for size, at in sorted(_by_capacity(rows).items()):
        least, most = min(row.waited for row in at), max(row.waited for row in at)
        if most:
            count = f"{most:,}" if least == most else f"{least:,} to {most:,} (by policy)"
            lines.append(f"At {frames(size)} {count} of {requests:,} requests waited for room.")
    return lines


def _best(size: int, rows: Sequence[Row]) -> str:
    """Who is best at one capacity; LRU only where it alone is."""
    top = max(rows, key=lambda row: row.hit_rate)
    lru = next((row for row in rows if row.policy == BASELINE), None)
    others = [row.hit_rate for row in rows if row is not lru]
    best = [row.policy for row in rows if row is not lru and top.hit_rate - row.hit_rate < _SAME]
    if len(rows) == 1:
        text = f"{top.policy} hits {top.hit_rate:.2%} of blocks"
    elif lru is not None and max(others) < lru.hit_rate + _TIE:
        top = lru
        alone = max(others) <= lru.hit_rate - _TIE
        text = f"{'lru is best' if alone else 'no policy beats LRU by 0.05 points'}: {lru.hit_rate:.2%} of blocks hit"
    else:
        text = f"{_listed(best)} {'are' if len(best) > 1 else 'is'} best: {top.hit_rate:.2%} of blocks hit"
    if top.optimum is not None and abs(top.optimum - top.hit_rate) < _SAME:
        text += ", which is the optimum"
    elif top.gap_closed is not None and top.gap_closed > 0 and top is not lru:
        closes = "they close" if len(best) > 1 else "it closes"
        text += f"; {closes} {top.gap_closed:.0%} of the gap between LRU and the optimum ({top.optimum:.2%})"
    elif top.optimum is not None:
        text += f", the optimum is {top.optimum:.2%}"
    return f"At {frames(size)} {text}"


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1])] * (len(names) > 1) + [names[-1]])


def _by_capacity(rows: Sequence[Row]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = {}
    for row in rows:
        found.setdefault(row.capacity, []).append(row)
    return found
