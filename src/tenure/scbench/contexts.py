"""The contexts of one model, run once however many methods and queries read them: their KV lies in blocks of a BlockManager.
Called by the runner; what a method dropped, rounded or computed in another way never goes into a block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from tenure.checks import integer
from tenure.errors import CapacityError
from tenure.identity import Identity
from tenure.manager import BlockManager
from tenure.scbench.attend import Pass, run
from tenure.scbench.kv import KV, Context, Queries
from tenure.scbench.methods.base import ALL, Method
from tenure.scbench.reading import prefill, settle
from tenure.scbench.timing import now
from tenure.sequence import Sequence as Held

if TYPE_CHECKING:
    from tenure.scbench.model import Subject

__all__ = ["Contexts"]


class Contexts:
    """Runs contexts with full attention and hands them to methods. The whole blocks of what is shared (keys, values and queries)
    are kept for up to `tokens` tokens, and hit by whatever begins with them.

    asked, encoded: tokens that were wanted, and those that were run. seconds: what running took, not what finding did. A context
    always runs in two passes, its shared whole blocks and the rest, so that a hit of them changes no bit. Raises ConfigError.
    """

    def __init__(self, subject: Subject, block_size: int = 16, tokens: int = 4096) -> None:
        self.subject = subject
        self.block_size = integer("block_size", block_size, 1, 65535)
        self.asked = self.encoded = 0
        self.seconds = 0.0
        frames = -(-integer("tokens", tokens, 1, 1 << 31) // block_size)
        self.blocks = BlockManager(frames, block_size)
        self._who = Identity(model=subject.name, weights=subject.digest, kv_dtype=str(subject.model.dtype))
        self._frames: torch.Tensor | None = None
        self._like: Queries | None = None
        self._last: tuple[tuple[int, ...], int, Context] | None = None

    def of(self, ids: Sequence[int], method: Method, budget: float, shared: int | None = None) -> Context:
        """A context as this method leaves it. shared: how many leading tokens others will want too (None: all). What a method
        computes in its own way is its own alone."""
        self.asked += len(ids)
        if method.attention(len(ids), budget) != "full":
            began = now(self.subject.model)
            context = prefill(self.subject.model, ids, method, budget, self.block_size)
            self.seconds += now(self.subject.model) - began - context.finding
            self.encoded += len(ids) if context.recomputed is None else context.recomputed
            return context
        return settle(self._dense(tuple(ids), len(ids) if shared is None else shared), method, budget)

    def forget(self) -> None:
        """Forgets what methods computed of the last context: whoever times one method asks for it."""
        if self._last is not None:
            ids, cut, context = self._last
            self._last = ids, cut, replace(context, known={})

    def _dense(self, ids: tuple[int, ...], shared: int) -> Context:
        cut = min(shared, len(ids)) // self.block_size * self.block_size
        if self._last is None or self._last[:2] != (ids, cut):
            began = now(self.subject.model)
            self._last = ids, cut, self._run(ids, cut)
            self.seconds += now(self.subject.model) - began
        return self._last[2]

    def _run(self, ids: tuple[int, ...], cut: int) -> Context:
        found = self._whole_blocks(ids[:cut]) if cut else None
        if found is not None and cut == len(ids):
            return found
        before = None if found is None else found.kv
        return _joined(found, self._pass(ids[cut:], before))

    def _whole_blocks(self, ids: tuple[int, ...]) -> Context:
        """Of tokens that fill blocks: what is cached of them is read, the rest run and kept."""
        try:
            with self.blocks.sequence(ids, self._who) as held:
                found = self._read(held)
                if held.hit_tokens == len(ids):
                    assert found is not None
                    return found
                before = None if found is None else found.kv
                whole = _joined(found, self._pass(ids[held.hit_tokens :], before))
                self._write(held, whole)
                held.seal()
                return whole
        except CapacityError:  # longer than all that is kept: it goes without
            return _joined(None, self._pass(ids, None))

    def _pass(self, ids: tuple[int, ...], before: KV | None) -> Pass:
        self.encoded += len(ids)
        return run(self.subject.model, ids, before, observe=ALL, block_size=self.block_size)

    def _read(self, held: Held) -> Context | None:
        """The hit blocks of a sequence, joined."""
        if not held.hit_tokens:
            return None
        memory, (keys, values, queries) = self._memory(), self._rows()
        table = torch.from_numpy(held.block_table[: held.hit_tokens // self.block_size].astype("int64"))
        whole = memory[table].permute(1, 2, 0, 3, 4).flatten(2, 3).to(self.subject.model.device)
        layers = range(whole.shape[0])
        kv = KV.of([whole[at, keys] for at in layers], [whole[at, values] for at in layers], self.block_size)
        like = self._like
        assert like is not None  # made by the pass that filled the blocks
        return Context(kv, replace(like, vectors=tuple(whole[at, queries] for at in layers), first=0))

    def _write(self, held: Held, context: Context) -> None:
        """Puts the blocks of a sequence that were not hit where its table says."""
        memory, queries = self._memory(), context.observed()
        self._like = replace(queries, vectors=())  # what all queries have in common
        first = held.hit_tokens
        for layer, parts in enumerate(zip(context.kv.keys, context.kv.values, queries.vectors, strict=True)):
            rows = torch.cat(parts)[:, first:].unflatten(1, (-1, self.block_size)).transpose(0, 1)
            table = torch.from_numpy(held.block_table[first // self.block_size :].astype("int64"))
            memory[table, layer] = rows.to(memory.device)

    def _rows(self) -> tuple[slice, slice, slice]:
        """Which rows of a frame are keys, values and queries."""
        kv = self.subject.kv_heads
        return slice(0, kv), slice(kv, 2 * kv), slice(2 * kv, 2 * kv + self.subject.heads)

    def _memory(self) -> torch.Tensor:
        """[frames, layers, rows, block_size, head_size], in host memory, taken when it is first needed."""
        if self._frames is None:
            one = self.subject
            shape = (self.blocks.frames, one.layers, 2 * one.kv_heads + one.heads, self.block_size, one.head_size)
            self._frames = torch.empty(shape, dtype=one.model.dtype)
        return self._frames


def _joined(before: Context | None, done: Pass) -> Context:
    if before is None:
        return Context(done.kv, done.queries, done.logits)
    queries = done.queries
    if queries is not None:
        queries = before.observed().extended(queries, ALL)
    return Context(before.kv.extended(done.kv), queries, done.logits)
