"""R3: eviction, when there are not enough free blocks. Each policy's own rule in detail: contract/test_policy_rules.py."""

from __future__ import annotations

import pytest
from conftest import Build
from helpers import Clock, admit, evicted_since, hit_blocks, prompt, put, resident, victims

from tenure import BlockManager, Identity
from tenure.errors import CapacityError, ConfigError

# -- R3.1


def test_r3_1_lru_evicts_by_last_access(build: Build, who: Identity) -> None:
    kv = build(3, policy="lru")
    for name in (1, 2, 3, 1):  # 2 is the longest unused
        put(kv, who, name)
    put(kv, who, 4)
    assert resident(kv) == {1, 3, 4}
    put(kv, who, 3)
    put(kv, who, 5)
    assert resident(kv) == {3, 4, 5}


def test_r3_1_a_request_is_an_access_when_it_ends(build: Build, who: Identity) -> None:
    kv = build(3, policy="lru")
    long = admit(kv, who, 1)
    put(kv, who, 2)
    long.release()
    assert victims(kv, who) == [2, 1]


def test_r3_1_looking_is_no_access(build: Build, who: Identity) -> None:
    kv = build(3, policy="lru")
    put(kv, who, 1)
    put(kv, who, 2)
    assert hit_blocks(kv, who, 1) == 1
    assert victims(kv, who) == [1, 2]


# -- R3.2


def test_r3_2_lfu_evicts_the_least_used(build: Build, who: Identity) -> None:
    kv = build(3, policy="lfu")
    for name in (1, 1, 1, 2, 3, 3):
        put(kv, who, name)
    put(kv, who, 4)
    assert resident(kv) == {1, 3, 4}


def test_r3_2_with_ageing_a_new_prefix_rises_and_an_old_one_does_not_stay_for_ever(build: Build, who: Identity) -> None:
    kv = build(2, policy="lfu")
    for _ in range(5):
        put(kv, who, 1)
    for name in range(2, 12):
        put(kv, who, name)
    assert 1 not in resident(kv)


def test_r3_2_without_ageing_it_does_stay(build: Build, who: Identity) -> None:
    kv = build(2, policy="lfu", params={"ageing": 0})
    for _ in range(5):
        put(kv, who, 1)
    for name in range(2, 12):
        put(kv, who, name)
    assert 1 in resident(kv)


# -- R3.3


def test_r3_3_a_deep_block_is_dear_to_prefill_again_and_stays(build: Build, who: Identity) -> None:
    kv = build(6, policy="cost", params={"recency": 0, "hits": 0}, block_tokens=4096)
    put(kv, who, 1, 2, 3, 4)
    put(kv, who, 5)
    assert victims(kv, who) == [5, 4]
    put(kv, who, 6, 7)  # one frame short: the short and isolated one goes, though it is newer
    assert resident(kv) == {1, 2, 3, 4, 6, 7}


def test_r3_3_quantised_kv_is_dear_to_get_back(build: Build, who: Identity) -> None:
    kv = build(2, policy="cost", params={"recency": 0, "hits": 0})
    quantised = who.with_(quantisation="int4", rebuild=4.0)
    put(kv, quantised, 1)
    put(kv, who, 2)
    put(kv, who, 3)
    assert resident(kv) == {1, 3}


def test_r3_3_recency_and_hit_rate_count_by_their_weights(build: Build, clock: Clock, who: Identity) -> None:
    kv = build(2, policy="cost", params={"recency": 1, "rebuild": 0, "hits": 0, "horizon": 10})
    put(kv, who, 1)
    put(kv, who, 1)
    clock.advance(10)
    put(kv, who, 2)
    assert victims(kv, who) == [1, 2]
    kv.set_params(recency=0, hits=1)
    assert victims(kv, who) == [2, 1]


# -- R3.4


def test_r3_4_only_leaves_go_and_the_oldest_first(build: Build, who: Identity) -> None:
    kv = build(6, policy="lru")
    put(kv, who, 1, 2, 3)
    put(kv, who, 1, 2, 4)
    assert victims(kv, who) == [3, 4]
    first = kv.totals()["events"]
    put(kv, who, 5, 6, 7, 8, 9)  # needs five, two are free
    frames = [block.handle[0] for block in kv.blocks()]
    assert len(frames) == 6
    assert resident(kv) == {1, 5, 6, 7, 8, 9}
    assert len(evicted_since(kv, first)) == 3


def test_r3_4_a_parent_follows_when_its_last_child_has_gone(build: Build, who: Identity) -> None:
    kv = build(4, policy="lru")
    put(kv, who, 1, 2)
    put(kv, who, 3)
    assert victims(kv, who) == [2, 3]
    put(kv, who, 4, 5)
    assert victims(kv, who) == [1, 3, 5]


def test_r3_4_a_parent_of_a_running_child_never_goes(build: Build, who: Identity) -> None:
    kv = build(3)
    seq = admit(kv, who, 1, 2, 3)
    assert kv.victims(who.account) == []
    with pytest.raises(CapacityError):
        admit(kv, who, 4)
    seq.release()


# -- R3.5


def test_r3_5_the_policy_is_the_operators_choice_at_run_time(build: Build, who: Identity) -> None:
    kv = build(3, policy="lru")
    for name in (1, 1, 2, 3):
        put(kv, who, name)
    assert (kv.policy, victims(kv, who)) == ("lru", [1, 2, 3])
    kv.set_policy("lfu")
    assert (kv.policy, victims(kv, who)) == ("lfu", [2, 3, 1])
    kv.set_policy("lru", newest_first=1)
    assert (kv.params, victims(kv, who)) == ({"newest_first": 1.0}, [3, 2, 1])


def test_r3_5_so_are_its_parameters(build: Build, who: Identity) -> None:
    kv = build(3, policy="fifo")
    for name in (1, 2, 3):
        put(kv, who, name)
    kv.set_params(newest_first=1)
    assert victims(kv, who) == [3, 2, 1]
    put(kv, who, 4)
    assert resident(kv) == {1, 2, 4}
    kv.set_params(newest_first=0)
    assert victims(kv, who) == [1, 2, 4]


def test_r3_5_a_policy_of_ones_own_has_one_method(build: Build, who: Identity) -> None:
    class ShallowFirst:
        def priority(self, block: object) -> float:
            return float(block.depth)  # type: ignore[attr-defined]

    kv = build(4, policy=ShallowFirst())
    put(kv, who, 1, 2)
    put(kv, who, 3)
    assert kv.policy == "ShallowFirst"
    assert victims(kv, who) == [3, 2]


@pytest.mark.parametrize(
    ("name", "policy", "block_size"),
    [("vllm", "lru", 16), ("sglang", "lru", 1), ("tensorrt-llm", "priority", 32), ("lmcache", "lru", 256)],
)
def test_r3_5_a_preset_is_a_set_of_settings(name: str, policy: str, block_size: int) -> None:
    kv = BlockManager.preset(name, 8)
    assert (kv.policy, kv.block_size) == (policy, block_size)
    assert BlockManager.preset(name, 8, 4, policy="fifo").policy == "fifo"


@pytest.mark.parametrize("strategy", ["lru", "lfu", "fifo", "mru", "filo", "priority", "slru"])
def test_r3_5_every_sglang_strategy_has_its_setting(strategy: str, who: Identity) -> None:
    kv = BlockManager.preset("sglang", 4, strategy=strategy)
    for token in range(8):
        with kv.sequence([token], who):
            pass
    assert kv.check().cached == 4


def test_r3_5_an_unknown_preset_or_strategy_is_refused() -> None:
    with pytest.raises(ConfigError, match="vllm"):
        BlockManager.preset("nano", 8)
    with pytest.raises(ConfigError, match="filo"):
        BlockManager.preset("sglang", 8, strategy="best")


# -- R3.7


@pytest.mark.parametrize("policy", ["slru", "s3fifo", "arc"])
def test_r3_7_one_off_long_prompts_do_not_push_out_a_prefix_that_is_used_again(build: Build, who: Identity, policy: str) -> None:
    kv = build(20, policy=policy)
    for _ in range(4):
        put(kv, who, 1, 2)
    for scan in range(10):
        put(kv, who, *range(100 + 10 * scan, 110 + 10 * scan))
    assert hit_blocks(kv, who, 1, 2) == 2


# -- how much goes


@pytest.mark.parametrize("batch", [1, 3])
def test_r3_eviction_takes_the_exact_shortfall_or_the_configured_batch(build: Build, who: Identity, batch: int) -> None:
    kv = build(10, evict_batch=batch)
    for name in range(1, 11):
        put(kv, who, name)
    first = kv.totals()["events"]
    put(kv, who, 20)
    assert len(evicted_since(kv, first)) == batch
    put(kv, who, 30, 31, 32, 33, 34)
    assert kv.counts().free == (batch - 1 if batch > 5 else 0)


def test_r3_nothing_is_evicted_for_what_cannot_be_had(build: Build, who: Identity) -> None:
    kv = build(4)
    running = admit(kv, who, 1, 2)
    put(kv, who, 3)
    with pytest.raises(CapacityError) as caught:
        kv.sequence(prompt(5, 6, 7), who)
    assert caught.value.numbers == {"needed": 3, "busy": 2, "cap": 4, "frames": 4, "free": 1, "short": 1}
    assert resident(kv) == {1, 2, 3}
    running.release()
