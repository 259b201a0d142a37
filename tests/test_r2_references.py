"""R2: references and copy-on-write."""

from __future__ import annotations

import pytest
from conftest import Build
from helpers import Clock, admit, hit_blocks, prompt, put, victims

from tenure import BlockManager, Copy, Identity, Quota, Rewrite, State
from tenure.errors import CapacityError, StaleHandleError, TokenError


def refs(kv: BlockManager, frame: int) -> int:
    block = kv.block(frame)
    return 0 if block is None else block.refs


# -- R2.1


def test_r2_1_each_sequence_holds_one_reference_on_each_of_its_blocks(build: Build, who: Identity) -> None:
    kv = build(8)
    first = admit(kv, who, 1, 2)
    second = admit(kv, who, 1, 3)
    third = first.fork()
    shared, own = first.block_table
    assert [refs(kv, frame) for frame in (shared, own, second.block_table[1])] == [3, 2, 1]
    third.release()
    first.release()
    assert [refs(kv, frame) for frame in (shared, own, second.block_table[1])] == [1, 0, 1]
    second.release()


def test_r2_1_a_reference_goes_back_once(build: Build, who: Identity) -> None:
    kv = build(4)
    first, second = admit(kv, who, 1), admit(kv, who, 1)
    frame = int(first.block_table[0])
    first.release()
    with pytest.raises(StaleHandleError):
        first.release()
    with pytest.raises(StaleHandleError):
        first.abort()
    assert refs(kv, frame) == 1
    second.release()


def test_r2_1_leaving_a_with_block_releases_once(build: Build, who: Identity) -> None:
    kv = build(4)
    with kv.sequence(prompt(1), who) as seq:
        assert kv.counts().active == 1
    assert kv.counts().cached == 1
    with pytest.raises(StaleHandleError):
        seq.release()
    with kv.sequence(prompt(2), who) as early:
        early.release()
    assert kv.counts().cached == 2


def test_r2_1_an_exception_gives_the_references_back_and_seals_nothing(build: Build, who: Identity) -> None:
    kv = build(4)
    with pytest.raises(ZeroDivisionError), kv.sequence(prompt(1), who):
        raise ZeroDivisionError
    assert kv.counts() == (4, 4, 0, 0, 0)


def test_r2_1_abort_keeps_what_was_declared_written(build: Build, who: Identity) -> None:
    kv = build(4)
    seq = kv.sequence(prompt(1, 2), who)
    seq.seal(4)
    seq.abort()
    assert hit_blocks(kv, who, 1, 2) == 1
    assert kv.counts().free == 3


# -- R2.2


def test_r2_2_at_zero_a_block_becomes_a_candidate_and_is_not_reclaimed_at_once(build: Build, who: Identity) -> None:
    kv = build(4)
    seq = admit(kv, who, 1)
    frame = int(seq.block_table[0])
    assert kv.victims(who.account) == []
    seq.release()
    block = kv.block(frame)
    assert block is not None
    assert (block.state, block.refs, block.evictable) == (State.CACHED, 0, True)
    assert kv.victims(who.account) == [frame]
    assert hit_blocks(kv, who, 1) == 1


def test_r2_2_a_hit_takes_a_candidate_back(build: Build, who: Identity) -> None:
    kv = build(2)
    put(kv, who, 1)
    seq = admit(kv, who, 1)
    assert seq.hit_tokens == 4
    assert kv.victims(who.account) == []
    put(kv, who, 2)
    put(kv, who, 3)
    assert hit_blocks(kv, who, 1) == 1
    seq.release()


# -- R2.3


def test_r2_3_a_writer_of_a_shared_block_gets_its_own_copy_first(build: Build, who: Identity) -> None:
    kv = build(8)
    parent = kv.sequence([1, 2, 3, 4, 5, 6], who)
    child = parent.fork()
    shared = int(parent.block_table[1])
    done = child.append([7])
    own = int(child.block_table[1])
    assert done.copies == [Copy(shared, own, 2)]
    assert own != shared
    assert int(parent.block_table[1]) == shared
    assert (refs(kv, shared), refs(kv, own)) == (1, 1)
    block = kv.block(own)
    assert block is not None
    assert block.tokens == (5, 6, 7)
    parent.release()
    child.release()


def test_r2_3_the_last_holder_of_a_block_writes_in_place(build: Build, who: Identity) -> None:
    kv = build(8)
    parent = kv.sequence([1, 2], who)
    child = parent.fork()
    parent.release()
    frame = int(child.block_table[0])
    assert child.append([3]).copies == []
    assert int(child.block_table[0]) == frame
    child.release()


def test_r2_3_of_three_beams_two_copy_and_the_third_writes_in_place(build: Build, who: Identity) -> None:
    kv = build(8)
    beams = [kv.sequence([1, 2], who)]
    beams += [beams[0].fork(), beams[0].fork()]
    copies = [beam.append([10 + i]).copies for i, beam in enumerate(beams)]
    assert [len(c) for c in copies] == [1, 1, 0]
    assert len({int(beam.block_table[0]) for beam in beams}) == 3
    for beam in beams:
        beam.release()


def test_r2_3_the_source_of_a_copy_is_held_until_the_copy_is_acknowledged(build: Build, who: Identity) -> None:
    kv = build(2)
    parent = kv.sequence([1, 2], who)
    child = parent.fork()
    child.append([3])
    source = int(parent.block_table[0])
    parent.release()
    block = kv.block(source)
    assert block is not None
    assert (block.refs, block.holds) == (0, 1)
    with pytest.raises(CapacityError):
        kv.sequence([9], who)
    assert [copy.source for copy in child.copies] == [source]
    child.copied()
    assert child.copies == []
    assert kv.block(source) is None
    kv.sequence([9], who).release()
    child.release()


def test_r2_3_a_write_below_what_a_pending_copy_reads_copies_first(build: Build, who: Identity) -> None:
    kv = build(8)
    parent = kv.sequence([1, 2, 3], who)
    child = parent.fork()
    child.append([40])  # its copy will read three tokens of the parent's block
    parent.truncate(1)
    done = parent.append([50])
    assert [copy.tokens for copy in done.copies] == [1]
    child.copied()
    parent.release()
    child.release()


def test_r2_3_a_cut_inside_a_sealed_block_leaves_it_shared_and_the_next_append_copies(build: Build, who: Identity) -> None:
    kv = build(8)
    seq = admit(kv, who, 1, 2)
    sealed = int(seq.block_table[1])
    seq.truncate(6)
    assert int(seq.block_table[1]) == sealed
    done = seq.append([77])
    assert done.copies == [Copy(sealed, int(seq.block_table[1]), 2)]
    assert hit_blocks(kv, who, 1, 2) == 2
    seq.release()


def test_r2_3_a_copy_that_cannot_be_had_changes_nothing(build: Build, who: Identity) -> None:
    kv = build(1)
    parent = kv.sequence([1, 2], who)
    child = parent.fork()
    before = kv.counts()
    with pytest.raises(CapacityError):
        child.append([3])
    assert kv.counts() == before
    assert child.num_tokens == 2
    assert int(child.block_table[0]) == int(parent.block_table[0])
    parent.release()
    assert child.append([3]).copies == []
    child.release()


def test_r2_3_a_block_that_a_fork_has_sealed_is_shared(build: Build, who: Identity) -> None:
    kv = build(8)
    parent = kv.sequence(prompt(1), who)
    child = parent.fork()
    parent.seal()
    child.seal()
    assert kv.counts().sealed == 1
    assert list(parent.block_table) == list(child.block_table)
    parent.release()
    child.release()
    assert kv.counts().cached == 1


def test_r2_3_truncate_gives_back_whole_blocks(build: Build, who: Identity) -> None:
    kv = build(8)
    seq = kv.sequence(prompt(1, 2, 3), who)
    seq.truncate(5)
    assert (seq.num_tokens, len(seq.block_table)) == (5, 2)
    seq.truncate(0)
    assert (seq.num_tokens, len(seq.block_table)) == (0, 0)
    assert kv.counts().free == 8
    seq.append([1])
    seq.release()


def test_r2_3_more_cannot_be_kept_or_sealed_than_there_is(build: Build, who: Identity) -> None:
    kv = build(8)
    seq = kv.sequence(prompt(1), who)
    for call in (seq.truncate, seq.seal):
        with pytest.raises(TokenError) as caught:
            call(5)
        assert caught.value.numbers["length"] == 4
    seq.release()


# -- R2.4


def test_r2_4_a_prompt_that_diverges_inside_a_block_may_copy_the_tokens_that_match(build: Build, who: Identity) -> None:
    kv = build(8, block_size=8, partial_reuse=2)
    kv.sequence(list(range(16)), who, written=True).release()
    seq = kv.sequence([*range(13), 99, 98, 97], who)
    assert seq.hit_tokens == 13
    source, target, tokens = seq.copies[0]
    assert tokens == 5
    assert target == int(seq.block_table[1])
    held = kv.block(source)
    assert held is not None
    assert held.holds == 1
    assert seq.written_tokens == 13
    seq.release()


def test_r2_4_fewer_tokens_than_the_setting_are_not_copied(build: Build, who: Identity) -> None:
    kv = build(8, block_size=8, partial_reuse=3)
    kv.sequence(list(range(8)), who, written=True).release()
    seq = kv.sequence([0, 1, 99, 98], who)
    assert (seq.hit_tokens, seq.copies) == (0, [])
    seq.release()
    with kv.sequence([0, 1, 2, 98], who) as seq:
        assert seq.hit_tokens == 3


def test_r2_4_without_partial_reuse_nothing_is_copied(build: Build, who: Identity) -> None:
    kv = build(8, block_size=8)
    kv.sequence(list(range(8)), who, written=True).release()
    with kv.sequence([0, 1, 2, 3, 4, 5, 6, 99], who) as seq:
        assert (seq.hit_tokens, seq.copies) == (0, [])


def test_r2_4_the_longest_match_among_several_blocks_is_copied(build: Build, who: Identity) -> None:
    kv = build(8, block_size=8, partial_reuse=1)
    for tail in ([50, 51, 52], [5, 60, 61], [5, 6, 70]):
        kv.sequence([0, 1, 2, 3, 4, *tail], who, written=True).release()
    with kv.sequence([0, 1, 2, 3, 4, 5, 6, 99], who) as seq:
        assert seq.hit_tokens == 7


def test_r2_4_partial_reuse_gives_way_when_the_source_is_needed_for_room(build: Build, who: Identity) -> None:
    kv = build(2, block_size=8, partial_reuse=1)
    kv.sequence(list(range(8)), who, written=True).release()
    seq = kv.sequence([0, 1, 2, 99, *range(20, 30)], who)  # needs both frames: the source must go
    assert (seq.hit_tokens, seq.copies) == (0, [])
    seq.release()


# -- sealing the same content twice


def test_r2_duplicates_are_kept_apart_until_release(build: Build, who: Identity) -> None:
    kv = build(8)
    first, second = kv.sequence(prompt(1), who), kv.sequence(prompt(1), who)
    assert first.seal() == second.seal() == []
    assert (kv.counts().sealed, kv.counts().active) == (1, 1)
    assert int(first.block_table[0]) != int(second.block_table[0])
    second.release()
    assert kv.counts().free == 7
    first.release()
    assert kv.stats()["acme"].duplicates == 1


def test_r2_duplicates_rewrite_the_table(build: Build, who: Identity) -> None:
    kv = build(8, on_duplicate="rewrite")
    first, second = kv.sequence(prompt(1), who), kv.sequence(prompt(1), who)
    old = int(second.block_table[0])
    first.seal()
    assert second.seal() == [Rewrite(0, old, int(first.block_table[0]))]
    assert list(first.block_table) == list(second.block_table)
    assert kv.counts() == (8, 7, 0, 1, 0)
    first.release()
    second.release()


@pytest.mark.parametrize("on_duplicate", ["keep", "rewrite"])
def test_r2_what_follows_a_duplicate_hangs_below_the_block_that_was_there_first(
    build: Build, who: Identity, on_duplicate: str
) -> None:
    kv = build(8, on_duplicate=on_duplicate)
    first, second = kv.sequence(prompt(1), who), kv.sequence(prompt(1, 2), who)
    first.release()
    second.release()
    assert hit_blocks(kv, who, 1, 2) == 2
    assert kv.counts().cached == 2


@pytest.mark.parametrize("on_duplicate", ["keep", "rewrite"])
def test_r2_a_block_below_a_duplicate_keeps_its_parent_in_use(build: Build, who: Identity, on_duplicate: str) -> None:
    kv = build(8, on_duplicate=on_duplicate)
    parent = kv.sequence(prompt(1, 2), who)
    child = parent.fork()
    put(kv, who, 1)
    parent.release()  # seals below the other's block 1; the child goes on with its own
    kv.check()
    child.append([5])
    kv.check()
    child.release()
    assert hit_blocks(kv, who, 1, 2) == 2


def test_r2_sealing_a_duplicate_takes_no_frame_that_was_promised_to_the_append(build: Build, who: Identity) -> None:
    kv = build(3)
    seq = kv.sequence(prompt(1), who)
    put(kv, who, 1)  # the same content is there first, as Cached
    seq.append(prompt(2, 3))
    assert kv.counts().free == 0
    seq.release()


def test_r2_sealing_a_duplicate_keeps_another_tenants_floor(build: Build, who: Identity) -> None:
    kv = build(4)
    seq = kv.sequence(prompt(1, 2), who)
    put(kv, who, 1, 2)
    kv.tenants["umbrella"] = Quota(floor=0.5)
    seq.seal()
    kv.check()
    seq.release()


def test_r2_a_copy_never_names_a_frame_that_went_back(build: Build, who: Identity) -> None:
    kv = build(8, block_size=8, on_duplicate="rewrite")
    first = kv.sequence(list(range(6)), who)
    second, third = first.fork(), first.fork()
    first.append([6, 7])
    done = second.append([6, 7])  # copies, then finds that the first one's block is the same
    assert list(second.block_table) == list(first.block_table)
    assert done.copies == second.copies == []
    fresh = kv.sequence([50], who)
    assert int(fresh.block_table[0]) not in [copy.target for copy in second.copies]
    for seq in (first, second, third, fresh):
        seq.release()


def test_r2_a_partial_copy_of_what_is_sealed_at_once_names_no_frame_that_went_back(build: Build, who: Identity) -> None:
    kv = build(8, partial_reuse=1, on_duplicate="rewrite")
    put(kv, who, 1, 2)
    seq = kv.sequence(prompt(1, 2), who, max_hit=7, written=True)
    assert all(copy.target in seq.block_table for copy in seq.copies)
    seq.release()


def test_r2_touching_is_from_leaf_to_root(build: Build, clock: Clock, who: Identity) -> None:
    kv = build(8)
    put(kv, who, 1, 2, 3)
    put(kv, who, 4)
    assert victims(kv, who) == [3, 4]
    last = [block.last_used for block in kv.blocks()]
    assert last == [0.0] * 4
    clock.advance(1)
    put(kv, who, 1)
    assert [block.last_used for block in kv.blocks()] == [1.0, 0.0, 0.0, 0.0]
