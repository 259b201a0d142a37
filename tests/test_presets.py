"""The presets of systems that do not run here do what their documentation says."""

from __future__ import annotations

import pytest

from tenure import BlockManager, ConfigError, Identity, PriorityRange, Retention

WHO = Identity(model="m")


def prompt(number: int, blocks: int, size: int) -> list[int]:
    return [number * 100_000 + i for i in range(blocks * size)]


def hit(kv: BlockManager, tokens: list[int]) -> int:
    return kv.match(tokens, WHO).hit_tokens // kv.block_size


class TestTensorRtLlm:
    """Retention priorities 0-100, default 35; the lowest goes first, the least recently used among equals, leaves first; a
    duration starts when the request ends, and then the block is at the default again; blocks are partly reused by copying."""

    def manager(self, frames: int) -> tuple[BlockManager, list[float]]:
        now = [0.0]
        return BlockManager.preset("tensorrt-llm", frames, 4, clock=lambda: now[0]), now

    def test_the_lowest_priority_goes_first(self) -> None:
        kv, _ = self.manager(3)
        for number, priority in ((1, 80), (2, 10), (3, None)):
            kv.sequence(prompt(number, 1, 4), WHO, priority=priority).release()
        kv.sequence(prompt(4, 1, 4), WHO).release()
        assert [hit(kv, prompt(n, 1, 4)) for n in (1, 2, 3)] == [1, 0, 1]
        kv.sequence(prompt(5, 1, 4), WHO).release()
        assert [hit(kv, prompt(n, 1, 4)) for n in (1, 3, 4)] == [1, 0, 1], "35 before 80, the older of two 35s first"

    def test_a_blocks_first_token_decides_its_range(self) -> None:
        kv, _ = self.manager(4)
        ranges = Retention((PriorityRange(0, 5, priority=90), PriorityRange(5, None, priority=5)))
        kv.sequence(prompt(1, 3, 4), WHO, priority=ranges).release()
        kv.sequence(prompt(2, 2, 4), WHO).release()
        assert hit(kv, prompt(1, 3, 4)) == 2, (
            "blocks 0 (token 0) and 1 (token 4) are in the first range, block 2 (token 8) is not"
        )

    def test_a_duration_starts_at_release_and_ends_at_the_default(self) -> None:
        kv, now = self.manager(2)
        seq = kv.sequence(prompt(1, 1, 4), WHO, priority=Retention((PriorityRange(priority=100, duration=10),)))
        now[0] = 50.0
        seq.release()
        now[0] = 51.0
        kv.sequence(prompt(2, 1, 4), WHO, priority=40).release()
        now[0] = 59.0
        kv.sequence(prompt(3, 1, 4), WHO, priority=40).release()
        assert hit(kv, prompt(1, 1, 4)) == 1
        now[0] = 61.0
        kv.sequence(prompt(4, 1, 4), WHO, priority=40).release()
        assert hit(kv, prompt(1, 1, 4)) == 0

    def test_partial_reuse_copies_the_tokens_that_match(self) -> None:
        kv, _ = self.manager(8)
        kv.sequence(prompt(1, 2, 4), WHO).release()
        seq = kv.sequence([*prompt(1, 2, 4)[:6], 7, 7], WHO)
        assert seq.hit_tokens == 6
        assert [c.tokens for c in seq.copies] == [2]
        seq.release()


class TestLmCache:
    """Chunks of 256 tokens; the least recently used goes first in each tier."""

    def test_chunks_and_lru(self) -> None:
        kv = BlockManager.preset("lmcache", 3)
        assert kv.block_size == 256
        for number in (1, 2, 3):
            kv.sequence(prompt(number, 1, 256), WHO).release()
        kv.sequence(prompt(1, 1, 256), WHO).release()
        kv.sequence(prompt(4, 1, 256), WHO).release()
        assert [hit(kv, prompt(n, 1, 256)) for n in (1, 2, 3, 4)] == [1, 0, 1, 1]


def test_an_unknown_preset_or_strategy_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"no preset named 'nope'; there are vllm, sglang"):
        BlockManager.preset("nope", 8)
    with pytest.raises(ConfigError, match="no strategy named 'nope'"):
        BlockManager.preset("sglang", 8, strategy="nope")
