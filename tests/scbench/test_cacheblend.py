"""KV of pieces, found and put together: where keys move, which tokens are recomputed, what comes out, against plain numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs tenure[model]")
transformers = pytest.importorskip("transformers", reason="needs tenure[model]")

from tenure import ConfigError, TokenError
from tenure.scbench.attend import run
from tenure.scbench.blend import blend, deviation, gather
from tenure.scbench.kv import KV
from tenure.scbench.methods import METHODS
from tenure.scbench.methods.cacheblend import CacheBlend, Pieces
from tenure.scbench.reading import Reading, prefill

from . import brute
from .making import CLOSE, PIECE, SIZE, TOKENS, VOCABULARY, asked, ids, llama

BLEND, PIECES = CacheBlend(PIECE), Pieces(PIECE)
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}
MODELS: list[dict[str, Any]] = [{}, {"num_key_value_heads": 1}, {"num_key_value_heads": 4, "num_hidden_layers": 3}]


def far(found: KV, wanted: KV, layer: int) -> Any:
    """How far keys and values of each token are apart at most [tokens]."""
    keys, values = found.keys[layer] - wanted.keys[layer], found.values[layer] - wanted.values[layer]
    return torch.cat([keys, values], -1).abs().amax(-1).amax(0)


def recomputed(tokens: list[int], kv: KV, model: Any) -> list[int]:
    """Which tokens' KV is not as it was found."""
    found: list[int] = (far(kv, gather(model, tokens, PIECE, SIZE), 1) > 0).nonzero().flatten().tolist()
    return found


@pytest.mark.parametrize("changes", [*MODELS, {"rope_parameters": YARN}])
def test_moved_keys_are_those_computed_at_that_place(changes: dict[str, Any]) -> None:
    model, tokens = llama(2, **changes), ids(1, TOKENS)
    found, dense = gather(model, tokens, PIECE, SIZE), run(model, tokens, block_size=SIZE).kv
    assert far(found, dense, 0).max() < 1e-5
    assert (far(found, dense, 1)[PIECE:] > CLOSE).all()  # other layers saw only their piece
    for start in range(PIECE, TOKENS, PIECE):
        part = slice(start, start + PIECE)
        alone = run(model, tokens[part], block_size=SIZE).kv
        assert (found.keys[0][:, part] - alone.keys[0]).abs().max() > 0.1
        assert torch.equal(found.values[1][:, part], alone.values[1])


@pytest.mark.parametrize("changes", MODELS)
def test_pieces_are_those_of_plain_loops_in_every_layer(changes: dict[str, Any]) -> None:
    model, tokens = llama(1, **changes), ids(1, TOKENS)
    found = gather(model, tokens, PIECE, SIZE)
    for layer, (keys, values) in enumerate(brute.gathered(brute.Llama(model), tokens, PIECE)):
        assert abs(found.keys[layer].double().numpy() - keys).max() < CLOSE
        assert abs(found.values[layer].double().numpy() - values).max() < CLOSE
    assert (found.length, found.exact) == (TOKENS, PIECE)


@pytest.mark.parametrize("changes", MODELS)
@pytest.mark.parametrize("budget", [0.5, 0.25, 0.125])
def test_what_is_recomputed_and_the_answer_are_those_of_plain_loops(changes: dict[str, Any], budget: float) -> None:
    model, tokens, question = llama(1, **changes), ids(1, TOKENS), ids(2, 5)
    plain = brute.Llama(model)
    places, logits, kv = brute.blended(plain, tokens, PIECE, int(budget * TOKENS))
    context, found = asked(model, BLEND, budget, tokens, question)
    assert recomputed(tokens, context.kv, model) == places
    assert context.recomputed == len(places) == int(budget * TOKENS)
    assert context.logits is not None
    assert abs(context.logits.double().numpy() - logits).max() < CLOSE
    for layer, (keys, values) in enumerate(kv):
        assert abs(context.kv.keys[layer].double().numpy() - keys).max() < CLOSE
        assert abs(context.kv.values[layer].double().numpy() - values).max() < CLOSE
    longer = [(np.pad(keys, ((0, 0), (0, 5), (0, 0))), np.pad(values, ((0, 0), (0, 5), (0, 0)))) for keys, values in kv]
    assert abs(found.double().numpy() - plain.over(question, list(range(TOKENS, TOKENS + 5)), longer)).max() < CLOSE


def test_tokens_with_the_greatest_deviation_are_recomputed(tiny: Any) -> None:
    tokens = ids(1, TOKENS)
    found = gather(tiny, tokens, PIECE, SIZE)
    scores = deviation(tiny, tokens, found)
    assert scores.tolist() == pytest.approx(
        brute.deviations(brute.Llama(tiny), tokens, brute.gathered(brute.Llama(tiny), tokens, PIECE)), abs=CLOSE
    )
    assert scores[:PIECE].max() < CLOSE < scores[PIECE:].min()
    context = prefill(tiny, tokens, BLEND, 0.25, SIZE)
    chosen = recomputed(tokens, context.kv, tiny)
    others = sorted(set(range(PIECE, TOKENS)) - set(chosen))
    assert TOKENS - 1 in chosen
    assert scores[chosen[:-1]].min() > scores[others].max()
    least = sorted(range(PIECE, TOKENS - 1), key=lambda place: float(scores[place]))[: len(chosen) - 1]
    control = blend(tiny, tokens, found, torch.tensor([*sorted(least), TOKENS - 1]))
    assert control.recomputed == context.recomputed
    assert (control.logits - context.logits).abs().max() > 10 * CLOSE


def test_the_first_piece_is_never_recomputed(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever rounding makes of its deviation; of equals the first are taken."""
    monkeypatch.setattr("tenure.scbench.methods.cacheblend.deviation", lambda *_: (torch.arange(TOKENS) < PIECE).float())
    tokens = ids(1, TOKENS)
    context = prefill(tiny, tokens, BLEND, 0.25, SIZE)
    assert recomputed(tokens, context.kv, tiny) == [*range(PIECE, PIECE + 13), TOKENS - 1]


@pytest.mark.parametrize("changes", MODELS)
def test_recomputing_all_but_the_first_piece_is_dense(changes: dict[str, Any]) -> None:
    model, tokens = llama(3, **changes), ids(3, TOKENS)
    wanted = run(model, tokens, block_size=SIZE)
    direct = blend(model, tokens, gather(model, tokens, PIECE, SIZE), torch.arange(PIECE, TOKENS))
    for context in (direct, prefill(model, tokens, BLEND, 0.99, SIZE)):
        assert (context.logits - wanted.logits).abs().max() < CLOSE
        assert all(far(context.kv, wanted.kv, layer).max() < CLOSE for layer in range(wanted.kv.layers))
        assert (context.recomputed, context.kv.exact) == (TOKENS - PIECE, PIECE)


def test_a_budget_of_one_is_dense_and_a_smaller_one_is_not(tiny: Any) -> None:
    tokens = ids(1, TOKENS)
    wanted = prefill(tiny, tokens, block_size=SIZE)
    context = prefill(tiny, tokens, BLEND, 1, SIZE)
    assert torch.equal(context.logits, wanted.logits)
    assert all(torch.equal(one, other) for one, other in zip(context.kv.keys, wanted.kv.keys, strict=True))
    assert (context.recomputed, context.kv.exact, BLEND.attention(TOKENS, 1.0)) == (None, TOKENS, "full")
    assert (prefill(tiny, tokens, BLEND, 0.5, SIZE).logits - wanted.logits).abs().max() > 10 * CLOSE


@pytest.mark.parametrize("tokens", [1, PIECE - 1, PIECE])
@pytest.mark.parametrize("method", [BLEND, PIECES])
def test_one_piece_alone_is_dense(tiny: Any, method: CacheBlend, tokens: int) -> None:
    context, found = asked(tiny, method, 0.25, ids(1, tokens), ids(2, 5))
    assert torch.equal(found, asked(tiny, METHODS["dense"], 1.0, ids(1, tokens), ids(2, 5))[1])
    assert (context.recomputed, context.kv.exact, method.attention(tokens, 0.25)) == (None, tokens, "full")


@pytest.mark.parametrize("tokens", [TOKENS, 5 * PIECE, PIECE + 1])
def test_pieces_alone_attend_each_to_themselves(tiny: Any, tokens: int) -> None:
    """All but the last token, which is recomputed, and what follows."""
    text, question, plain = ids(4, tokens), ids(2, 5), brute.Llama(tiny)

    def visible(layer: int, head: int, row: int, at: brute.Layer) -> Any:
        seen = brute.everything(layer, head, row, at)
        if row < tokens - 1:
            seen[: row // PIECE * PIECE] = False
        return seen

    context, found = asked(tiny, PIECES, 1.0, text, question)
    wanted = plain.run(text + question, visible)
    assert abs(found.double().numpy() - wanted).max() < CLOSE
    for layer, by_loops in enumerate(plain.layers):
        assert abs(context.kv.keys[layer].double().numpy() - by_loops.keys[:, :tokens]).max() < CLOSE
        assert abs(context.kv.values[layer].double().numpy() - by_loops.values[:, :tokens]).max() < CLOSE
    assert context.recomputed == 1
    assert recomputed(text, context.kv, tiny) == [tokens - 1]


@pytest.mark.parametrize(("method", "budget"), [(BLEND, 0.5), (BLEND, 0.99), (PIECES, 1.0)])
def test_only_the_first_piece_is_exact_and_all_is_kept(tiny: Any, method: CacheBlend, budget: float) -> None:
    tokens = ids(1, TOKENS)
    context, dense = prefill(tiny, tokens, method, budget, SIZE), run(tiny, tokens).kv
    reading = Reading(tiny, context, method, budget)
    reading.feed(ids(2, 5))
    assert context.kv.exact == reading.joined().kv.exact == PIECE
    assert context.kv.resident == context.kv.full == reading.read == TOKENS * context.kv.token_bytes
    assert all(far(context.kv, dense, layer)[:PIECE].max() < CLOSE for layer in range(2))
    assert budget == 0.99 or far(context.kv, dense, 1)[PIECE:].max() > 10 * CLOSE
    assert context.kv.positions[1].tolist() == [list(range(TOKENS))] * 2
    assert method.attention(TOKENS, budget) == {"cacheblend": f"cacheblend(8,{budget})", "pieces": "pieces(8)"}[method.name]


@pytest.mark.parametrize(
    ("tokens", "budget", "count"), [(100, 0.25, 25), (100, 0.999, 92), (100, 0.001, 1), (9, 0.9, 1), (16, 0.5, 8)]
)
def test_how_many_are_recomputed(tiny: Any, tokens: int, budget: float, count: int) -> None:
    assert BLEND.recomputed(tokens, budget) == prefill(tiny, ids(1, tokens), BLEND, budget, SIZE).recomputed == count
    assert PIECES.recomputed(tokens, budget) == 1


@pytest.mark.parametrize("budget", [0.5, 0.01])
def test_nothing_deviates_in_a_model_of_one_layer(budget: float) -> None:
    model, tokens = llama(5, num_hidden_layers=1), ids(1, TOKENS)
    wanted = run(model, tokens, block_size=SIZE)
    context = prefill(model, tokens, BLEND, budget, SIZE)
    assert (context.logits - wanted.logits).abs().max() < CLOSE
    assert far(context.kv, wanted.kv, 0).max() < CLOSE
    assert context.kv.exact == PIECE


def test_kv_stays_in_the_models_dtype() -> None:
    model, tokens = llama(0).bfloat16(), ids(1, TOKENS)
    context, logits = asked(model, BLEND, 0.5, tokens, ids(2, 5))
    assert {part.dtype for part in (*context.kv.keys, *context.kv.values)} == {torch.bfloat16}
    assert logits.isfinite().all()
    dense = run(model, tokens, block_size=SIZE).kv
    scale = dense.keys[0].abs().max()
    assert (gather(model, tokens, PIECE, SIZE).keys[0] - dense.keys[0]).abs().max() < scale / 32


def test_what_is_found_and_the_model_stay_as_they_were(tiny: Any) -> None:
    tokens, before = ids(1, TOKENS), tiny.config._attn_implementation
    found = gather(tiny, tokens, PIECE, SIZE)
    copies = [part.clone() for part in (*found.keys, *found.values)]
    deviation(tiny, tokens, found)
    assert tiny.config._attn_implementation == before
    blend(tiny, tokens, found, torch.arange(PIECE, TOKENS, 3))
    assert all(torch.equal(part, copy) for part, copy in zip((*found.keys, *found.values), copies, strict=True))
    assert tiny.config._attn_implementation == before


def test_bad_sizes_budgets_and_tokens_are_refused_by_name(tiny: Any) -> None:
    for piece in (0, True, 2.5):
        with pytest.raises(ConfigError, match="piece is"):
            CacheBlend(piece)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="pieces are of 6 tokens: a multiple of the block size 4"):
        prefill(tiny, ids(1, TOKENS), CacheBlend(6), 0.5, SIZE)
    for method in (BLEND, PIECES):
        for budget in (0, 1.5, "half"):
            with pytest.raises(ConfigError, match="budget is"):
                method.assemble(tiny, ids(1, TOKENS), budget, SIZE)  # type: ignore[arg-type]
            with pytest.raises(ConfigError, match="budget is"):
                method.attention(TOKENS, budget)  # type: ignore[arg-type]
        with pytest.raises(TokenError, match="a token is"):
            prefill(tiny, [*ids(1, TOKENS), VOCABULARY], method, 0.5, SIZE)
        with pytest.raises(TokenError, match="no tokens"):
            prefill(tiny, [], method, 0.5, SIZE)
