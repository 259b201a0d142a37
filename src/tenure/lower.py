"""What the manager is told of a tier below the device: how many frames, which policy, when blocks are written to it.
Given to BlockManager by whoever owns the bytes; it knows none itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tenure.checks import integer
from tenure.errors import ConfigError

__all__ = ["WRITE_MODES", "LowerTier"]

WRITE_MODES = ("through", "selective", "back")


@dataclass(frozen=True, slots=True)
class LowerTier:
    """A tier below the device, `frames` blocks large.

    write: when a sealed block is written to it: "through" (soon after it seals), "selective" (once `uses` requests have used
    it), or "back" (before the tier above evicts it). policy, params: as the manager's, for what leaves this tier.

    Raises ConfigError for what does not fit.
    """

    name: str
    frames: int
    policy: str | object = "lru"
    params: Mapping[str, float] | None = None
    write: str = "through"
    uses: int = 2

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name or self.name == "device":
            raise ConfigError(f"a lower tier's name is {self.name!r}: a non-empty string other than 'device' is needed")
        object.__setattr__(self, "frames", integer(f"tier {self.name!r}: frames", self.frames, 1, (1 << 31) - 1))
        object.__setattr__(self, "uses", integer(f"tier {self.name!r}: uses", self.uses, 1, (1 << 31) - 1))
        if self.write not in WRITE_MODES:
            raise ConfigError(f"tier {self.name!r}: write is {self.write!r}: one of {', '.join(WRITE_MODES)} is needed")
