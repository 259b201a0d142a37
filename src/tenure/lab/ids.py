"""From what a trace calls its blocks (ids of any kind, or tokens) to dense path ids. The readers' builder calls it.
It never guesses: equal result <=> equal root and equal content all the way down."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Ids = npt.NDArray[np.uint32]


def dense(values: Ints) -> tuple[Ids, int]:
    """Number the values 0..k-1 without gaps, equal for equal; returns (u32[len], k)."""
    unique, inverse = np.unique(values, return_inverse=True)
    return inverse.astype(np.uint32), len(unique)


def content_ids(tokens: list[Ints], block_size: int) -> tuple[list[Ids], int]:
    """A number per distinct block of tokens, whatever stands before it; a tail shorter than a block is dropped."""
    full = [row[: len(row) // block_size * block_size] for row in tokens]
    counts = [len(row) // block_size for row in full]
    flat = np.concatenate(full) if full else np.empty(0, dtype=np.int64)
    if not len(flat):
        return [np.empty(0, dtype=np.uint32) for _ in full], 0
    narrow = flat.astype(np.int32) if flat.min() >= 0 and flat.max() < 2**31 else flat
    rows = np.ascontiguousarray(narrow.reshape(-1, block_size))
    unique, inverse = np.unique(rows.view(np.dtype((np.void, rows.dtype.itemsize * block_size))).ravel(), return_inverse=True)
    numbers = inverse.astype(np.uint32)
    ends = np.cumsum(counts)
    return [numbers[end - count : end] for count, end in zip(counts, ends, strict=True)], len(unique)


def path_ids(lengths: Ints, content: Ids, roots: Ids, root_count: int) -> tuple[Ids, int]:
    """Dense ids of whole paths: two positions get one id only if their roots and all content up to them are equal.

    lengths i64[n]: blocks per request; content u32[sum]: the block's own number; roots u32[n]: who the path belongs to.
    Works level by level: at depth d a path is (its path at d-1, its content at d). Returns (u32[sum], number of ids).
    """
    result = np.empty(len(content), dtype=np.uint32)
    starts = np.concatenate([[0], np.cumsum(lengths)])[:-1].astype(np.int64)
    by_length = np.argsort(-lengths, kind="stable")
    parent = roots[by_length].astype(np.uint64)
    deeper = len(lengths) - np.searchsorted(np.sort(lengths), np.arange(lengths.max(initial=0)), side="right")
    used = root_count
    for depth, active in enumerate(deeper):
        at = starts[by_length[:active]] + depth
        key = (parent[:active] << np.uint64(32)) | content[at]
        unique, inverse = np.unique(key, return_inverse=True)
        parent[:active] = inverse.astype(np.uint64) + np.uint64(used)
        result[at] = inverse + (used - root_count)
        used += len(unique)
    return result, used - root_count
