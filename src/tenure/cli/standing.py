"""A node of the demo in sentences: what it is going to answer and has room for, and how its books stand at the end.
Called by `tenure demo`; it changes nothing but what is still to be written down."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenure.cli import show

if TYPE_CHECKING:
    from tenure.cli.serving import Prompt
    from tenure.node import Node

__all__ = ["closing", "opening"]


def opening(kv: Node, session: str, prompts: list[Prompt]) -> list[str]:
    """What there is to answer, and what room of its own the node has."""
    from tenure.cli.serving import distinct

    sessions = len({prompt.step.session for prompt in prompts})
    block = kv.device.block_bytes
    rooms = {"device": kv.frames} | {name: level.tier.frames for name, level in kv.levels.items() if name != "pool"}
    return [
        f"{session}: {len(prompts)} turns of {sessions} sessions, {sum(p.tokens for p in prompts):,} prompt tokens, "
        f"{distinct(prompts, kv.block_size):,} different blocks of {kv.block_size} tokens ({show.size(block)} each).",
        f"Room for {', '.join(f'{room:,} blocks ({show.size(room * block)}) on {name}' for name, room in rooms.items())}; "
        f"policy {kv.policy}.",
    ]


def closing(kv: Node) -> list[str]:
    """What is left when everything is written down. Raises IntegrityError when the books are wrong."""
    kv.flush()
    counts = kv.check()
    lanes = {name: kv.lane_stats(name) for name in kv.levels}
    troubles = [
        f"{name}: breaker {lane.breaker}, {lane.late} reads too late, refused {lane.refused or 'nothing'}"
        for name, lane in lanes.items()
        if lane.breaker != "closed" or lane.late or lane.refused
    ]
    refused = sum(tenant.refused for tenant in kv.stats().values())
    return [
        *troubles,
        *([f"{refused} requests found no room and went on without reuse."] if refused else []),
        f"kv.check(): every invariant holds; {counts.frames} frames = {counts.free} free + {counts.active} active + "
        f"{counts.sealed} sealed + {counts.cached} cached.",
    ]
