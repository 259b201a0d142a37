"""One row of a running batch: its tokens, its sequence, and which of its blocks the arena has.
Called by the transformers cache; it never computes KV and never asks for frames beyond what its tokens need."""

from __future__ import annotations

from typing import Any

import torch

from tenure.errors import CapacityError, TokenError
from tenure.identity import Identity
from tenure.sequence import Sequence
from tenure.tiers.device import DeviceArena

__all__ = ["Row", "admit", "left_padding"]


class Row:
    """A prompt that runs. Token i of the row lies in column `pad` + i of the working memory.

    `seq` is None for a row that goes on without reuse: no frames could be had (`refused` says why).
    """

    __slots__ = ("committed", "hit", "pad", "prompt", "refused", "seq", "size", "strict", "tokens")

    def __init__(self, tokens: list[int], pad: int, size: int, seq: Sequence | None, strict: bool) -> None:
        self.tokens = tokens
        self.prompt = len(tokens)  # leading tokens that were declared before they were fed
        self.pad = pad
        self.size = size  # tokens a block
        self.seq = seq
        self.strict = strict
        self.hit = seq.hit_tokens if seq is not None else 0
        self.committed = self.hit // size  # leading blocks that the arena has
        self.refused: CapacityError | None = None

    def load(self, arena: DeviceArena, memory: Any, columns: int) -> None:
        """Fills the first `columns` columns of the row's working memory: padding and hits. Modifies the arena only by the
        copies that the sequence asked for."""
        memory[:, :, :, : self.pad] = 0  # masked, but a NaN there would spread
        if self.seq is None:
            return
        for copy in self.seq.copies:
            arena.copy(*copy)
        self.seq.copied()
        if columns > self.pad:
            tokens = columns - self.pad
            arena.gather(self.seq.block_table[: -(-tokens // self.size)], memory, self.pad, tokens)

    def feed(self, tokens: list[int], start: int) -> None:
        """`tokens` are what the coming forward pass computes, from token `start` on. Takes frames for those beyond the prompt.

        Raises TokenError when they are not what the prompt said, CapacityError (when strict) when no frame is free.
        """
        self.cut(max(start, self.prompt))  # what a failed forward pass announced
        known = self.tokens[start : start + len(tokens)]
        if tokens[: len(known)] != known:
            at = next(i for i, (got, wanted) in enumerate(zip(tokens, known, strict=False)) if got != wanted)
            raise TokenError(
                f"token {start + at} is {tokens[at]}; the prompt that the cache was made for has {known[at]} there",
                token=start + at,
            )
        fresh = tokens[len(known) :]
        if not fresh:
            return
        if self.seq is not None:
            try:
                copies = self.seq.append(fresh, written=False).copies
            except CapacityError as error:
                if self.strict:
                    raise
                self.give_up(error)
            else:
                if copies:  # the working memory has the open block; its frame is filled as a whole, later
                    self.seq.copied()
        self.tokens += fresh

    def commit(self, arena: DeviceArena, memory: Any, computed: int, filled: set[int]) -> None:
        """Writes the blocks that the first `computed` tokens have filled to the arena, then seals them. `filled`: frames that
        rows with the same blocks have just written."""
        full = min(computed, len(self.tokens)) // self.size
        if self.seq is None or full <= self.committed:
            return
        frames = self.seq.block_table[self.committed : full].tolist()
        shared = sum(frame in filled for frame in frames)  # forks share leading blocks only
        arena.scatter(frames[shared:], memory, self.pad + (self.committed + shared) * self.size)
        filled.update(frames)
        self.seq.seal(full * self.size)
        self.committed = full

    def cut(self, length: int) -> None:
        """Takes tokens back: keeps the first `length`."""
        if length >= len(self.tokens):
            return
        del self.tokens[length:]
        self.prompt = min(self.prompt, length)
        self.hit = min(self.hit, length)
        self.committed = min(self.committed, length // self.size)
        if self.seq is not None:
            self.seq.truncate(length)

    def generated(self, ends: frozenset[int]) -> bool:
        """Is its last token one of these, and no part of the prompt?"""
        return len(self.tokens) > self.prompt and self.tokens[-1] in ends

    def fork(self) -> Row:
        """Another row on the same blocks."""
        row = Row(list(self.tokens), self.pad, self.size, None if self.seq is None else self.seq.fork(), self.strict)
        row.prompt, row.hit, row.committed, row.refused = self.prompt, self.hit, self.committed, self.refused
        return row

    def give_up(self, error: CapacityError) -> None:
        """Goes on without reuse; what is sealed stays cached."""
        self.refused = error
        self.end(failed=True)

    def end(self, computed: int = 0, *, failed: bool = False) -> None:
        """Gives every reference back. Tokens that were never computed are not declared written."""
        seq, self.seq = self.seq, None
        if seq is None:
            return
        if failed:
            seq.abort()
            return
        written = max(computed, self.hit)
        if seq.num_tokens > written:
            seq.truncate(written)
        seq.release()


def admit(kv: Any, arena: DeviceArena, tokens: list[int], pad: int, who: Identity, strict: bool, settings: dict[str, Any]) -> Row:
    """Asks for the row's sequence. Raises CapacityError when strict and it cannot be had."""
    try:
        return Row(tokens, pad, arena.block_size, kv.sequence(tokens, who, **settings), strict)
    except CapacityError as error:
        if strict:
            raise
        row = Row(tokens, pad, arena.block_size, None, strict)
        row.refused = error
        return row


def left_padding(ids: torch.Tensor, mask: torch.Tensor | None) -> list[int]:
    """How many columns of padding each prompt of `ids` [rows, columns] starts with, from a mask of the same shape.

    Raises TokenError for a mask that is anything but zeros, then ones: right padding, holes, a prompt of nothing.
    """
    if not isinstance(ids, torch.Tensor):
        raise TokenError(f"prompts are a {type(ids).__name__}: a tensor of token ids [rows, columns] is needed")
    if ids.ndim != 2 or ids.shape[0] < 1 or ids.shape[1] < 1 or ids.is_floating_point():
        raise TokenError(f"prompts are {tuple(ids.shape)} of {ids.dtype}: token ids [rows, columns] are needed")
    if mask is None:
        return [0] * ids.shape[0]
    if not isinstance(mask, torch.Tensor) or mask.shape != ids.shape:
        got = tuple(mask.shape) if isinstance(mask, torch.Tensor) else type(mask).__name__
        raise TokenError(f"the attention mask is {got}: {tuple(ids.shape)} is needed, a 0 or 1 for each token")
    pads: list[int] = []
    for row, ones in enumerate((mask != 0).tolist()):
        pad = ones.index(True) if True in ones else len(ones)
        if not all(ones[pad:]) or pad == len(ones):
            kind = "is empty" if pad == len(ones) else "has right padding" if not ones[-1] else "has holes"
            raise TokenError(f"the attention mask of row {row} {kind}: pad on the left (padding_side='left')", row=row)
        pads.append(pad)
    return pads
