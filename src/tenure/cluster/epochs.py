"""Epochs: what a request's KV is of at this moment, as all nodes of a pool see it; and how long a node may go on without asking.
Used by the node for every request; it reads and raises values in the pool, and moves no bytes."""

from __future__ import annotations

import hashlib
import math
import os
import struct
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tenure.checks import encodable, positive
from tenure.errors import IdentityError, TierError
from tenure.identity import Identity

__all__ = ["FAMILIES", "Epochs", "FamilyStore", "families_of", "family"]

FAMILIES = ("model", "weights", "adapter", "tokenizer", "quantisation", "tenant", "namespace")
"""What has an epoch of its own: every value of these identity fields, and every namespace."""
_MOST = (1 << 53) - 1
"""The largest value of a family."""
_KEPT = 20.0
"""How many times `trust` a namespace that no request names is kept up to date."""


class FamilyStore(Protocol):
    """Where the values are that all nodes share. Every call may raise TierError."""

    def read_families(self, families: Sequence[bytes]) -> list[int | None]: ...  # noqa: D102
    def ensure(self, families: Sequence[bytes]) -> list[int]: ...  # noqa: D102
    def bump(self, families: Sequence[bytes]) -> list[int]: ...  # noqa: D102
    def raise_families(self, values: Mapping[bytes, int]) -> object: ...  # noqa: D102


def family(name: str, value: str | bytes) -> bytes:
    """The key of one family. Raises IdentityError for a field that has none."""
    if name not in FAMILIES:
        raise IdentityError(f"there is no epoch of {name!r}: there is one of {', '.join(FAMILIES)}")
    if not isinstance(value, str | bytes) or (isinstance(value, str) and not encodable(value)):
        raise IdentityError(f"{name} is {value!r}: text or bytes are needed")
    raw = value.encode() if isinstance(value, str) else value
    kind = b"s" if isinstance(value, str) else b"y"
    return name.encode() + b":" + hashlib.blake2b(kind + raw, digest_size=16, person=b"tenure.family.1").hexdigest().encode()


def families_of(who: Identity) -> tuple[bytes, ...]:
    """The families that an identity belongs to, in the order of FAMILIES."""
    values = (who.model, who.weights, who.adapter, who.tokenizer, who.quantisation, who.account, who.namespace)
    return tuple(family(name, value) for name, value in zip(FAMILIES, values, strict=True))


@dataclass(slots=True)
class _Known:
    """A namespace as requests name it, and what it is at this moment."""

    who: Identity
    families: tuple[bytes, ...]
    used: float = -math.inf
    values: tuple[int, ...] | None = None  # that `proven` was made of
    proven: Identity | None = None
    unproven: Identity | None = None
    interval: int = -1  # that what is under `unproven` is of; below 0: it is not in use


@dataclass(slots=True)
class _Family:
    value: int | None = None  # the highest ever seen
    at: float = -math.inf  # when the last reading that confirmed it was begun
    heard: float = -math.inf  # when it was first heard of
    untold: int = 0  # how often it was raised here of which the pool has yet to be told


class Epochs:
    """store: where the values are. clock: seconds, never falling. trust: how long a reading is good for, s: beyond it a node that
    cannot ask takes nothing of before for proven. superseded: told of each effective identity that nobody may hit again.

    A node serves nothing of a superseded epoch later than `trust` seconds after the epoch was raised, whatever the network does;
    with `refresh` called every so many seconds, not later than that while the pool answers.
    """

    def __init__(
        self, store: FamilyStore, clock: Callable[[], float], trust: float, superseded: Callable[[Identity], object]
    ) -> None:
        self.trust = positive("trust", trust)
        self._store = store
        self._clock = clock
        self._superseded = superseded
        self._lock = threading.Lock()
        self._known: dict[bytes, _Known] = {}
        self._met: dict[bytes, Identity] = {}  # all that was ever named, as the manager charges it
        self._families: dict[bytes, _Family] = {}
        self._boot = os.urandom(8)
        self._telling = threading.Lock()

    def of(self, who: Identity) -> Identity:
        """The identity under which this one's blocks count now: with the epochs that were last read, or, when that is too long
        ago, with one of this node's own, which hits nothing that was there before. It asks nobody."""
        gone: list[Identity] = []
        with self._lock:
            effective = self._of(self._entry(who), gone)
        for old in gone:
            self._superseded(old)
        return effective

    def families(self, who: Identity) -> tuple[bytes, ...]:
        """The families whose values `saw` wants to hear for this identity."""
        with self._lock:
            return self._entry(who).families

    def age(self) -> float | None:
        """How long ago the readings were begun that this node relies on for what requests have named lately: the oldest, s; 0
        when none was named, None when something was never read."""
        with self._lock:
            wanted = {name for known in self._known.values() for name in known.families}
            age = max((self._clock() - self._families[name].at for name in wanted), default=0.0)
        return age if age < math.inf else None

    def proven(self, who: Identity) -> bool:
        """Whether its epochs were read not too long ago."""
        with self._lock:
            return self._proven(self._entry(who))

    def saw(self, families: Sequence[bytes], values: Sequence[int | None], at: float) -> bool:
        """What a reading that was begun at `at` (on the clock) found. False: a value is missing, and is to be ensured. Where the
        pool has lost what this node has heard of, nobody knows what else it has lost: that is a new epoch."""
        whole, rose = True, False
        gone: list[Identity] = []
        with self._lock:
            now = self._clock()
            for name, value in zip(families, values, strict=True):
                one = self._families.setdefault(name, _Family())
                if value is None:
                    whole = False
                    continue
                if one.value is None or value > one.value:
                    rose |= one.value is not None  # nothing is proven yet that has a value not heard of before
                    one.value, one.heard = value, now
                elif value < one.value and at > one.heard and not one.untold:
                    self._raise(one)
                    rose = True
                if value == one.value and not one.untold:
                    one.at = max(one.at, at)
            if rose:
                for known in self._known.values():
                    self._of(known, gone)
        for old in gone:
            self._superseded(old)
        return whole

    def matching(self, fields: Mapping[str, object]) -> list[Identity]:
        """The identities, as requests have ever named them, that have these field values: what nobody has asked for lately may
        still be in the pool."""
        with self._lock:
            met = list(self._met.values())
        return [who for who in met if all(getattr(who, name) == value for name, value in fields.items())]

    def meet(self, who: Identity) -> None:
        """There may be blocks of this one, though no request has named it yet."""
        with self._lock:
            self._met.setdefault(who.namespace, who.with_(tenant=who.account))

    def ask(self, families: Sequence[bytes]) -> None:
        """Tells the pool of what it has not been told of; reads these values; one that is missing is made anew, which is a new
        epoch. Raises TierError."""
        if self._telling.acquire(blocking=False):
            try:
                self._tell()
            finally:
                self._telling.release()
        at = self._clock()
        if not self.saw(families, self._store.read_families(families), at):
            at = self._clock()
            self.saw(families, self._store.ensure(families), at)

    def _tell(self) -> None:
        with self._lock:
            raised = {name: (one.value or 0, one.untold) for name, one in self._families.items() if one.untold}
        if not raised:
            return
        at = self._clock()
        self._store.raise_families({name: value for name, (value, _) in raised.items()})  # its clock may be behind
        values = self._store.bump(list(raised))
        self.saw(list(raised), values, at)
        with self._lock:
            for (name, (_, times)), value in zip(raised.items(), values, strict=True):
                one = self._families[name]
                one.untold -= times
                if not one.untold and one.value == value:
                    one.at = max(one.at, at)

    def refresh(self) -> bool:
        """Reads again what requests have named lately; forgets what they have not for long. False: the pool did not answer."""
        with self._lock:
            now = self._clock()
            for namespace in [n for n, known in self._known.items() if now - known.used > _KEPT * self.trust]:
                del self._known[namespace]
            wanted = list(dict.fromkeys(name for known in self._known.values() for name in known.families))
            untold = [name for name, one in self._families.items() if one.untold]
            for name in set(self._families) - set(wanted) - set(untold):
                del self._families[name]
        if not wanted and not untold:
            return True
        try:
            self.ask(wanted)
        except TierError:
            return False
        return True

    def raise_here(self, families: Iterable[bytes]) -> None:
        """New epochs that the pool could not be told of: they count here at once, and the next `ask` that reaches it tells it."""
        gone: list[Identity] = []
        with self._lock:
            for name in families:
                self._raise(self._families.setdefault(name, _Family()))
            for known in self._known.values():
                self._of(known, gone)
        for old in gone:
            self._superseded(old)

    @property
    def untold(self) -> int:
        """Epochs that the pool has not been told of yet."""
        with self._lock:
            return sum(one.untold > 0 for one in self._families.values())

    # -- inside, with the lock held

    def _raise(self, one: _Family) -> None:
        """Nothing of before is proven, nor anything later until the pool has been told."""
        raised = (one.value or 0) + 1
        one.value, one.at = raised if raised <= _MOST else None, -math.inf  # beyond it the pool's own counts, whatever it is
        one.untold += 1

    def _entry(self, who: Identity) -> _Known:
        try:
            known = self._known.get(who.namespace)
        except AttributeError:
            raise IdentityError(f"who is {who!r}: an Identity is needed") from None
        if known is None:
            known = self._known[who.namespace] = _Known(who, families_of(who))
            self._met.setdefault(who.namespace, who.with_(tenant=who.account))
            for name in known.families:
                self._families.setdefault(name, _Family())
        known.used = self._clock()
        return known

    def _proven(self, known: _Known) -> bool:
        return self._clock() - min(self._families[name].at for name in known.families) <= self.trust

    def _of(self, known: _Known, gone: list[Identity]) -> Identity:
        values = tuple(self._families[name].value or 0 for name in known.families)
        if known.values is not None and values != known.values and known.proven is not None:
            gone.append(known.proven)
            known.proven = known.values = None
        if self._proven(known):
            if known.interval >= 0:
                gone.append(self._unproven(known))
                known.interval = -1
            if known.proven is None:
                known.values = values
                known.proven = _at_epoch(known.who, struct.pack(f"<{len(values)}q", *values))
            return known.proven
        interval = int(self._clock() // self.trust)
        if interval != known.interval:
            if known.interval >= 0:
                gone.append(self._unproven(known))  # what was computed in the interval before counts no more
            known.interval = interval
        return self._unproven(known)

    def _unproven(self, known: _Known) -> Identity:
        """One for all outages, or every interval of them would leave a namespace behind."""
        if known.unproven is None:
            known.unproven = _at_epoch(known.who, self._boot)
        return known.unproven


def _at_epoch(who: Identity, values: bytes) -> Identity:
    """The identity with an epoch made of its own and of these values: another one for any other values."""
    digest = hashlib.blake2b(struct.pack("<q", who.epoch) + values, digest_size=8, person=b"tenure.epochs.1").digest()
    return who.with_(epoch=int.from_bytes(digest, "little") >> 1)
