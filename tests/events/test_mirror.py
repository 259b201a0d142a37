"""A manager's log as KV events: a replica that believes them holds exactly what the manager does."""

from __future__ import annotations

import functools

import pytest
import test_lower_tiers_at_random as random_tiers
from helpers import Clock, prompt, put

from events.making import MEDIA, Machine, Replica, truth
from tenure import BlockManager, ConfigError, Identity, LowerTier
from tenure.events import AllBlocksCleared, BlockRemoved, BlockStored, Mirror

WHO = Identity(model="m")


def built(frames: int = 8, host: int = 0, **settings: object) -> BlockManager:
    lower = [LowerTier("host", host)] if host else []
    return BlockManager(frames, 4, lower=lower, **settings)  # type: ignore[arg-type]


def write_down(kv: BlockManager) -> None:
    for write in kv.take_writes("host"):
        kv.finish_write(write, True)


def test_what_is_stored_is_named_by_its_digest() -> None:
    kv, who = built(), WHO.with_(adapter="adapter-7")
    mirror = Mirror(kv)
    kv.sequence(prompt(1, 2, 3), who, extra_keys={1: b"image"}).release()
    (event,) = mirror.step()
    assert isinstance(event, BlockStored)
    assert event.block_hashes == list(who.digest_chain(prompt(1, 2, 3), 4, {1: b"image"}))
    assert (event.parent_block_hash, event.token_ids, event.block_size) == (None, prompt(1, 2, 3), 4)
    assert (event.medium, event.lora_name) == ("GPU", "adapter-7")
    assert event.extra_keys == [("adapter-7", who.namespace.hex()), ("adapter-7", b"image"), ("adapter-7",)]
    kv.sequence([*prompt(1, 2, 3), *prompt(9)], who, extra_keys={1: b"image"}).release()
    (event,) = mirror.step()
    assert isinstance(event, BlockStored)
    assert event.parent_block_hash == list(who.digest_chain(prompt(1, 2, 3), 4, {1: b"image"}))[-1]
    assert mirror.step() == []


def test_a_move_is_stored_there_and_removed_here() -> None:
    kv = built(frames=2, host=8)
    mirror, digests = Mirror(kv), list(WHO.digest_chain(prompt(1, 2), 4))
    put(kv, WHO, 1, 2)
    write_down(kv)
    (first, second) = mirror.step()
    assert isinstance(first, BlockStored)
    assert isinstance(second, BlockStored)
    assert {first.medium, second.medium} == {"GPU", "CPU"}
    put(kv, WHO, 3, 4)
    came, went = mirror.step()
    assert isinstance(came, BlockStored)
    assert isinstance(went, BlockRemoved)
    assert came.medium == went.medium == "GPU"
    assert sorted(went.block_hashes) == sorted(digests)  # type: ignore[type-var]
    seq = kv.sequence(prompt(1, 2), WHO)
    assert seq.loaded(2) == 8
    seq.release()
    (came, went) = mirror.step()
    assert isinstance(came, BlockStored)
    assert came.block_hashes == digests


def test_two_tiers_of_one_medium_are_one_copy() -> None:
    kv = BlockManager(4, 4, lower=[LowerTier("host", 8), LowerTier("far", 8)])
    mirror = Mirror(kv, {"far": "CPU"})
    put(kv, WHO, 1)
    for tier in ("host", "far"):
        for write in kv.take_writes(tier):
            kv.finish_write(write, True)
    assert [getattr(event, "medium", None) for event in mirror.step()] == ["GPU", "CPU"]
    (info,) = list(kv.blocks())
    kv.lose("host", info.handle)  # type: ignore[arg-type]
    assert mirror.step() == []
    kv.lose("far", info.handle)  # type: ignore[arg-type]
    (event,) = mirror.step()
    assert event == BlockRemoved(list(WHO.digest_chain(prompt(1), 4)), "CPU")


def test_what_comes_back_after_an_invalidation_outlives_the_old_copy() -> None:
    kv = built()
    mirror, replica = Mirror(kv), Replica()
    old = kv.sequence(prompt(1, 2), WHO, written=True)
    replica.apply(mirror.step())
    kv.invalidate(model="m")
    new = kv.sequence(prompt(1, 2), WHO, written=True)
    replica.apply(mirror.step())
    old.release()
    replica.apply(mirror.step())
    assert replica.held == truth(kv, (8,))
    assert len(replica.held) == 2
    kv.invalidate(model="m")
    assert mirror.step() == [AllBlocksCleared()]
    new.release()
    assert mirror.step() == []


def test_what_expires_in_use_is_gone_at_once() -> None:
    clock = Clock()
    kv = built(clock=clock)
    mirror = Mirror(kv)
    seq = kv.sequence(prompt(1, 2), WHO, written=True, expire_after=5)
    assert len(mirror.step()) == 1
    clock.advance(6)
    kv.sweep()
    assert mirror.step() == [AllBlocksCleared()]
    seq.release()
    assert mirror.step() == []
    assert len(mirror) == 0


def test_a_block_that_came_and_went_between_two_steps_is_not_told() -> None:
    kv = built(frames=2)
    mirror = Mirror(kv)
    put(kv, WHO, 1, 2)
    put(kv, WHO, 3, 4)
    (event,) = mirror.step()
    assert isinstance(event, BlockStored)
    assert event.block_hashes == list(WHO.digest_chain(prompt(3, 4), 4))


def test_a_log_that_has_moved_on_is_noticed_and_made_good() -> None:
    kv = built(frames=4, events=16)
    mirror, replica = Mirror(kv), Replica()
    for round_ in range(20):
        for name in range(10):
            put(kv, WHO, round_ * 10 + name, 7)
        replica.apply(mirror.step())
        assert replica.held == truth(kv, (4,))
    assert mirror.overruns >= 19


def test_a_step_that_failed_is_made_good(monkeypatch: pytest.MonkeyPatch) -> None:
    kv = built()
    mirror, replica = Mirror(kv), Replica()
    put(kv, WHO, 1)
    replica.apply(mirror.step())
    put(kv, WHO, 2)
    kv.clear()
    put(kv, WHO, 3)
    with monkeypatch.context() as patch:
        patch.setattr(mirror, "_stored", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            mirror.step()
    mirror.distrust()
    replica.apply(mirror.step())
    assert replica.held == truth(kv, (8,))


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match="which medium is tier 'nvme'"):
        Mirror(BlockManager(4, lower=[LowerTier("nvme", 4)]))
    with pytest.raises(ConfigError, match="events=0"):
        Mirror(BlockManager(4, events=0))


def follow(machine: Machine) -> Mirror:
    mirror, replica = Mirror(machine.kv, MEDIA), Replica()
    for _ in range(250):
        machine.step()
        if machine.random.random() < 0.3:
            replica.apply(mirror.step())
            assert replica.held == machine.truth()
            late = Replica()
            late.apply(mirror.snapshot())
            assert late.held == replica.held
    return mirror


@pytest.mark.parametrize("seed", range(20))
def test_a_replica_holds_what_the_manager_does(seed: int) -> None:
    assert follow(Machine(seed)).overruns == 0


def test_a_replica_holds_it_also_where_the_log_is_too_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_tiers, "BlockManager", functools.partial(BlockManager, events=16))
    assert sum(follow(Machine(seed)).overruns for seed in range(20, 30)) > 10


def test_a_snapshot_between_two_steps_goes_on_with_the_next() -> None:
    """What is gone by then is not in it; the next step's events bring it to the truth all the same."""
    machine = Machine(3)
    mirror = Mirror(machine.kv, MEDIA)
    for _ in range(400):
        machine.step()
        if machine.random.random() < 0.2:
            mirror.step()
            for _ in range(machine.random.randint(0, 9)):
                machine.step()
            late = Replica(strict=False)
            late.apply(mirror.snapshot())
            late.apply(mirror.step())
            assert late.held == machine.truth()


def test_what_a_snapshot_left_out_and_came_back_is_told_again() -> None:
    kv = built(frames=2)
    mirror, late = Mirror(kv), Replica()
    put(kv, WHO, 1, 2)
    mirror.step()
    kv.clear()
    late.apply(mirror.snapshot())
    put(kv, WHO, 1, 2)
    late.apply(mirror.step())
    assert late.held == truth(kv, (2,))
    assert len(late.held) == 2


def test_the_comparison_notices_an_event_that_is_missing() -> None:
    """The control: a replica that misses one event in ten is found out."""

    def differs(seed: int) -> bool:
        machine = Machine(seed)
        mirror, replica = Mirror(machine.kv, MEDIA), Replica(strict=False)
        for _ in range(200):
            machine.step()
            replica.apply(event for event in mirror.step() if machine.random.random() > 0.1)
            if replica.held != machine.truth():
                return True
        return False

    assert all(differs(seed) for seed in range(5))
