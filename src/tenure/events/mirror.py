"""What a manager holds, by digest and medium, and how that changes: its log of events turned into KV events.
Called by the publisher, from one thread; it sends nothing and changes nothing in the manager."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tenure.errors import ConfigError, StaleHandleError
from tenure.events.wire import AllBlocksCleared, BlockHash, BlockRemoved, BlockStored, KVEvent
from tenure.identity import Identity
from tenure.ledger import Event, State
from tenure.manager import BlockManager
from tenure.transfers import BlockName, Content

__all__ = ["MEDIA", "Mirror"]

MEDIA = {"device": "GPU", "host": "CPU", "disk": "STORAGE", "pool": "SHARED"}
"""The medium of each tier, by the tiers' usual names."""
_CAME = frozenset({"seal", "store", "swap_in", "restore"})
_WENT = frozenset({"swap_out", "evict", "lose"})
_MOST = 256
"""Blocks of one event, at most."""


class Mirror:
    """media: the medium of each tier by name, beside MEDIA; tiers may share one.

    Raises ConfigError for a tier whose medium is not said, or a manager that keeps no events.
    """

    def __init__(self, kv: BlockManager, media: Mapping[str, str] | None = None) -> None:
        named = MEDIA | dict(media or {})
        unknown = [tier for tier in kv.tiers if tier not in named]
        if unknown:
            raise ConfigError(f"which medium is tier {unknown[0]!r}? Say so: media={{{unknown[0]!r}: 'CPU'}}")
        if not kv.kept_events:
            raise ConfigError("a manager with events=0 keeps none: give it a log, say events=65536")
        self._kv = kv
        self._media = tuple(dict.fromkeys(named[tier] for tier in kv.tiers))
        self._medium = [1 << self._media.index(named[tier]) for tier in kv.tiers]  # by tier
        self._since = -1  # the next event of the log; -1: the log is of no use, look at everything
        self._hidden = 0
        self._tiers: dict[BlockName, int] = {}
        self._digests: dict[BlockName, bytes] = {}
        self._lives: dict[bytes, tuple[BlockName, ...]] = {}  # usually one; more where a namespace was invalidated and came back
        self._said: dict[bytes, int] = {}  # what the events until now tell: a bit for each medium
        self._doubted: set[bytes] = set()  # told of, but left out of a snapshot: told again if another life of it is there
        self.overruns = 0

    def __len__(self) -> int:
        """How many blocks have been told of."""
        return len(self._said)

    def distrust(self) -> None:
        """The next step looks at everything: after a step that failed."""
        self._since = -1

    def step(self) -> list[KVEvent]:
        """What has changed since the last step, net: what came, parents first, then what went."""
        contents: dict[BlockName, Content] = {}
        changed: dict[bytes, None] = dict.fromkeys(self._doubted)
        for name in self._look(changed):
            digest = self._digests.get(name) or self._learn(name, contents)
            if digest is not None:
                changed[digest] = None
        stored: list[tuple[bytes, int]] = []
        removed: list[tuple[bytes, int]] = []
        said: dict[bytes, int] = {}
        for digest in changed:
            before, now = self._said.get(digest, 0), self._held(digest)
            said[digest] = now
            if new := now if digest in self._doubted else now & ~before:
                stored.append((digest, new))
            if before & ~now:
                removed.append((digest, before & ~now))
        came, untold = self._stored(stored, contents)
        for digest in untold:  # gone by now: the log will say so
            said[digest] = self._said.get(digest, 0) & said[digest]
        self._doubted = set(untold)
        went = self._removed(removed)
        for digest, now in said.items():
            if now:
                self._said[digest] = now
            else:
                self._said.pop(digest, None)
        return [AllBlocksCleared()] if removed and not self._said else [*came, *went]

    def snapshot(self) -> list[KVEvent]:
        """All that has been told and is still there, parents first. What is gone by now is left out, and whoever has this and all
        later steps has the truth: the next step removes it, or tells of it again where it has come back."""
        events, untold = self._stored(list(self._said.items()), {})
        self._doubted.update(untold)
        return events

    # -- inside

    def _look(self, changed: dict[bytes, None]) -> Iterable[BlockName]:
        """Brings the books up to date: gives the blocks whose tiers changed; the digests of those that went are put into
        `changed`."""
        if self._since >= 0 and self._kv.hidden() == self._hidden:
            events = self._kv.events(self._since)
            if not events:
                return ()
            if events[0].seq == self._since:
                self._since = events[-1].seq + 1
                return self._follow(events, changed)
            self.overruns += 1
        now = self._kv.inventory()
        self._since, self._hidden = now.events, now.hidden
        for name in [name for name in self._tiers if name not in now.tiers]:
            self._forget(name, changed)
        changed |= dict.fromkeys(self._said)
        self._tiers = now.tiers
        return list(now.tiers)

    def _follow(self, events: list[Event], changed: dict[bytes, None]) -> Iterable[BlockName]:
        touched: dict[BlockName, None] = {}
        for event in events:
            name = BlockName(event.block, event.generation)
            if event.what in _CAME:
                self._tiers[name] = self._tiers.get(name, 0) | 1 << self._kv.tiers.index(event.tier)
            elif event.state is State.FREE:
                self._forget(name, changed)
                touched.pop(name, None)
                continue
            elif event.what in _WENT and name in self._tiers:
                self._tiers[name] &= ~(1 << self._kv.tiers.index(event.tier))
            else:
                continue
            touched[name] = None
        return touched

    def _forget(self, name: BlockName, changed: dict[bytes, None]) -> None:
        self._tiers.pop(name, None)
        digest = self._digests.pop(name, None)
        if digest is None:
            return
        changed[digest] = None
        lives = tuple(life for life in self._lives[digest] if life != name)
        if lives:
            self._lives[digest] = lives
        else:
            del self._lives[digest]

    def _learn(self, name: BlockName, contents: dict[BlockName, Content]) -> bytes | None:
        """The digest of a block that is new here; None when it is gone by now, or nobody may hit it."""
        try:
            content = contents[name] = self._kv.content(name)
        except StaleHandleError:
            return None
        parent = b"" if content.parent is None else self._digests.get(content.parent)
        if parent is None:
            return None  # its parent is gone by now, and so is it
        digest = self._digests[name] = content.who.link(parent, content.extra_key, _plain(content.tokens))
        self._lives[digest] = (*self._lives.get(digest, ()), name)
        return digest

    def _held(self, digest: bytes) -> int:
        media = 0
        for name in self._lives.get(digest, ()):
            for tier, bit in enumerate(self._medium):
                if self._tiers[name] >> tier & 1:
                    media |= bit
        return media

    def _stored(self, stored: list[tuple[bytes, int]], contents: dict[BlockName, Content]) -> tuple[list[KVEvent], list[bytes]]:
        """Events for these, with the media in which each is new, parents first; and those whose content is gone."""
        told: list[tuple[int, bytes, int, Content]] = []
        untold: list[bytes] = []
        for digest, media in stored:
            content = self._content(digest, contents)
            if content is None:
                untold.append(digest)
            else:
                told.append((content.depth, digest, media, content))
        told.sort(key=lambda entry: entry[0])
        runs: dict[tuple[str, bytes], tuple[BlockStored, list[tuple[Any, ...] | None]]] = {}  # by medium and last block
        events: list[KVEvent] = []
        for _, digest, media, content in told:
            parent = None if content.parent is None else self._digests[content.parent]
            for bit, medium in enumerate(self._media):
                if not media >> bit & 1:
                    continue
                run = runs.pop((medium, parent), None) if parent is not None else None
                if run is None or len(run[1]) == _MOST:
                    extra: list[tuple[Any, ...] | None] = []
                    lora = _adapter(content.who)
                    run = BlockStored([], parent, [], self._kv.block_size, None, medium, lora, extra), extra
                    events.append(run[0])
                run[0].block_hashes.append(digest)
                run[0].token_ids += content.tokens.tolist()
                run[1].append(_extra(content))
                runs[medium, digest] = run
        return events, untold

    def _content(self, digest: bytes, contents: dict[BlockName, Content]) -> Content | None:
        for name in self._lives.get(digest, ()):
            try:
                content = contents.get(name) or self._kv.content(name)
            except StaleHandleError:
                continue
            if content.parent is None or content.parent in self._digests:
                return content
        return None

    def _removed(self, removed: list[tuple[bytes, int]]) -> list[KVEvent]:
        events: list[KVEvent] = []
        for bit, medium in enumerate(self._media):
            hashes: list[BlockHash] = [digest for digest, media in removed if media >> bit & 1]
            events += [BlockRemoved(hashes[at : at + _MOST], medium) for at in range(0, len(hashes), _MOST)]
        return events


def _adapter(who: Identity) -> str | None:
    return (who.adapter.hex() if isinstance(who.adapter, bytes) else who.adapter) or None


def _extra(content: Content) -> tuple[Any, ...] | None:
    """As vLLM has it: the adapter, what else belongs to the block, and with the first block the salt: ours is the namespace."""
    lora = _adapter(content.who)
    parts = [part for part in (lora, content.extra_key) if part]
    return (*parts, *((content.who.namespace.hex(),) if content.depth == 0 else ())) or None


def _plain(tokens: Any) -> bytes:
    plain: bytes = tokens.astype("<u4").tobytes()
    return plain
