"""From replayed rows to sentences an operator can act on: what each policy gains, what more frames would bring, and the
frames a target needs. The command line calls it. It replays nothing, and says when a number is interpolated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tenure.errors import ConfigError
from tenure.lab.replay import BASELINE, Row
from tenure.lab.settings import share


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


def advise(rows: Sequence[Row], ceiling: float) -> list[str]:
    """A few lines: the best policy at each capacity against LRU and the optimum, and what the next capacity adds."""
    if ceiling <= 0:
        return ["No block is ever asked for twice: no size and no policy gives a hit."]
    lines: list[str] = []
    by_capacity: dict[int, list[Row]] = {}
    for row in rows:
        by_capacity.setdefault(row.capacity, []).append(row)
    sizes = sorted(by_capacity)
    best = {size: max(by_capacity[size], key=lambda row: row.hit_rate) for size in sizes}
    for size, following in zip(sizes, [*sizes[1:], None], strict=True):
        row = best[size]
        text = f"At {size:,} frames {row.policy} is best: {row.hit_rate:.2%} of blocks hit"
        if row.gap_closed is None:
            text += ", which is the optimum" if row.optimum is not None else ""
        elif row.policy == BASELINE or row.gap_closed <= 0:
            text += f", the optimum is {row.optimum:.2%}"
        else:
            text += f"; it closes {row.gap_closed:.0%} of the gap between LRU and the optimum ({row.optimum:.2%})"
        if following is not None:
            text += f"; {following:,} frames add {100 * (best[following].hit_rate - row.hit_rate):.1f} points"
        lines.append(text + ".")
    last = best[sizes[-1]]
    if last.hit_rate >= 0.99 * ceiling:
        enough = next(size for size in sizes if best[size].hit_rate >= 0.99 * ceiling)
        lines.append(f"{enough:,} frames are enough: the ceiling, with no limit to the frames, is {ceiling:.2%}.")
    else:
        lines.append(f"More frames still help: the ceiling, with no limit to them, is {ceiling:.2%}.")
    return lines
