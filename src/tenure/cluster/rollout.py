"""One rollout: a model's old version and its new one, how far sessions have moved over, and which step may follow which.
Used by operators (`rollouts.py`) and nodes (`member.py`), who keep it in the pool; it reads and writes nothing itself."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import msgspec

from tenure.checks import fraction, integer
from tenure.cluster.epochs import family
from tenure.errors import ConfigError, IdentityError, RecordError, StateError
from tenure.identity import Identity

__all__ = ["FIELDS", "Board", "Phase", "Rollout", "Version", "checked_version"]

Version = dict[str, Any]
"""Identity fields and their values, text or bytes (Any: no decoder takes a union of the two)."""
FIELDS = ("model", "weights", "adapter", "tokenizer", "quantisation")
"""The identity fields that a version may name."""
_DIGESTS = ("weights", "adapter", "tokenizer")
_HEX = re.compile(r"[0-9a-fA-F]{32,128}")
_FORMAT = 1


class Phase(str, Enum):
    """How far a rollout is. SHIFTING may last: then it is an A/B test."""

    ANNOUNCED = "announced"
    WARMING = "warming"
    SHIFTING = "shifting"
    DRAINING = "draining"
    """nobody gets the other version any more"""
    RECLAIMING = "reclaiming"
    """its epoch is raised, and what is left of it goes"""
    DONE = "done"


_BEFORE_DRAINING = (Phase.ANNOUNCED, Phase.WARMING, Phase.SHIFTING)


@dataclass(frozen=True)
class Rollout:
    """model: as requests name it. share: the part of the sessions that get the new version. back: it is being rolled back. warm:
    prefixes that each node is to compute ahead. raised: the epoch of what is retired has been raised. begun, generation: the
    board's generation when it was announced, and when it last changed.

    Every step gives another Rollout, or raises StateError where it may not follow; a step that was taken already changes nothing.
    """

    model: str
    old: Version
    new: Version
    phase: Phase = Phase.ANNOUNCED
    share: float = 0.0
    back: bool = False
    warm: int = 0
    raised: bool = False
    begun: int = 0
    generation: int = 0

    def __post_init__(self) -> None:
        fraction("share", self.share)
        checked_version("old", self.model, self.old)
        checked_version("new", self.model, self.new)
        if set(self.old) != set(self.new) or self.old == self.new:
            raise ConfigError(
                f"old names {sorted(self.old)} and new {sorted(self.new)}: the same fields, with other values, are needed"
            )

    def version(self, session: str) -> Version:
        """What a session gets: always the same at one share, and the new version at every larger one once it has got it."""
        if not isinstance(session, str):
            raise ConfigError(f"session is {session!r}: text is needed, the same for all requests that belong together")
        digest = hashlib.blake2b(session.encode(errors="surrogatepass"), digest_size=8, key=b"%d" % self.begun).digest()
        point = (int.from_bytes(digest, "little") >> 11) / (1 << 53)  # from 0, below 1
        return self.new if point < self.share else self.old

    @property
    def retired(self) -> Version:
        """What goes, or would go."""
        return self.new if self.back else self.old

    @property
    def kept(self) -> Version:
        """What stays."""
        return self.old if self.back else self.new

    @property
    def retiring(self) -> bool:
        """Whether a node drops what it has of the retired version."""
        return self.phase in (Phase.RECLAIMING, Phase.DONE)

    def fields(self, version: Version) -> Version:
        """The identity fields by which a version's KV is found."""
        return {"model": self.model} | version

    def is_of(self, who: Identity, version: Version) -> bool:
        """Whether this KV is of that version."""
        return all(getattr(who, name) == value for name, value in self.fields(version).items())

    @property
    def family(self) -> bytes | None:
        """The epoch family that the retired version has and the kept one has not; None: there is none but the namespaces'."""
        for name in ("adapter", "weights"):
            value = self.retired.get(name)
            if value and value != self.kept.get(name):
                return family(name, value)
        return None

    # -- steps

    def to_warm(self, prefixes: int) -> Rollout:
        """Nodes are to compute so many of the old version's hottest prefixes under the new one."""
        integer("prefixes", prefixes, 1, 1 << 20)
        self._must("warm", Phase.ANNOUNCED, Phase.WARMING)
        return replace(self, phase=Phase.WARMING, warm=prefixes)

    def to_shift(self, share: float) -> Rollout:
        """This part of the sessions gets the new version."""
        share = fraction("share", share)
        self._must("shift", *_BEFORE_DRAINING)
        return replace(self, phase=Phase.SHIFTING, share=share)

    def to_drain(self) -> Rollout:
        """Every session gets the new version."""
        if self.phase is Phase.DRAINING and not self.back:
            return self
        self._must("drain", Phase.SHIFTING)
        return replace(self, phase=Phase.DRAINING, share=1.0)

    def to_reclaim(self) -> Rollout:
        """What is left of the retired version is to go."""
        if self.phase is Phase.RECLAIMING:
            return self
        self._must("reclaim", Phase.DRAINING)
        return replace(self, phase=Phase.RECLAIMING)

    def to_raised(self) -> Rollout:
        """The epoch of the retired version has been raised."""
        self._must("raise the epoch", Phase.RECLAIMING)
        return replace(self, raised=True)

    def to_done(self) -> Rollout:
        """Nothing is left of the retired version."""
        self._must("end", Phase.RECLAIMING)
        return replace(self, phase=Phase.DONE)

    def to_back(self) -> Rollout:
        """Every session gets the old version; the new one is retired."""
        if self.back and self.phase is not Phase.DONE:
            return self
        self._must("roll back", *_BEFORE_DRAINING, Phase.DRAINING, Phase.RECLAIMING)
        return replace(self, phase=Phase.DRAINING, share=0.0, back=True, raised=False)

    def _must(self, step: str, *phases: Phase) -> None:
        if self.phase not in phases:
            raise StateError(
                f"the rollout of {self.model!r} is {self.phase.value}{', going back' if self.back else ''}: it can {step} while "
                f"it is {' or '.join(phase.value for phase in phases)}",
                phase=self.phase.value,
            )


@dataclass(frozen=True)
class Board:
    """All rollouts of a pool, as they stand in its one entry. generation: more with every change, on whatever server."""

    generation: int = 0
    rollouts: dict[str, Rollout] = field(default_factory=dict)

    def __post_init__(self) -> None:
        integer("generation", self.generation, 0, (1 << 63) - 1)

    def merged(self, other: Board) -> Board:
        """Of each model what changed last, on whichever of the two: one may be of a pool that has lost something."""
        newest = dict(self.rollouts)
        for model, rollout in other.rollouts.items():
            if model not in newest or rollout.generation > newest[model].generation:
                newest[model] = rollout
        return Board(max(self.generation, other.generation), newest)

    def encode(self) -> bytes:
        """As it stands in the pool."""
        return msgspec.msgpack.encode((_FORMAT, self))

    @classmethod
    def decode(cls, data: bytes | None) -> Board:
        """None: there is none yet. Raises RecordError for what `encode` did not make."""
        if data is None:
            return cls()
        try:
            found, board = msgspec.msgpack.decode(data, type=tuple[int, msgspec.Raw])
            if found != _FORMAT:
                raise RecordError(f"the pool's rollouts are of format {found}: this reads format {_FORMAT}", found=found)
            return msgspec.msgpack.decode(board, type=cls)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise RecordError(f"what stands in the pool are no rollouts: {error}") from None


def checked_version(name: str, model: str, version: Mapping[str, Any]) -> Version:
    """A copy of a version; an empty digest is b"". Raises IdentityError for other fields than FIELDS, and for weights, adapters
    and tokenizers that are named by anything but a content digest."""
    if not isinstance(version, Mapping) or not version or set(version) - set(FIELDS):
        raise IdentityError(f"{name} is {version!r}: one or more of the fields {', '.join(FIELDS)} are needed")
    checked: Version = {field: value or b"" if field in _DIGESTS else value for field, value in version.items()}
    fields: Version = {"model": model}
    Identity(**(fields | checked))  # of the right types?
    for one in _DIGESTS:
        value = checked.get(one, b"")
        good = 16 <= len(value) <= 64 if isinstance(value, bytes) else _HEX.fullmatch(value) is not None
        if not good and (value or one == "weights") and one in checked:
            raise IdentityError(
                f"{name} names the {one} {value!r}: a content digest is needed (content_digest gives it), since a name can be "
                "given other content"
            )
    return checked
