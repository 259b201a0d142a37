"""R1: the state machine of a block, as a table and as it happens in a manager."""

from __future__ import annotations

import random

import pytest
from conftest import Build
from helpers import Clock, admit, prompt, put

from tenure import BlockManager, Event, Identity, Sequence, _core
from tenure.errors import CapacityError, StateError

# The requirement, line by line. "hit, swap in" of a Swapped block is one event: swap_in.
LEGAL = {
    ("Free", "allocate"): "Active",
    ("Active", "seal"): "Sealed",
    ("Sealed", "release"): "Cached",
    ("Cached", "hit"): "Sealed",
    ("Cached", "swap_out"): "Swapped",
    ("Swapped", "swap_in"): "Sealed",
    ("Cached", "drop"): "Free",
    ("Swapped", "drop"): "Free",
    ("Active", "release_partial"): "Free",
    ("Sealed", "release_invalid"): "Free",
}
ILLEGAL = [(state, step) for state in _core.STATES for step in _core.STEPS if (state, step) not in LEGAL]


def following(state: str, step: str, block: int = 0) -> str:
    return _core.STATES[_core.next_state(_core.STATES.index(state), _core.STEPS.index(step), block)]


@pytest.mark.parametrize(("state", "step"), LEGAL, ids="-".join)
def test_r1_a_legal_event_leads_to_the_state_the_table_names(state: str, step: str) -> None:
    assert following(state, step) == LEGAL[state, step]


@pytest.mark.parametrize(("state", "step"), ILLEGAL, ids="-".join)
def test_r1_every_other_transition_is_an_error_that_names_block_state_and_event(state: str, step: str) -> None:
    with pytest.raises(StateError) as caught:
        following(state, step, 4711)
    assert all(word in str(caught.value) for word in ("4711", state, step))
    assert caught.value.numbers["block"] == 4711


def test_r1_the_cores_table_is_the_requirement() -> None:
    assert {(state, step): to for state, step, to in _core.TRANSITIONS} == LEGAL
    assert len(LEGAL) + len(ILLEGAL) == len(_core.STATES) * len(_core.STEPS)


@pytest.mark.parametrize(("state", "step"), [(5, 0), (0, 9), (200, 200)])
def test_r1_a_state_or_event_that_does_not_exist_is_an_error(state: int, step: int) -> None:
    with pytest.raises(StateError):
        _core.next_state(state, step)


# -- as it happens in a manager


def story(events: list[Event], block: int) -> list[tuple[str, str]]:
    """What happened to a block and the state after it, in order."""
    return [(event.what, event.state.value) for event in events if event.block == block]


def test_r1_a_block_is_allocated_sealed_released_and_hit(build: Build, who: Identity) -> None:
    kv = build(4)
    seq = kv.sequence(prompt(1), who)
    seq.append([7])
    seq.release()
    admit(kv, who, 1).release()
    assert story(kv.events(), 0) == [
        ("allocate", "Active"),
        ("seal", "Sealed"),
        ("release", "Cached"),
        ("hit", "Sealed"),
        ("release", "Cached"),
    ]


def test_r1_a_block_seals_when_it_is_declared_written_and_not_before(build: Build, who: Identity) -> None:
    kv = build(4)
    seq = kv.sequence([1, 2, 3], who)
    seq.append([4, 5], written=False)
    assert (kv.counts().active, seq.written_tokens) == (2, 0)
    seq.seal(3)
    assert kv.counts().active == 2  # the block is full, and yet its last token is not there
    seq.seal(4)
    assert (kv.counts().active, kv.counts().sealed) == (1, 1)
    seq.abort()
    assert kv.counts() == (4, 3, 0, 0, 1)


def test_r1_a_block_released_before_it_was_full_goes_free(build: Build, who: Identity) -> None:
    kv = build(4)
    kv.sequence([1, 2], who).release()
    assert story(kv.events(), 0) == [("allocate", "Active"), ("free", "Free")]


def test_r1_memory_pressure_drops_a_cached_block(build: Build, who: Identity) -> None:
    kv = build(1)
    put(kv, who, 1)
    put(kv, who, 2)
    assert story(kv.events(), 0)[:4] == [
        ("allocate", "Active"),
        ("seal", "Sealed"),
        ("release", "Cached"),
        ("evict", "Free"),
    ]


def test_r1_a_sealed_block_of_an_invalidated_namespace_goes_free_at_release(build: Build, who: Identity) -> None:
    kv = build(4)
    seq = admit(kv, who, 1)
    kv.invalidate(model=who.model)
    assert kv.counts().sealed == 1
    seq.release()
    assert kv.counts().free == 4
    assert story(kv.events(), 0) == [("allocate", "Active"), ("seal", "Sealed"), ("invalidate", "Free")]


def test_r1_a_cached_block_of_an_invalidated_namespace_drops(build: Build, who: Identity) -> None:
    kv = build(4)
    put(kv, who, 1)
    kv.invalidate(model=who.model)
    assert kv.sweep() == 1
    assert story(kv.events(), 0)[-1] == ("invalidate", "Free")


def test_r1_an_expired_block_drops(build: Build, clock: Clock, who: Identity) -> None:
    kv = build(4)
    put(kv, who, 1, expire_after=5)
    clock.advance(5)
    assert kv.sweep() == 1
    assert story(kv.events(), 0)[-1] == ("expire", "Free")


# The event of the log, by the state before it, as a step of the table; None: the state stays.
AS_STEP = {
    ("allocate", "Free"): "allocate",
    ("seal", "Active"): "seal",
    ("release", "Sealed"): "release",
    ("hit", "Cached"): "hit",
    ("hit", "Sealed"): None,
    ("evict", "Cached"): "drop",
    ("expire", "Cached"): "drop",
    ("expire", "Sealed"): "release_invalid",
    ("invalidate", "Cached"): "drop",
    ("invalidate", "Sealed"): "release_invalid",
    ("free", "Active"): "release_partial",
    ("duplicate", "Active"): None,
    ("pin", "Cached"): None,
    ("pin", "Sealed"): None,
    ("unpin", "Cached"): None,
    ("unpin", "Sealed"): None,
}


def busy_hour(kv: BlockManager, clock: Clock, who: Identity, seed: int) -> None:
    """Random requests, forks, truncations, leases, expiry and invalidation; the books are checked after each."""
    rng = random.Random(seed)
    running: list[Sequence] = []
    for _ in range(400):
        clock.advance(rng.random())
        names = [rng.randrange(4) for _ in range(rng.randrange(1, 4))]
        act = rng.randrange(9)
        try:
            if act <= 2:
                due = rng.choice([None, None, 3.0])
                running.append(kv.sequence(prompt(*names), who, written=act == 0, expire_after=due))
            elif act == 3 and running:
                running[rng.randrange(len(running))].append([rng.randrange(3)] * rng.randrange(1, 6))
            elif act == 4 and running:
                running.append(rng.choice(running).fork())
            elif act == 5 and running:
                seq = rng.choice(running)
                seq.truncate(rng.randrange(seq.num_tokens + 1))
            elif act == 6:
                kv.lookup(prompt(*names), who, owner="test", ttl=rng.random() * 4)
            elif act == 7 and rng.random() < 0.2:
                kv.invalidate(model=who.model)
            elif running:
                seq = running.pop(rng.randrange(len(running)))
                seq.release() if rng.random() < 0.8 else seq.abort()
        except CapacityError:
            if running:
                running.pop(0).release()
        counts = kv.check()
        assert counts.free + counts.active + counts.sealed + counts.cached == counts.frames
        assert sum(1 for _ in kv.blocks()) == counts.frames - counts.free
    for seq in running:
        seq.release()


@pytest.mark.parametrize("on_duplicate", ["keep", "rewrite"])
@pytest.mark.parametrize("seed", range(4))
def test_r1_whatever_happens_every_step_is_in_the_table(
    build: Build, clock: Clock, who: Identity, seed: int, on_duplicate: str
) -> None:
    kv = build(12, events=1 << 16, on_duplicate=on_duplicate)
    busy_hour(kv, clock, who, seed)
    state: dict[int, str] = {}
    for event in kv.events():
        before = state.get(event.block, "Free")
        step = AS_STEP[event.what, before]
        assert event.state.value == (before if step is None else LEGAL[before, step]), event
        state[event.block] = event.state.value
    assert {block for block, last in state.items() if last != "Free"} == {info.handle[0] for info in kv.blocks()}
