"""What no policy can beat on a trace: the ceiling (no limit to the frames), and the next uses the optimum is made of.
`replay` calls it. It uses no pool."""

from __future__ import annotations

import numpy as np

from tenure.lab.trace import Floats, Ints, Trace


def ceiling(trace: Trace) -> float:
    """Hit rate when nothing is ever evicted: every block but the first of its kind is a hit; 0 for an empty trace."""
    return (trace.asked - trace.distinct) / trace.asked if trace.asked else 0.0


def ceiling_hits(trace: Trace) -> Ints:
    """The blocks that each request finds when nothing is ever evicted, i64[n]."""
    first = np.zeros(trace.asked, dtype=bool)
    first[np.unique(trace.blocks, return_index=True)[1]] = True
    new = np.bincount(trace.owners()[first], minlength=trace.requests)
    return trace.lengths - new


def next_use(trace: Trace) -> Floats:
    """For each asked block the number of the next request that asks for it again, +inf for none; f64[sum]."""
    order = np.argsort(trace.blocks, kind="stable")
    sorted_blocks = trace.blocks[order]
    again = sorted_blocks[1:] == sorted_blocks[:-1]
    result = np.full(trace.asked, np.inf)
    result[order[:-1][again]] = trace.owners()[order[1:][again]]
    return result


def tokens_saved(trace: Trace, hits: Ints) -> int:
    """Tokens of prefill that `hits` (blocks found, i64[n]) spare; a partial last block counts for what it holds."""
    return int(np.minimum(hits.astype(np.int64) * trace.block_size, trace.input_tokens).sum())
