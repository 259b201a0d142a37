"""Which models are served: several architectures exactly, sliding windows too; what cannot be is refused by name."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs tenure[model]")
transformers = pytest.importorskip("transformers", reason="needs tenure[model]")

from tenure import BlockManager, ConfigError, Identity, IdentityError, Layout, StaleHandleError, StateError, TokenError
from tenure.engines.transformers import Engine, layout_of
from tenure.tiers.device import DeviceArena

from .making import CLOSE, VOCABULARY, Served, cold_logits, left_padded, llama, prompts, seeded, shape

Serve = Callable[..., Served]
MIXED = ["full_attention", "sliding_attention", "full_attention"]
ARCHITECTURES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", shape()),
    "one KV head": ("LlamaForCausalLM", "LlamaConfig", shape(num_key_value_heads=1)),
    "eager attention": ("LlamaForCausalLM", "LlamaConfig", shape(attn_implementation="eager")),
    "scaled rope": (
        "LlamaForCausalLM",
        "LlamaConfig",
        shape(rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}),
    ),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", shape()),
    "every window is 6": ("MistralForCausalLM", "MistralConfig", shape(sliding_window=6)),
    "some windows are 5": (
        "Qwen2ForCausalLM",
        "Qwen2Config",
        shape(use_sliding_window=True, sliding_window=5, layer_types=MIXED),
    ),
    "gemma3": (
        "Gemma3ForCausalLM",
        "Gemma3TextConfig",
        shape(head_dim=8, sliding_window=5, layer_types=MIXED, query_pre_attn_scalar=8),
    ),
    "learned positions": (
        "GPT2LMHeadModel",
        "GPT2Config",
        {
            "vocab_size": VOCABULARY,
            "n_embd": 32,
            "n_layer": 3,
            "n_head": 4,
            "n_positions": 128,
            "eos_token_id": None,
            "bos_token_id": None,
            "pad_token_id": 0,
        },
    ),
}


def build(name: str) -> Any:
    make, config, sizes = ARCHITECTURES[name]
    return seeded(getattr(transformers, make), getattr(transformers, config)(**sizes))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_an_architecture_is_served_exactly(serve: Serve, name: str) -> None:
    one = serve(build(name))
    inputs = left_padded(prompts(1, 1, 27)[0], prompts(2, 1, 22)[0])
    wanted = one.model.generate(**inputs, max_new_tokens=12, do_sample=False)
    for _ in range(2):
        assert torch.equal(one.engine.generate(**inputs, max_new_tokens=12, do_sample=False), wanted)
        with torch.no_grad(), one.engine.cache(**inputs) as cache:
            cut = cache.get_seq_length()
            found = one.model(**inputs, cache=cache).logits[:, -1]
        assert (found - cold_logits(one.model, **ids_and_mask(inputs), cut=cut)[:, -1]).abs().max() < CLOSE
    assert cut > 20


def ids_and_mask(inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {"ids": inputs["input_ids"], "mask": inputs["attention_mask"]}


SIZES = shape()
REFUSED: dict[str, tuple[str, Callable[[], Any]]] = {
    "encoder-decoder": (
        "encoder-decoder",
        lambda: transformers.T5ForConditionalGeneration(
            transformers.T5Config(vocab_size=VOCABULARY, d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2)
        ),
    ),
    "state space": (
        "recurrent state",
        lambda: transformers.MambaForCausalLM(
            transformers.MambaConfig(vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2)
        ),
    ),
    "hybrid": (
        "conv",
        lambda: transformers.Lfm2ForCausalLM(
            transformers.Lfm2Config(**SIZES | {"layer_types": ["conv", "full_attention", "conv"]})
        ),
    ),
    "linear attention": (
        "linear_attention",
        lambda: altered(layer_types=["linear_attention", "full_attention", "full_attention"]),
    ),
    "chunked attention": ("chunked_attention", lambda: altered(layer_types=["chunked_attention"] * 3, attention_chunk_size=4)),
    "shared KV": ("shares KV", lambda: altered(num_kv_shared_layers=1)),
    "moving RoPE": (
        "dynamic",
        lambda: llama(rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}),
    ),
    "no heads": ("no attention heads", lambda: altered(num_attention_heads=None)),
}


def altered(**changes: Any) -> Any:
    """A small Llama whose configuration says something else."""
    model = llama()
    model.config = copy.copy(model.config)
    for name, value in changes.items():
        object.__setattr__(model.config, name, value)
    return model


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_exact_is_refused_by_name(tiny: Any, kind: str) -> None:
    pattern, make = REFUSED[kind]
    with pytest.raises(ConfigError, match=pattern):
        engine_of(make(), layout_of(tiny))


def engine_of(model: Any, layout: Layout, dtype: str = "fp32", who: Any = None, frames: int = 8, size: int = 4) -> Engine:
    who = Identity("tiny", weights="digest") if who is None else who
    return Engine(model, BlockManager(8, 4), DeviceArena(frames, layout, size, dtype=dtype), who=who)


def test_an_arena_of_another_layout_is_refused(tiny: Any) -> None:
    right = layout_of(tiny)
    assert right == Layout(layers=3, heads=2, head_size=8)
    for wrong in (Layout(2, 2, 8), Layout(3, 4, 8), Layout(3, 2, 16)):
        with pytest.raises(ConfigError, match="the arena is for"):
            engine_of(tiny, wrong)
    for dtype in ("bf16", "fp64"):
        with pytest.raises(ConfigError, match="fp32"):
            engine_of(tiny, right, dtype)
    with pytest.raises(ConfigError, match="one device"):
        engine_of(llama().to("meta"), right)
    for frames, size in ((7, 4), (8, 5)):
        with pytest.raises(ConfigError, match="the manager has"):
            engine_of(tiny, right, frames=frames, size=size)


def test_two_engines_on_one_model(serve: Serve, tiny: Any) -> None:
    first, second = serve(), serve()
    assert len(tiny.base_model._forward_pre_hooks) == 1
    ids = prompts(1, 1, 13)
    for one in (first, second, first):
        found = one.engine.generate(ids, max_new_tokens=5, do_sample=False)
        assert torch.equal(found, tiny.generate(ids, max_new_tokens=5, do_sample=False))
    assert (first.hits(), second.hits()) == (12, 0)
    moved = serve(copy.deepcopy(tiny))  # a copy has the hook too
    assert torch.equal(moved.engine.generate(ids, max_new_tokens=5, do_sample=False), found)


def test_an_identity_must_name_the_weights_and_not_contradict(tiny: Any) -> None:
    right = layout_of(tiny)
    for who in ("tiny", Identity("tiny"), Identity("tiny", weights="d", layout=Layout(1, 1, 1))):
        with pytest.raises(IdentityError):
            engine_of(tiny, right, who=who)
    made = engine_of(tiny, right, who=Identity("tiny", weights="d")).who
    assert (made.layout, made.kv_dtype) == (right, "fp32")


def test_adapters_must_be_named_and_training_is_refused(serve: Serve) -> None:
    one = serve(llama())
    ids = prompts(1, 1, 8)
    one.model.train()
    with pytest.raises(ConfigError, match="eval"):
        one.engine.cache(ids)
    one.model.eval()
    one.model._hf_peft_config_loaded = True
    with pytest.raises(IdentityError, match="adapter"):
        one.engine.cache(ids)
    one.engine.who = one.engine.who.with_(adapter="digest of the adapter")
    one.engine.cache(ids).close()


def test_kv_of_another_shape_is_refused_at_the_layer(serve: Serve) -> None:
    one = serve()
    ids = prompts(1, 1, 8)
    with torch.no_grad(), one.engine.cache(ids) as cache:
        body = one.model.base_model
        hook = body.layers[1].self_attn.k_proj.register_forward_hook(lambda module, args, out: out.double())
        try:
            with pytest.raises(ConfigError, match="this arena is for"):
                one.model(ids, cache=cache)
        finally:
            hook.remove()
        found = one.model(ids, cache=cache).logits  # the pass that failed left nothing behind
    assert (found - cold_logits(one.model, ids)).abs().max() < CLOSE


def test_padding_that_is_not_on_the_left_is_refused(serve: Serve) -> None:
    one = serve()
    ids = prompts(1, 2, 6)
    for zeros_and_ones, kind in (
        ([[1] * 6, [1, 1, 1, 1, 0, 0]], "right padding"),
        ([[1] * 6, [1, 1, 0, 0, 1, 1]], "holes"),
        ([[1] * 6, [0] * 6], "empty"),
    ):
        with pytest.raises(TokenError, match=kind):
            one.engine.generate(ids, torch.tensor(zeros_and_ones), max_new_tokens=2)
    for bad in (ids[0], ids[None], ids.float(), ids[:0], ids[:, :0], ids.tolist()):
        with pytest.raises(TokenError, match="token ids"):
            one.engine.cache(bad)
    for mask in (torch.ones(2, 5), [[1] * 6] * 2):
        with pytest.raises(TokenError, match="attention mask is"):
            one.engine.cache(ids, mask)
    one.at_rest()


def changed(ids: torch.Tensor) -> torch.Tensor:
    """Another token in the second row's third place."""
    other = ids.clone()
    other[1, 2] = (other[1, 2] + 1) % VOCABULARY
    return other


def test_what_does_not_fit_the_prompts_is_refused(serve: Serve) -> None:
    one = serve()
    inputs = left_padded(prompts(1, 1, 6)[0], prompts(2, 1, 9)[0])
    ids, mask = inputs["input_ids"], inputs["attention_mask"]
    wrong: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (TokenError, "in every forward pass", {"input_ids": ids}),
        (TokenError, "not that of the prompts", {"input_ids": ids, "attention_mask": torch.ones_like(mask)}),
        (TokenError, "is needed, with the cached", {"input_ids": ids, "attention_mask": mask[:, :-1]}),
        (TokenError, "is needed, with the cached", {"input_ids": ids, "attention_mask": mask[:, None, None]}),
        (TokenError, "position_ids", inputs | {"position_ids": torch.arange(9)[None]}),
        (TokenError, "rows are fed", {"input_ids": ids[:1], "attention_mask": mask[:1]}),
        (TokenError, "token 2 is", {"input_ids": changed(ids), "attention_mask": mask}),
        (ConfigError, "inputs_embeds", {"inputs_embeds": torch.zeros(2, 9, 32), "attention_mask": mask}),
        (ConfigError, "pixel_values", inputs | {"pixel_values": torch.zeros(1)}),
    ]
    with torch.no_grad(), one.engine.cache(**inputs) as cache:
        for error, text, given in wrong:
            with pytest.raises(error, match=text):
                one.model.base_model(**given, cache=cache)
        found = one.model(**inputs, cache=cache).logits
    assert (found - cold_logits(one.model, ids, mask))[mask.bool()].abs().max() < CLOSE


def test_other_misuse_is_a_typed_error(serve: Serve) -> None:
    one = serve()
    ids = prompts(1, 1, 8)
    for options in ({"cache": None}, {"past_key_values": None}, {"use_cache": False}):
        with pytest.raises(ConfigError, match="cache"):
            one.engine.generate(ids, **options)
    with pytest.raises(ConfigError, match="session"):
        one.engine.cache(ids, session=["a", "b"])
    with pytest.raises(ConfigError, match="room"):
        one.engine.cache(ids, room=-1)
    with one.engine.cache(ids) as cache:
        with torch.no_grad():
            with pytest.raises(IdentityError, match="another model"):
                serve(llama(seed=1)).model(ids, cache=cache)
            one.model(ids, cache=cache)
        with pytest.raises(ConfigError, match="no_grad"):
            one.model(ids, cache=cache)
        for call in (
            lambda: cache.crop(3),
            lambda: cache.crop(-9),
            lambda: cache.truncate(9),
            lambda: cache.batch_select_indices(torch.tensor([], dtype=torch.long)),
            lambda: cache.reorder_cache(torch.tensor([1])),
            lambda: cache.layers[0].update(torch.zeros(1, 2, 1, 8), torch.zeros(1, 2, 1, 8)),
            cache.reset,
            lambda: cache.batch_repeat_interleave(0),
        ):
            with pytest.raises((TokenError, ConfigError, StateError)):
                call()
    with torch.no_grad(), pytest.raises(StaleHandleError, match="closed"):
        one.model(ids, cache=cache)
