"""Ids: equal numbers exactly where root and prefix are equal."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tenure.lab.ids import content_ids, dense, path_ids

Rows = list[tuple[int, list[int]]]


@given(st.lists(st.tuples(st.integers(0, 2), st.lists(st.integers(0, 2), max_size=6)), max_size=12))
def test_path_ids_are_equal_exactly_where_root_and_prefix_are(rows: Rows) -> None:
    lengths = np.array([len(path) for _, path in rows], dtype=np.int64)
    content = np.array([c for _, path in rows for c in path], dtype=np.uint32)
    roots = np.array([root for root, _ in rows], dtype=np.uint32)
    ids, count = path_ids(lengths, content, roots, 3)
    prefixes = [(root, *path[: k + 1]) for root, path in rows for k in range(len(path))]
    assert len(set(zip(ids.tolist(), prefixes, strict=True))) == len(set(ids.tolist())) == len(set(prefixes)) == count
    assert sorted(set(ids.tolist())) == list(range(count))


@given(st.lists(st.lists(st.integers(0, 1), max_size=11), max_size=8), st.integers(1, 4))
def test_content_ids_are_equal_exactly_where_the_blocks_tokens_are(rows: list[list[int]], block_size: int) -> None:
    found, count = content_ids([np.array(row, dtype=np.int64) for row in rows], block_size)
    blocks = [tuple(row[k : k + block_size]) for row in rows for k in range(0, len(row) // block_size * block_size, block_size)]
    numbers = [number for row in found for number in row.tolist()]
    assert len(numbers) == len(blocks)
    assert len(set(zip(numbers, blocks, strict=True))) == len(set(numbers)) == len(set(blocks)) == count


def test_tokens_beyond_32_bits_are_told_apart() -> None:
    found, count = content_ids([np.array([2**32]), np.array([0]), np.array([2**33])], 1)
    assert count == 3
    assert len({int(row[0]) for row in found}) == 3


def test_dense_numbers_have_no_gaps() -> None:
    ids, count = dense(np.array([70, -5, 70, 2**62], dtype=np.int64))
    assert ids.tolist() == [1, 0, 1, 2]
    assert count == 3
