"""generate() on Tenure gives what it gives on transformers' own cache, cold and warm, in every mode; and the bytes are used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs tenure[model]")
transformers = pytest.importorskip("transformers", reason="needs tenure[model]")

from .making import CLOSE, Served, left_padded, llama, prompts

Serve = Callable[..., Served]
NEW = 13
SEEDS = range(6)
ONE_ROW = {
    "prompt lookup": {"prompt_lookup_num_tokens": 3},
    "sampled prompt lookup": {"prompt_lookup_num_tokens": 2, "do_sample": True},
}
MODES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampling": {"do_sample": True, "top_k": 20},
    "beams": {"num_beams": 3},
    "beams, several answers": {"num_beams": 4, "num_return_sequences": 2},
    "sampled beams": {"num_beams": 3, "do_sample": True},
    "several answers": {"do_sample": True, "num_return_sequences": 3},
    "chunked prefill": {"prefill_chunk_size": 5},
    "chunked prefill, beams": {"prefill_chunk_size": 3, "num_beams": 2},
}


def run(generate: Callable[..., Any], inputs: dict[str, Any], mode: dict[str, Any]) -> tuple[Any, Any]:
    """Token ids, and the logits of every step [steps, rows, vocabulary]."""
    torch.manual_seed(7)
    settings = {"max_new_tokens": NEW, "do_sample": False, "return_dict_in_generate": True, "output_logits": True} | mode
    found = generate(**inputs, **settings)
    return found.sequences, torch.stack(found.logits)


def same(served: Served, inputs: dict[str, Any], mode: dict[str, Any]) -> int:
    """Runs both; tokens must be equal and logits close. Returns how many tokens were hit."""
    wanted, their_logits = run(served.model.generate, inputs, mode)
    before = served.hits()
    found, our_logits = run(served.engine.generate, inputs, mode)
    assert torch.equal(found, wanted)
    assert (our_logits - their_logits).abs().max() < CLOSE
    served.at_rest()
    return served.hits() - before


@pytest.mark.parametrize("mode", MODES | ONE_ROW)
def test_one_prompt_cold_then_warm(serve: Serve, mode: str) -> None:
    one = serve()
    for seed in SEEDS:
        length = 9 + 5 * seed
        inputs = {"input_ids": prompts(seed, 1, length)}
        assert same(one, inputs, (MODES | ONE_ROW)[mode]) == 0
        assert same(one, inputs, (MODES | ONE_ROW)[mode]) == length // 4 * 4


@pytest.mark.parametrize("mode", MODES)
def test_a_batch_of_prompts_of_different_lengths_cold_then_warm(serve: Serve, mode: str) -> None:
    one = serve(frames=512)
    for seed in SEEDS:
        rows = [prompts(100 * seed + row, 1, length)[0] for row, length in enumerate((19, 8 + seed, 30 - seed))]
        inputs = left_padded(*rows)
        assert same(one, inputs, MODES[mode]) == 0
        assert same(one, inputs, MODES[mode]) == sum(len(row) // 4 * 4 for row in rows)


@pytest.mark.parametrize("mode", MODES)
def test_prompts_that_share_a_prefix(serve: Serve, mode: str) -> None:
    one = serve(frames=512)
    stem = prompts(1, 1, 22)[0]
    same(one, {"input_ids": stem[None]}, MODES[mode])
    for seed in SEEDS:
        rows = [torch.cat([stem, prompts(10 * seed + row, 1, 3 + row)[0]]) for row in range(3)]
        assert same(one, left_padded(*rows), MODES[mode]) >= 3 * 20


def test_an_assistant_drafts(serve: Serve) -> None:
    one = serve()
    assistant = llama(seed=5)
    for seed in SEEDS:
        inputs = {"input_ids": prompts(seed, 1, 14 + seed)}
        mode = {"assistant_model": assistant if seed % 2 else llama()}  # one that is mostly wrong, one that is always right
        assert same(one, inputs, mode) == 0
        assert same(one, inputs, mode) >= 12
    assert same(one, {"input_ids": prompts(0, 1, 14)}, {"assistant_model": one.model}) >= 12  # the model drafts for itself


def test_hits_may_reach_further_in_one_row_than_in_another(serve: Serve) -> None:
    one = serve()
    long, short = prompts(1, 1, 30)[0], prompts(2, 1, 11)[0]
    same(one, {"input_ids": long[None]}, {})
    assert same(one, left_padded(long, short), {}) == 28  # short begins at column 19: from there on both are computed
    assert same(one, left_padded(short, long), {}) == 36


def test_turns_of_a_chat_hit_all_that_was_said(serve: Serve) -> None:
    one = serve()
    said, heard = prompts(3, 1, 10), 1
    for turn in range(6):
        before = one.hits()
        wanted = one.model.generate(said, max_new_tokens=9, do_sample=False)
        found = one.engine.generate(said, max_new_tokens=9, do_sample=False, session="chat")
        assert torch.equal(found, wanted)
        assert one.hits() - before == (heard - 1) // 4 * 4  # the last token that was generated has no KV
        heard = found.shape[1]
        said = torch.cat([found, prompts(50 + turn, 1, 5)], dim=1)


def test_tenants_do_not_share_and_sessions_are_passed_on(serve: Serve) -> None:
    one = serve(pin_budget=1.0)
    inputs = left_padded(prompts(1, 1, 12)[0], prompts(2, 1, 12)[0])
    options = {"max_new_tokens": 2, "do_sample": False}
    one.engine.generate(**inputs, **options, tenant=["a", "b"], session=["x", "y"], settings={"anchor_for": 60})
    assert {lease.owner for lease in one.kv.leases()} == {"x", "y"}
    one.engine.generate(**inputs, **options, tenant=["b", "a"])
    assert one.hits() == 0
    one.engine.generate(**inputs, **options, tenant=["a", "b"])
    assert one.hits() == 24


def test_a_finished_row_waits_for_the_others(serve: Serve) -> None:
    one = serve()
    inputs = left_padded(prompts(1, 1, 12)[0], prompts(2, 1, 9)[0])
    first = one.model.generate(**inputs, max_new_tokens=NEW, do_sample=False)
    mode = {"eos_token_id": int(first[0, 14]), "pad_token_id": 0}  # row 0 ends early; then it is fed padding
    assert same(one, inputs, mode) == 0
    assert same(one, inputs, mode) == 20
    assert all(0 not in block.tokens for block in one.kv.blocks())  # no padding is kept
    assert one.kv.match(first[0, :14], one.engine.who).hit_tokens == 12


@pytest.mark.parametrize("on_duplicate", ["keep", "rewrite"])
def test_equal_prompts_at_once(serve: Serve, on_duplicate: str) -> None:
    one = serve(on_duplicate=on_duplicate)
    row = prompts(1, 1, 18)[0]
    assert same(one, left_padded(row, row, row), {}) == 0
    assert same(one, left_padded(row, row, row), {}) == 3 * 16


def test_blocks_that_diverge_are_copied_in_part(serve: Serve) -> None:
    one = serve(block_size=8, partial_reuse=2)
    stem = prompts(1, 1, 21)[0]
    same(one, {"input_ids": stem[None]}, {})
    other = torch.cat([stem[:14], prompts(2, 1, 6)[0]])  # 8 tokens of a block, then 6 of the next
    assert same(one, {"input_ids": other[None]}, {}) == 14
    assert same(one, {"input_ids": other[None]}, {}) == 20  # the block that generation went on in has the last four


def test_a_pool_that_always_evicts(serve: Serve) -> None:
    one = serve(frames=20)
    for seed in range(25):
        inputs = {"input_ids": prompts(seed % 5, 1, 20 + seed % 5)}
        same(one, inputs, {"num_beams": 2} if seed % 3 == 0 else {})


def test_control_bytes_that_are_lost_are_noticed(serve: Serve) -> None:
    one = serve()
    inputs = {"input_ids": prompts(1, 1, 30)}
    same(one, inputs, {})
    _, whole = run(one.engine.generate, inputs, {})
    one.arena.tensor.zero_()
    wanted, _ = run(one.model.generate, inputs, {})
    found, broken = run(one.engine.generate, inputs, {})
    assert not torch.equal(found, wanted)
    assert (broken - whole).abs().max() > 100 * CLOSE


def test_control_one_wrong_frame_is_noticed(serve: Serve) -> None:
    one = serve()
    inputs = {"input_ids": prompts(1, 1, 30)}
    same(one, inputs, {})
    frames = one.kv.match(inputs["input_ids"][0], one.engine.who).frames
    one.arena.tensor[frames[3]] = one.arena.tensor[frames[4]].clone()
    with pytest.raises(AssertionError):
        same(one, inputs, {})
