"""Whatever goes wrong, no sequence stays open, no block that is not whole can be hit, and the answer is right or an error."""

from __future__ import annotations

import gc
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs tenure[model]")
transformers = pytest.importorskip("transformers", reason="needs tenure[model]")

from tenure import CapacityError, QuotaError, TokenError, retention

from .making import CLOSE, Served, cold_logits, left_padded, prompts

Serve = Callable[..., Served]
GREEDY: dict[str, Any] = {"max_new_tokens": 10, "do_sample": False}


class Planted(Exception):  # noqa: N818
    """The failure that a test asked for."""


def failing_after(calls: int) -> Any:
    """A logits processor that raises at its nth call."""
    left = [calls]

    def process(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        left[0] -= 1
        if left[0] == 0:
            raise Planted
        return scores

    return transformers.LogitsProcessorList([process])


@pytest.mark.parametrize("mode", [{}, {"num_beams": 3}, {"prompt_lookup_num_tokens": 3}], ids=["greedy", "beams", "lookup"])
@pytest.mark.parametrize("calls", [1, 2, 7])
def test_an_exception_in_the_middle_leaves_nothing_open(serve: Serve, calls: int, mode: dict[str, Any]) -> None:
    one = serve()
    ids = prompts(1, 1, 14)
    for _ in range(2):
        with pytest.raises(Planted):
            one.engine.generate(ids, **GREEDY, **mode, logits_processor=failing_after(min(calls, 3) if mode else calls))
        one.at_rest()
    if "prompt_lookup_num_tokens" not in mode:  # which fails before the first pass
        assert one.kv.match(ids[0], one.engine.who).hit_tokens == 12  # what was computed is right all the same
    assert torch.equal(one.engine.generate(ids, **GREEDY, **mode), one.model.generate(ids, **GREEDY, **mode))


@pytest.mark.parametrize("layer", range(3))
def test_a_pass_that_dies_in_a_layer_can_be_repeated(serve: Serve, layer: int) -> None:
    one = serve()
    ids = prompts(1, 1, 14)

    def die(*_: Any) -> None:
        raise Planted

    with torch.no_grad(), one.engine.cache(ids[:, :9]) as cache:
        one.model(ids[:, :6], cache=cache)
        hook = one.model.base_model.layers[layer].mlp.register_forward_hook(die)
        with pytest.raises(Planted):
            one.model(ids[:, 6 : 9 + 4], cache=cache)
        hook.remove()
        done = cache.get_seq_length()
        assert done == (13 if layer == 2 else 6)  # after its last layer's KV a pass has written all
        other = torch.cat([ids[:, :9], prompts(2, 1, 5)], 1) if done == 6 else ids  # what follows may be something else now
        found = one.model(other[:, done:], cache=cache).logits
    assert (found - cold_logits(one.model, other, cut=done)).abs().max() < CLOSE


def test_what_was_announced_and_never_computed_cannot_be_hit(serve: Serve) -> None:
    one = serve()
    ids = prompts(1, 1, 18)
    with torch.no_grad():
        with one.engine.cache(ids) as cache:
            one.model(ids, cache=cache)
        other = torch.cat([ids[:, :5], prompts(2, 1, 9)], 1)
        cache = one.engine.cache(ids)  # 16 tokens are hits: then all but 5 are taken back, and the next pass dies
        cache.truncate(5)
        hook = one.model.base_model.layers[1].mlp.register_forward_pre_hook(lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            one.model(other[:, 5:], cache=cache)
        hook.remove()
        cache.close()
    assert one.kv.match(other[0], one.engine.who).hit_tokens == 4


def test_a_cache_that_is_dropped_gives_everything_back(serve: Serve) -> None:
    one = serve()
    ids = prompts(1, 1, 14)
    with torch.no_grad():
        cache = one.engine.cache(ids)
        one.model(ids, cache=cache)
        assert one.kv.counts().active + one.kv.counts().sealed > 0
        with pytest.warns(ResourceWarning, match="dropped"):
            del cache  # no cycle holds it: that is at once
    one.engine.cache(prompts(2, 1, 4)).close()  # the next admission releases what was dropped
    one.at_rest()


def test_a_thread_that_dies_gives_everything_back(serve: Serve) -> None:
    one = serve()
    ids = prompts(1, 1, 14)
    failures: list[BaseException] = []

    def run() -> None:
        try:
            one.engine.generate(ids, **GREEDY, logits_processor=failing_after(4))
        except Planted as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert len(failures) == 1
    one.at_rest()


def test_generate_in_threads(serve: Serve) -> None:
    one = serve()
    inputs = [{"input_ids": prompts(seed % 3, 1, 20)} for seed in range(8)]
    wanted = [one.model.generate(**given, **GREEDY) for given in inputs]
    found: list[Any] = [None] * len(inputs)

    def run(place: int) -> None:
        found[place] = one.engine.generate(**inputs[place], **GREEDY)

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))


def test_a_prompt_too_long_for_the_arena_runs_without_reuse_or_is_refused(serve: Serve) -> None:
    one = serve(frames=6)
    inputs = left_padded(prompts(1, 1, 40)[0], prompts(2, 1, 10)[0])
    wanted = one.model.generate(**inputs, **GREEDY)
    for _ in range(2):
        assert torch.equal(one.engine.generate(**inputs, **GREEDY), wanted)
        with pytest.raises(CapacityError) as error:
            one.engine.generate(**inputs, **GREEDY, strict=True)
        assert error.value.numbers["frames"] == 6
        one.at_rest()


@pytest.mark.parametrize("strict", [False, True])
def test_frames_run_out_in_the_middle(serve: Serve, strict: bool) -> None:
    one = serve(frames=6)  # 24 tokens: the prompts fit, what follows does not
    inputs = left_padded(prompts(1, 1, 11)[0], prompts(2, 1, 9)[0])
    wanted = one.model.generate(**inputs, **GREEDY)
    if strict:
        with pytest.raises(CapacityError, match="append"):
            one.engine.generate(**inputs, **GREEDY, strict=True)
    else:
        assert torch.equal(one.engine.generate(**inputs, **GREEDY), wanted)
    one.at_rest()
    # what a row without frames leaves behind stays, until the other row needs its frames
    assert one.kv.match(prompts(1, 1, 11)[0], one.engine.who).hit_tokens == (8 if strict else 4)


def test_a_tenant_over_its_cap_runs_without_reuse(serve: Serve) -> None:
    one = serve(frames=16)
    one.kv.tenants["acme"] = retention.Quota(cap=0.25)
    ids = prompts(1, 1, 20)
    assert torch.equal(one.engine.generate(ids, **GREEDY), one.model.generate(ids, **GREEDY))
    with pytest.raises(QuotaError):
        one.engine.generate(ids, **GREEDY, strict=True)


def test_a_batch_is_admitted_whole_or_not_at_all(serve: Serve) -> None:
    one = serve(frames=10)
    rows = prompts(1, 3, 16)
    with pytest.raises(CapacityError):
        one.engine.cache(rows)
    one.at_rest()
    rows[2, 3] = -5
    with pytest.raises(TokenError):
        one.engine.cache(rows[[0, 2]])
    one.at_rest()


def test_an_arena_that_fails_releases_the_rows(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    one = serve()
    ids = prompts(1, 1, 20)
    one.engine.generate(ids, **GREEDY)

    def fail(*_: Any) -> None:
        raise Planted

    with monkeypatch.context() as patch:
        patch.setattr(one.arena, "gather", fail)
        with pytest.raises(Planted):
            one.engine.generate(ids, **GREEDY)
        one.at_rest()
    other = prompts(2, 1, 20)
    with monkeypatch.context() as patch:
        patch.setattr(one.arena, "scatter", fail)
        with pytest.raises(Planted):
            one.engine.generate(other, **GREEDY)
    one.at_rest()
    assert one.kv.match(other[0], one.engine.who).hit_tokens == 0  # never sealed before its bytes are there


def test_invalidation_in_the_middle_does_not_disturb_what_runs(serve: Serve) -> None:
    one = serve()
    ids = prompts(1, 1, 14)
    wanted = one.model.generate(ids, **GREEDY)

    def invalidate(tokens: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        if tokens.shape[1] == 17:
            one.kv.invalidate(weights="digest")
        return scores

    assert torch.equal(one.engine.generate(ids, **GREEDY, logits_processor=[invalidate]), wanted)
    assert one.kv.match(ids[0], one.engine.who).hit_tokens == 0
    assert one.kv.counts().cached == 0


def test_nothing_is_warned_of_or_left_after_ordinary_work(serve: Serve) -> None:
    one = serve()
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        for seed in range(3):
            one.engine.generate(prompts(seed, 1, 12), **GREEDY, num_beams=3)
            found = one.engine.generate(prompts(seed, 1, 12), **GREEDY, return_dict_in_generate=True)
            one.at_rest()
        del found
        gc.collect()
