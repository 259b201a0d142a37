"""Forward passes over KV that is handed in: transformers and plain numpy are the oracles; the model is left as it was."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs tenure[model]")
transformers = pytest.importorskip("transformers", reason="needs tenure[model]")

from tenure import ConfigError, TokenError
from tenure.scbench.attend import Ask, run

from .brute import Llama
from .making import CLOSE, SIZE, TOKENS, VOCABULARY, ids, llama


@pytest.mark.parametrize(
    "changes", [{}, {"num_key_value_heads": 1}, {"num_key_value_heads": 4}, {"attn_implementation": "eager"}]
)
def test_dense_logits_are_those_of_transformers_and_of_plain_numpy(changes: dict[str, Any]) -> None:
    model, tokens = llama(1, **changes), ids(1, 30)
    found = run(model, tokens).logits
    with torch.no_grad():
        wanted = model(torch.tensor([tokens])).logits[0, -1]
    assert (found - wanted).abs().max() < CLOSE
    assert abs(found.double().numpy() - Llama(model).run(tokens)).max() < CLOSE


@pytest.mark.parametrize("cuts", [(20,), (20, 21), (1, 2, 29), (7, 16, 25)])
def test_a_text_in_pieces_gives_the_logits_and_the_kv_of_the_whole(tiny: Any, cuts: tuple[int, ...]) -> None:
    tokens = ids(2, 30)
    whole = run(tiny, tokens, block_size=SIZE)
    kv = run(tiny, tokens[: cuts[0]], block_size=SIZE).kv
    newer = None
    for start, end in zip(cuts, [*cuts[1:], len(tokens)], strict=True):
        step = run(tiny, tokens[start:end], kv, newer, block_size=SIZE)
        newer = step.kv if newer is None else newer.extended(step.kv)
    assert newer is not None
    kv = kv.extended(newer)
    assert (step.logits - whole.logits).abs().max() < CLOSE
    assert (kv.length, kv.exact) == (30, 30)
    for layer in range(2):
        assert (kv.keys[layer] - whole.kv.keys[layer]).abs().max() < CLOSE
        assert (kv.values[layer] - whole.kv.values[layer]).abs().max() < CLOSE
        assert kv.positions[layer].tolist() == [list(range(30))] * 2


def test_keys_values_and_queries_are_those_of_plain_numpy(tiny: Any) -> None:
    tokens, plain = ids(3, 20), Llama(tiny)
    plain.run(tokens)
    done = run(tiny, tokens, observe=6)
    assert done.queries is not None
    assert (done.queries.first, done.queries.scale) == (14, pytest.approx(plain.scale))
    for layer, wanted in enumerate(plain.layers):
        assert abs(done.kv.keys[layer].double().numpy() - wanted.keys).max() < CLOSE
        assert abs(done.kv.values[layer].double().numpy() - wanted.values).max() < CLOSE
        assert abs(done.queries.vectors[layer].double().numpy() - wanted.queries[:, 14:]).max() < CLOSE


@pytest.mark.parametrize("new", [1, 5])
def test_only_the_chosen_blocks_are_read(tiny: Any, new: int) -> None:
    """Blocks that are not chosen may hold anything; the open block and the newer tokens are read in any case."""
    context = run(tiny, ids(4, TOKENS), block_size=SIZE).kv
    newer = run(tiny, ids(5, 3), context, block_size=SIZE).kv
    chosen = torch.zeros((2, new, TOKENS // SIZE), dtype=torch.bool)
    chosen[0, :, 3] = chosen[1, :, 8] = True
    before = run(tiny, ids(6, new), context, newer, choose=lambda ask: chosen).logits
    hidden = torch.ones((2, TOKENS), dtype=torch.bool)
    hidden[0, 12:16] = hidden[1, 32:36] = hidden[:, 56] = False
    for tensor in (*context.keys, *context.values):
        tensor[hidden] = 1e3
    assert torch.equal(run(tiny, ids(6, new), context, newer, choose=lambda ask: chosen).logits, before)
    context.values[0][0, 13] += 1
    assert not torch.equal(run(tiny, ids(6, new), context, newer, choose=lambda ask: chosen).logits, before)
    context.values[0][0, 13] -= 1
    context.values[1][1, 56] += 1  # open
    assert not torch.equal(run(tiny, ids(6, new), context, newer, choose=lambda ask: chosen).logits, before)


def test_a_choice_is_asked_with_all_that_could_be_read(tiny: Any) -> None:
    context = run(tiny, ids(4, TOKENS), block_size=SIZE).kv
    asks: list[Ask] = []

    def watch(ask: Ask) -> None:
        asks.append(ask)

    done = run(tiny, ids(5, 3), context, choose=watch, observe=3)
    assert [ask.layer for ask in asks] == [0, 1]
    assert done.queries is not None
    for layer, ask in enumerate(asks):
        assert torch.equal(ask.queries, done.queries.vectors[layer])
        assert torch.equal(ask.keys, torch.cat([context.keys[layer], done.kv.keys[layer]], 1))


def test_kv_is_exact_only_under_full_attention_over_exact_kv(tiny: Any) -> None:
    context = run(tiny, ids(4, TOKENS), block_size=SIZE).kv
    assert run(tiny, ids(5, 3), context).kv.exact == TOKENS + 3
    partly = run(tiny, ids(5, 3), context, choose=lambda ask: None).kv
    assert context.extended(partly).exact == TOKENS
    assert run(tiny, ids(5, 3), allow=lambda rows, columns: rows >= columns).kv.exact == 0
    thinned = context.take([torch.arange(14).expand(2, -1) != 5] * 2)
    assert thinned.exact == 20
    later = run(tiny, ids(5, 3), thinned).kv
    assert later.exact == TOKENS  # none of its own
    assert thinned.extended(later).exact == 20


def test_the_model_is_left_as_it_was_whatever_happens(tiny: Any) -> None:
    before = tiny.config._attn_implementation
    with pytest.raises(RuntimeError, match="of the choice"):
        run(tiny, [1], run(tiny, [1, 2]).kv, choose=_fails)
    assert tiny.config._attn_implementation == before


def _fails(ask: Ask) -> None:
    raise RuntimeError("of the choice")


def test_bad_tokens_and_models_are_refused_by_name(tiny: Any) -> None:
    with pytest.raises(TokenError, match="no tokens"):
        run(tiny, [])
    for token in (-1, VOCABULARY, True, 1.5):
        with pytest.raises(TokenError, match="a token is"):
            run(tiny, [1, token])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match="3 layers"):
        run(tiny, [1], run(llama(num_hidden_layers=3), [1, 2]).kv)
    sliding = transformers.MistralForCausalLM(
        transformers.MistralConfig(
            vocab_size=64,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            sliding_window=8,
        )
    ).eval()
    with pytest.raises(ConfigError, match="sliding_window"):
        run(sliding, [1, 2, 3])
    assert sliding.config._attn_implementation != "tenure_scbench"
