"""Hugging Face transformers on Tenure: a Cache whose KV comes from, and goes to, blocks that a BlockManager runs.
Called by whoever serves a transformers model; it never evicts, moves bytes between tiers or changes the model's outputs."""

from __future__ import annotations

from typing import Any

import torch

from tenure.checks import integer
from tenure.engines.batch import Batch
from tenure.engines.build import node_for
from tenure.engines.cache import TenureCache, announce
from tenure.engines.rows import Row, admit, left_padding
from tenure.engines.support import identity_for, layout_of, refuse_now, refuse_unsupported
from tenure.engines.working import Working
from tenure.errors import ConfigError
from tenure.identity import Identity
from tenure.tiers.device import DeviceArena

__all__ = ["Engine", "TenureCache", "layout_of", "node_for"]


class Engine:
    """Runs a model on the blocks of a manager and the frames of an arena.

    model: a decoder of transformers, with full or sliding-window attention. kv: a Node, whose device is the arena, or a
    BlockManager and an arena for its frames. who: model, weights and tenant; layout and dtype are filled in.

    Raises ConfigError (a model that cannot be served exactly, an arena of another layout) or IdentityError.
    """

    def __init__(self, model: Any, kv: Any, arena: DeviceArena | None = None, *, who: Identity) -> None:
        refuse_unsupported(model)
        device = getattr(kv, "device", None)  # a Node's
        arena = device if arena is None else arena
        if not isinstance(arena, DeviceArena):
            raise ConfigError(f"the arena is {arena!r}: give a Node on a DeviceArena, or a manager and a DeviceArena")
        if device is not None and device is not arena:
            raise ConfigError("the arena is not the node's device: hits would be read where nobody put them; leave it out")
        for part in ("frames", "block_size"):
            if getattr(kv, part, getattr(arena, part)) != getattr(arena, part):
                raise ConfigError(f"the manager has {part}={getattr(kv, part)}, the arena {part}={getattr(arena, part)}")
        self.model = model
        self.kv = kv
        self.arena = arena
        self.who = identity_for(model, arena, who)
        body = model.base_model
        if announce not in body._forward_pre_hooks.values():  # one for all engines of this model
            body.register_forward_pre_hook(announce, with_kwargs=True)

    def cache(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        *,
        tenant: str | list[str] | None = None,
        session: str | list[str] | None = None,
        strict: bool = True,
        room: int = 256,
        ends: frozenset[int] = frozenset(),
        **settings: Any,
    ) -> TenureCache:
        """A cache for these prompts [rows, columns], left-padded, that already has what was hit of them.

        Use it in a `with` block, as the `cache` of generate() or of forward calls that are fed the columns from
        `get_seq_length()` on. tenant, session: one for all rows or one each. strict: a row for which no frames can be had
        raises CapacityError; else it goes on without reuse (`refused` says why). room: columns to make room for at first.
        ends: a row of several that has generated one of these is done; what follows is padding, and not kept. settings: of
        `BlockManager.sequence`.

        Raises TokenError, CapacityError, ConfigError or IdentityError, and holds nothing then.
        """
        refuse_now(self.model, self.who)
        integer("room", room, 0, 1 << 31)
        pads = left_padding(input_ids, attention_mask)
        tenants, sessions = _each("tenant", tenant, len(pads)), _each("session", session, len(pads))
        rows: list[Row] = []
        try:
            for ids, pad, name, turn in zip(input_ids.tolist(), pads, tenants, sessions, strict=True):
                who = self.who if name is None else self.who.with_(tenant=name)
                extra = settings if turn is None else settings | {"session": turn}
                rows.append(admit(self.kv, self.arena, ids[pad:], pad, who, strict, extra))
            width = input_ids.shape[1]
            done = min(width - 1, *(row.pad + row.hit for row in rows))  # something must be computed, or there are no logits
            memory = Working(self.arena, len(rows), width + room)
            for place, row in enumerate(rows):
                row.load(self.arena, memory.row(place), done)
        except BaseException:
            for row in rows:
                row.end(failed=True)
            raise
        return TenureCache(Batch(self.arena, rows, memory, done, ends), self.model.base_model)

    def generate(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        *,
        tenant: str | list[str] | None = None,
        session: str | list[str] | None = None,
        strict: bool = False,
        settings: dict[str, Any] | None = None,
        **generation: Any,
    ) -> Any:
        """`model.generate` with reuse: the same result, computed from what is cached. `generation` goes to it as it is.

        Afterwards the prompts and what was generated can be hit, but for the last token, which has no KV. tenant, session,
        strict and settings are those of `cache`.
        """
        taken = {"cache", "past_key_values", "inputs"} & set(generation)
        if taken or generation.get("use_cache") is False:
            raise ConfigError(f"generate() brings the cache itself: leave out {', '.join(sorted(taken)) or 'use_cache=False'}")
        made = self.cache(
            input_ids,
            attention_mask,
            tenant=tenant,
            session=session,
            strict=strict,
            room=generation.get("max_new_tokens") or 256,
            ends=self._ends(generation),
            **(settings or {}),
        )
        with made as cache:
            return self.model.generate(input_ids, attention_mask=attention_mask, cache=cache, **generation)

    def _ends(self, generation: dict[str, Any]) -> frozenset[int]:
        """The tokens that end a text in this call of generate()."""
        configs = (generation.get("generation_config"), self.model.generation_config)
        given = (generation.get("eos_token_id"), *(getattr(config, "eos_token_id", None) for config in configs))
        found = next((ids for ids in given if ids is not None), ())
        return frozenset([found] if isinstance(found, int) else found)


def _each(name: str, value: str | list[str] | None, rows: int) -> list[str | None]:
    if value is None or isinstance(value, str):
        return [value] * rows
    if len(value) != rows:
        raise ConfigError(f"{len(value)} values of {name} are given for {rows} prompts: one, or one each")
    return list(value)
