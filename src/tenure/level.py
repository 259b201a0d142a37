"""A tier below the device as a node is given it, and whether it fits there. Data for the node; it runs nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tenure.checks import positive
from tenure.errors import ConfigError
from tenure.identity import Identity
from tenure.lower import LowerTier
from tenure.staging import Device
from tenure.tiers.base import Tier

__all__ = ["Level", "fitting"]


@dataclass(frozen=True)
class Level:
    """A tier below the device, and how it is run.

    tier: where the bytes go. policy, params, write, uses: as LowerTier has them. deadline: seconds that a request, or an
    operator's call, waits for it (None: a tier that cannot hang, and is called at once). lossy_answers: what a lossy codec gives
    back may answer for the exact KV; without it only namespaces whose `quantisation` is the codec's name are kept there.
    failures: how many in a row open its breaker.
    """

    tier: Tier
    policy: str | object = "lru"
    params: Mapping[str, float] | None = None
    write: str = "through"
    uses: int = 2
    deadline: float | None = None
    lossy_answers: bool = False
    failures: int = 3

    def lower(self) -> LowerTier:
        """What the manager is told of it. Raises ConfigError."""
        return LowerTier(self.tier.name, self.tier.frames, self.policy, self.params, self.write, self.uses)

    def may_hold(self, who: Identity) -> bool:
        """Whether what it gives back may answer for KV of this identity."""
        return self.tier.codec.lossless or self.lossy_answers or who.quantisation == self.tier.codec.name


def fitting(levels: Iterable[Level], device: Device, block_size: int) -> dict[str, Level]:
    """The levels by name. Raises ConfigError for what does not fit to the device, or to each other."""
    levels = list(levels)
    for level in levels:
        if not isinstance(level, Level) or not isinstance(level.tier, Tier):
            raise ConfigError(f"a level is {level!r}: a Level with a Tier is needed")
        _fits(level, device, block_size)
    named = {level.tier.name: level for level in levels}
    if len(named) != len(levels):
        raise ConfigError(f"two tiers have one name: {', '.join(level.tier.name for level in levels)}; give each its own")
    return named


def _fits(level: Level, device: Device, block_size: int) -> None:
    tier = level.tier
    if tier.layout.block_size != block_size:
        raise ConfigError(f"tier {tier.name!r} holds blocks of {tier.layout.block_size} tokens, the node has {block_size}")
    if tier.block_bytes != device.block_bytes:
        raise ConfigError(
            f"a block has {tier.block_bytes} bytes in tier {tier.name!r} ({tier.layout}) and {device.block_bytes} on the device",
            tier=tier.block_bytes,
            device=device.block_bytes,
        )
    if level.deadline is not None:
        positive("deadline", level.deadline)
