"""What names the blocks of one lower tier: their records and digest chains, and the namespaces that a lasting tier knows.
Made by its lane, used by the mover; it reads and writes no blocks."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np

from tenure.errors import RecordError, StaleHandleError, StoreError
from tenure.identity import Identity
from tenure.tiers.layout import BlockLayout
from tenure.tiers.record import NO_PARENT, Record
from tenure.transfers import BlockName, Content

__all__ = ["Lasting", "Names"]

_LOG = logging.getLogger("tenure")
_LEAST = 1024


class Lasting(Protocol):
    """A tier that outlives its process, and has a table of namespaces."""

    name: str

    def put_namespace(self, namespace: bytes, value: bytes) -> None: ...  # noqa: D102
    def drop_namespace(self, namespace: bytes) -> bool: ...  # noqa: D102


class Names:
    """content_of: what is in a block, as the manager says. wall: a time of the manager's clock, on the wall's. lasting: None for
    a tier without a table of namespaces. shared: other nodes read what is in it."""

    def __init__(
        self,
        layout: BlockLayout,
        lasting: Lasting | None,
        content_of: Callable[[BlockName], Content],
        wall: Callable[[float], float],
        *,
        shared: bool = False,
    ) -> None:
        self._layout = layout
        self._lasting = lasting
        self._content_of = content_of
        self._wall = wall
        self._shared = shared
        self.gate = threading.Lock()  # what is invalidated is to be dropped, or neither: held for a moment, and for no I/O
        self.digests: dict[BlockName, bytes] = {}  # of the blocks of a tier that is read by others, or later
        self.hopeless: set[BlockName] = set()  # blocks that this tier will never take
        self._forget_at = _LEAST
        self._known: set[bytes] = set()
        self._table = threading.Lock()  # one change of the table of namespaces at a time
        self._undropped: frozenset[bytes] = frozenset()

    def record(self, name: BlockName, content: Content | None = None) -> Record:
        """The record of a block. In a tier that ends with the process its name is proof enough; what is read by others, or later,
        has digests. Raises StaleHandleError when it or a block before it is gone, RecordError when this tier cannot keep it."""
        content = content or self._content_of(name)
        parent, extra = NO_PARENT, b""
        if self._lasting is None and not self._shared:
            digest = np.array(name, dtype="<u4").tobytes().ljust(32, b"\0")
        else:
            if content.parent is not None:
                parent = self._digest(content.parent)
            digest, extra = self._digest(name), content.extra_key
        expires = self._wall(content.expires)
        return Record(content.who.namespace, digest, parent, content.depth, _plain(content.tokens), self._layout, extra, expires)

    def _digest(self, name: BlockName) -> bytes:
        """The block's link of its digest chain; the links before it are worked out where they are not known."""
        missing: list[tuple[BlockName, Content]] = []
        at: BlockName | None = name
        link: bytes | None = b""
        while at is not None and (link := self.digests.get(at)) is None:
            missing.append((at, self._content_of(at)))
            at = missing[-1][1].parent
        link = link or b""
        for block, what in reversed(missing):
            link = self.digests[block] = what.who.link(link, what.extra_key, _plain(what.tokens))
        return link

    def forget(self) -> None:
        """What is kept of blocks that are gone is thrown out before it piles up."""
        if len(self.digests) + len(self.hopeless) < self._forget_at:
            return
        for name in [*self.digests, *self.hopeless]:
            try:
                self._content_of(name)
            except StaleHandleError:
                self.digests.pop(name, None)
                self.hopeless.discard(name)
        self._forget_at = _LEAST + 2 * (len(self.digests) + len(self.hopeless))

    def make_known(self, who: Identity) -> None:
        """Before blocks of a namespace are written. Raises StoreError where it cannot be written down, or its blocks of before an
        invalidation cannot be dropped."""
        if self._lasting is None:
            return
        with self._table:
            if self._undropped:
                self._drop_now()
            if who.namespace in self._undropped:
                raise StoreError("its blocks of before have yet to be dropped")
            if who.namespace not in self._known:
                self._lasting.put_namespace(who.namespace, who.dump())
                self._known.add(who.namespace)

    def record_to_write(self, name: BlockName) -> Record:
        """The record of a block whose namespace has been made known: not of one that has been invalidated since and came back,
        since what is written for it before its past is dropped goes with that. Raises as `record`, and StoreError."""
        with self.gate:
            content = self._content_of(name)
            if content.who.namespace in self._undropped:
                raise StoreError("its blocks of before have yet to be dropped")
        if self._shared and not math.isinf(content.expires):
            raise RecordError("what must be gone by some time is not shared: nodes have no clock in common")
        return self.record(name, content)

    @property
    def undropped(self) -> int:
        """Namespaces that are still to be dropped."""
        return len(self._undropped)

    def drop(self, namespaces: Iterable[bytes]) -> None:
        """These are to be dropped, before anything else is written for them; `drop_now` does it. With `gate` held since before
        they were invalidated."""
        if self._lasting is not None:
            self._undropped |= set(namespaces)

    def drop_now(self) -> None:
        """Nothing of the namespaces to be dropped counts any more, nor after a restart, but for those whose dropping cannot be
        written down: it is tried again."""
        with self._table:
            self._drop_now()

    def _drop_now(self) -> None:
        if self._lasting is None:
            return
        dropped = set()
        for namespace in self._undropped:
            self._known.discard(namespace)
            try:
                self._lasting.drop_namespace(namespace)
            except StoreError as error:
                _LOG.warning("tier %s: a namespace could not be dropped, and is tried again: %s", self._lasting.name, error)
            else:
                dropped.add(namespace)
        with self.gate:
            self._undropped -= dropped


def _plain(tokens: Any) -> bytes:
    return np.ascontiguousarray(tokens, dtype="<u4").tobytes()
