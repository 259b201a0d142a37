"""How many frames a policy needs for a hit rate: replays at growing capacities, then closes in. The command line calls
it. It never promises what it did not replay."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from tenure.lab import bounds
from tenure.lab.advice import Need, frames_needed
from tenure.lab.replay import Row, replay
from tenure.lab.settings import PolicyChoice, share
from tenure.lab.trace import Trace

_SMALLEST = 512  # the search begins at 1/512 of the distinct blocks
CLOSE = 1.01  # and ends when the answer is known to 1 %


def plan(
    trace: Trace,
    policy: PolicyChoice,
    hit_rate: float,
    *,
    overlap: bool = True,
    rounds: int = 8,
    watch: Callable[[Row], object] | None = None,
) -> tuple[Need, list[Row]]:
    """The fewest frames with which a replay reached `hit_rate`, and all rows replayed on the way, by capacity.

    rounds: replays spent on closing in, by interpolation and by halving in turn; the search ends early within 1 %. With
    `Need.low` frames the target was missed (`low` equals `frames` where nothing less was tried).
    Raises ConfigError when the rate is above 1 or above the trace's ceiling.
    """
    ceiling = bounds.ceiling(trace)
    share(hit_rate, "hit rate")
    if hit_rate > ceiling:
        frames_needed([], hit_rate, ceiling)
    rows: dict[int, Row] = {}

    def at(frames: int) -> Row:
        rows[frames] = replay(trace, policy.name, frames, overlap=overlap, params=policy.params)
        if watch is not None:
            watch(rows[frames])
        return rows[frames]

    frames = max(1, trace.distinct // _SMALLEST)
    while at(frames).hit_rate < hit_rate and frames < trace.distinct:
        frames = min(2 * frames, trace.distinct)
    for turn in range(rounds):
        need = frames_needed(list(rows.values()), hit_rate, ceiling)
        if not need.interpolated or need.high <= CLOSE * need.low or need.high == need.low + 1:
            break
        guess = need.frames if turn % 2 == 0 else round(math.sqrt(need.low * need.high))
        at(min(max(guess, need.low + 1), need.high - 1))
    need = frames_needed(list(rows.values()), hit_rate, ceiling)
    replayed = replace(need, frames=need.high, interpolated=False)
    return replayed, [rows[size] for size in sorted(rows)]
