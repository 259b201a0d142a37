"""What stands at a block's head in a pool, as text: what is written is what is read."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from tenure.tiers.heads import Claim, Head, parse

TOKENS = st.binary(min_size=1, max_size=24).filter(lambda token: b" " not in token)


@given(TOKENS, st.integers(1, 10**15 - 1))
def test_an_expiry_in_milliseconds_reads_back_as_it_is(token: bytes, milliseconds: int) -> None:
    written = b"block %b 31 90 405 %d" % (token, milliseconds)
    head = parse(written)
    assert isinstance(head, Head)
    assert head.encode() == written
    assert parse(head.encode()) == head


def test_a_head_reads_back_as_itself() -> None:
    for expires in (math.inf, 2.03, 0.001, 1_790_000_000.123):
        head = Head(b"boot-1", 300, 4096, 1024, expires)
        assert parse(head.encode()) == head


@given(TOKENS, TOKENS)
def test_a_claim_reads_back_as_itself(token: bytes, owner: bytes) -> None:
    assert parse(Claim(token, owner).encode()) == Claim(token, owner)
