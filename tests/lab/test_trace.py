"""Trace: what it accepts, what it refuses, and merging."""

from __future__ import annotations

import numpy as np
import pytest

from tenure.errors import TraceError
from tenure.lab.trace import Trace

from .making import trace_of


def test_a_trace_says_what_it_holds() -> None:
    trace = trace_of([[0, 1], [0, 1, 2], [3]])
    assert (trace.requests, trace.asked, trace.distinct) == (3, 6, 4)
    assert trace.path(1).tolist() == [0, 1, 2]
    assert trace.lengths.tolist() == [2, 3, 1]
    assert trace.owners().tolist() == [0, 0, 1, 1, 1, 2]


def test_an_empty_trace_is_a_trace() -> None:
    trace = trace_of([])
    assert (trace.requests, trace.asked, trace.distinct) == (0, 0, 0)


def test_a_request_of_no_block_is_a_request() -> None:
    trace = trace_of([[], [0], []])
    assert trace.lengths.tolist() == [0, 1, 0]


def test_columns_cannot_be_written_to() -> None:
    trace = trace_of([[0]])
    with pytest.raises(ValueError, match="read-only"):
        trace.arrival[0] = 5.0


def test_the_callers_array_stays_writable() -> None:
    arrival = np.array([0.0, 1.0])
    trace_of([[0], [1]], arrival=arrival)  # type: ignore[arg-type]
    arrival[0] = 3.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"arrival": np.array([0.0, 2.0, 1.0])}, "request 2 arrives before"),
        ({"arrival": np.array([0.0, np.nan, 1.0])}, "request 1 arrives at no time"),
        ({"arrival": np.array([-1.0, 0.0, 1.0])}, "request 0 arrives at no time"),
        ({"duration": np.array([0.0, -1.0, 1.0])}, "request 1 runs for a negative"),
        ({"duration": np.array([0.0, np.inf, 1.0])}, "request 1 runs for a negative or infinite"),
        ({"output": np.array([0, 0, -3])}, "request 2 has a negative number"),
        ({"tenant": np.array([0, 1, 0])}, "request 1 belongs to a tenant without a name"),
        ({"offsets": np.array([0, 3, 2, 5])}, "offsets do not cut"),
        ({"offsets": np.array([0, 2, 5])}, "column offsets has 3 rows, expected 4"),
        ({"blocks": np.array([0, 1, 0, 1, 9])}, "not dense"),
        ({"blocks": np.array([0, 1, 1, 0, 2])}, "request 1: block 1 was seen under another parent"),
        ({"block_size": 0}, "at least one token"),
    ],
)
def test_columns_that_contradict_each_other_are_refused(change: dict[str, object], words: str) -> None:
    good = {"offsets": np.array([0, 2, 4, 5]), "blocks": np.array([0, 1, 0, 1, 2])}
    with pytest.raises(TraceError, match=words) as caught:
        trace_of([[0, 1], [0, 1], [2]], **{**good, **change})
    assert caught.value.numbers


def test_tenants_cannot_share_a_block() -> None:
    with pytest.raises(TraceError, match="request 1 shares a block with another tenant"):
        trace_of([[0], [0]], tenant=[0, 1], tenants=("a", "b"))


def test_merging_keeps_ids_and_sessions_apart_and_interleaves() -> None:
    one = trace_of([[0, 1], [0]], session=np.array([0, -1]), tenants=("a",))
    two = trace_of([[0], [0, 1]], session=np.array([0, 1]), tenants=("b",))
    merged = Trace.merge([one, two], interleave=0.25)
    assert merged.arrival.tolist() == [0.0, 0.25, 1.0, 1.25]
    assert [merged.path(i).tolist() for i in range(4)] == [[0, 1], [2], [0], [2, 3]]
    assert merged.session.tolist() == [0, 1, -1, 2]
    assert merged.tenants == ("a", "b")
    assert merged.tenant.tolist() == [0, 1, 0, 1]


def test_merging_without_interleave_keeps_each_clock() -> None:
    one = trace_of([[0], [1]], arrival=[0.0, 5.0])
    two = trace_of([[0]], arrival=[2.0])
    assert Trace.merge([one, two]).arrival.tolist() == [0.0, 2.0, 5.0]


def test_merging_needs_equal_block_sizes_and_a_trace() -> None:
    with pytest.raises(TraceError, match="different block sizes"):
        Trace.merge([trace_of([[0]]), trace_of([[0]], block_size=8)])
    with pytest.raises(TraceError, match="no trace"):
        Trace.merge([])
