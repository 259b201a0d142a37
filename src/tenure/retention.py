"""How long a request's blocks are to stay: priorities, protection, expiry, pins, anchors. Plain data, checked when it is made.
The manager hands it to the core, which keeps the leases; nothing here changes a pool."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from typing import Any

from tenure import _core
from tenure.checks import fraction, integer, positive, seconds
from tenure.errors import ConfigError

__all__ = ["DEFAULT_PRIORITY", "PrefillCost", "PriorityRange", "Quota", "Retention"]

DEFAULT_PRIORITY = 35
"""TensorRT-LLM's default retention priority, on its scale from 0 (goes first) to 100."""


_MOST_TOKENS = 1 << 62


@dataclass(frozen=True, slots=True)
class PriorityRange:
    """A priority for the blocks whose first token lies in [start, end) of the prompt, for `duration` s from release."""

    start: int = 0
    end: int | None = None
    priority: int = DEFAULT_PRIORITY
    duration: float | None = None

    def __post_init__(self) -> None:
        integer("priority", self.priority, 0, 100)
        integer("start", self.start, 0, _MOST_TOKENS)
        if self.end is not None:
            integer("end", self.end, 0, _MOST_TOKENS)
        if self.end is not None and self.end <= self.start:
            raise ConfigError(f"a priority range runs from {self.start} to {self.end}: it must hold at least one token")
        if self.duration is not None:
            seconds("duration", self.duration)


@dataclass(frozen=True, slots=True)
class Retention:
    """TensorRT-LLM's retention of one request: ranges over the prompt, and a priority for what is decoded.

    The priority of the request that computes a block is the block's base. A later request that hits the block may raise it: the
    raise ends with its holder, when the request releases the block, or `duration` s after that.
    """

    ranges: SequenceOf[PriorityRange] = field(default_factory=tuple)
    decode_priority: int | None = None
    decode_duration: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.ranges, str | bytes) or not all(isinstance(r, PriorityRange) for r in _items(self.ranges)):
            raise ConfigError(f"ranges is {self.ranges!r}: a sequence of PriorityRange is needed")
        if self.decode_priority is not None:
            integer("decode_priority", self.decode_priority, 0, 100)
        if self.decode_duration is not None:
            seconds("decode_duration", self.decode_duration)

    @classmethod
    def of(cls, priority: int) -> Retention:
        """The same priority for the whole request."""
        return cls((PriorityRange(priority=priority),), decode_priority=priority)

    def fill(self, request: _core.Request) -> None:
        """Writes it into a core request."""
        for r in self.ranges:
            request.add_priority(
                r.start, _MOST_TOKENS if r.end is None else r.end, r.priority, -1.0 if r.duration is None else r.duration
            )
        if self.decode_priority is not None:
            request.decode_priority = self.decode_priority
            request.decode_duration = -1.0 if self.decode_duration is None else self.decode_duration


@dataclass(frozen=True, slots=True)
class Quota:
    """A tenant's share of the frames: `floor` nobody else can take, `cap` it cannot exceed, `weight` in what lies between, `pins`
    what it may pin. Fractions of the frames; the weight is relative to the other tenants' weights.

    Raises ConfigError when a number is out of range or floor > cap.
    """

    floor: float = 0.0
    cap: float = 1.0
    weight: float = 1.0
    pins: float = 1.0

    def __post_init__(self) -> None:
        for name in ("floor", "cap", "pins"):
            fraction(f"quota.{name}", getattr(self, name))
        positive("quota.weight", self.weight)
        if self.floor > self.cap:
            raise ConfigError(f"the floor {self.floor} is above the cap {self.cap}", floor=self.floor, cap=self.cap)


@dataclass(frozen=True, slots=True)
class PrefillCost:
    """What prefill costs, for the policies that weigh it: a token at position p takes 2·parameters FLOPs in the weights and
    4·layers·hidden·p in attention (Kaplan et al. 2020, table 1). The default is Llama-3.1-8B."""

    parameters: float = 8.03e9
    layers: int = 32
    hidden: int = 4096

    def __post_init__(self) -> None:
        for name in ("parameters", "layers", "hidden"):
            positive(f"prefill.{name}", getattr(self, name), 1e18)

    @property
    def slope(self) -> float:
        """Growth of a token's cost with its position, relative to the cost at position 0; per token."""
        return 4.0 * self.layers * self.hidden / (2.0 * self.parameters)


def _items(value: Any) -> Iterable[Any]:
    return value if isinstance(value, Iterable) else (None,)
