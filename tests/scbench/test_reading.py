"""Readings: greedy text as transformers generates it, turns that are taken back or kept, contexts that many questions share."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs tenure[model]")
transformers = pytest.importorskip("transformers", reason="needs tenure[model]")

from tenure import ConfigError
from tenure.scbench.attend import run
from tenure.scbench.kv import Context
from tenure.scbench.methods import ALL, METHODS, Dropping, Method
from tenure.scbench.reading import Reading, feed, greedy, prefill, settle

from .making import CLOSE, SIZE, SMALL, TOKENS, ids


def test_greedy_text_is_what_transformers_generates(tiny: Any) -> None:
    tokens, question = ids(1, TOKENS), ids(2, 5)
    wanted = tiny.generate(torch.tensor([tokens + question]), max_new_tokens=12, do_sample=False)[0, TOKENS + 5 :].tolist()
    reading = Reading(tiny, prefill(tiny, tokens, block_size=SIZE))
    reading.feed(question)
    assert reading.greedy(12) == wanted
    assert reading.greedy(12, lambda found: found[-1] == wanted[4]) == wanted[: wanted.index(wanted[4]) + 1]
    assert reading.greedy(1) == wanted[:1]


@pytest.mark.parametrize("name", ["dense", "snapkv", "h2o", "quest", "inf_llm"])
def test_an_answer_that_is_thrown_away_leaves_no_trace(tiny: Any, name: str) -> None:
    context = prefill(tiny, ids(1, TOKENS), SMALL[name], 0.5, SIZE)
    one, two = (Reading(tiny, context, SMALL[name], 0.5) for _ in range(2))
    for reading in (one, two):
        reading.feed(ids(2, 5))
    one.greedy(7)
    assert torch.equal(one.feed(ids(3, 4)), two.feed(ids(3, 4)))
    joined = [reading.joined() for reading in (one, two)]
    assert joined[0].kv.length == joined[1].kv.length == TOKENS + 9
    for part, other in zip(joined[0].kv.keys, joined[1].kv.keys, strict=True):
        assert torch.equal(part, other)
    queries = [made.queries for made in joined]
    assert (queries[0] is None) == (SMALL[name].observes == 0)
    if queries[0] is not None and queries[1] is not None:
        assert queries[0].first == queries[1].first == max(0, TOKENS + 9 - SMALL[name].observes)
        assert torch.equal(queries[0].vectors[1], queries[1].vectors[1])


def test_an_answer_that_is_kept_is_there_for_what_comes_next(tiny: Any) -> None:
    tokens, question, next_one = ids(1, TOKENS), ids(2, 5), ids(3, 4)
    reading = Reading(tiny, prefill(tiny, tokens, block_size=SIZE))
    reading.feed(question)
    answer = reading.greedy(3)
    reading.feed(answer)
    found = reading.feed(next_one)
    assert (found - run(tiny, tokens + question + answer + next_one).logits).abs().max() < CLOSE
    assert reading.joined().kv.length == reading.joined().kv.exact == TOKENS + 12


def test_a_context_gives_the_first_token_of_an_answer_itself(tiny: Any) -> None:
    context = prefill(tiny, ids(1, TOKENS), SMALL["snapkv"], 0.25, SIZE)
    assert torch.equal(context.logits, run(tiny, ids(1, TOKENS)).logits)
    assert Reading(tiny, context, SMALL["snapkv"], 0.25).greedy(1) == [int(context.logits.argmax())]


def test_turns_join_and_are_compressed_again_by_the_queries_since(tiny: Any) -> None:
    """With all blocks kept so far, compressing what was joined is compressing a context that was prefilled whole."""
    method = SMALL["snapkv"]
    reading = Reading(tiny, prefill(tiny, ids(1, TOKENS), method, 1.0, SIZE), method)
    reading.feed(ids(2, 3))
    reading.feed(ids(3, 4))
    again = method.compress(reading.joined(), 0.5)
    whole = prefill(tiny, ids(1, TOKENS) + ids(2, 3) + ids(3, 4), method, 0.5, SIZE).kv
    assert again.length == whole.length == TOKENS + 7
    for layer in range(2):
        assert again.positions[layer].tolist() == whole.positions[layer].tolist()
        assert (again.keys[layer] - whole.keys[layer]).abs().max() < CLOSE


def test_blocks_that_turns_filled_can_be_left_unread(tiny: Any) -> None:
    method = METHODS["quest"]
    reading = Reading(tiny, prefill(tiny, ids(1, TOKENS), method, 0.75, SIZE), method, 0.75)
    reading.feed(ids(2, 10))
    context = reading.joined()
    assert (context.kv.sealed(0), context.kv.exact) == (16, TOKENS)
    later = Reading(tiny, context, method, 0.75)
    later.feed(ids(3, 2))
    assert later.metadata == 16 * context.kv.token_bytes
    assert later.read <= 0.75 * context.kv.full


@pytest.mark.parametrize("name", [name for name in sorted(SMALL) if SMALL[name].stage not in ("generation", "retrieval")])
def test_one_dense_context_serves_all_methods(tiny: Any, name: str) -> None:
    """With more queries on record than a method needs, it decides as on a context of its own."""
    method = SMALL[name]
    shared = prefill(tiny, ids(1, TOKENS), block_size=SIZE, observe=ALL)
    before = shared.kv.resident
    found = Reading(tiny, settle(shared, method, 0.5), method, 0.5)
    wanted = Reading(tiny, prefill(tiny, ids(1, TOKENS), method, 0.5, SIZE), method, 0.5)
    for question in (ids(2, 5), ids(3, 1)):
        assert torch.equal(found.feed(question), wanted.feed(question))
    assert found.read == wanted.read
    assert (found.joined().queries is None) == (wanted.joined().queries is None) == (method.observes == 0)
    assert shared.kv.resident == before == shared.kv.full


def test_questions_that_share_a_context_do_not_see_each_other(tiny: Any) -> None:
    context = prefill(tiny, ids(1, TOKENS), SMALL["expected"], 0.5, SIZE)
    readings = [Reading(tiny, context, SMALL["expected"], 0.5) for _ in range(2)]
    readings[0].feed(ids(2, 5))
    readings[1].feed(ids(3, 5))
    alone = Reading(tiny, context, SMALL["expected"], 0.5)
    alone.feed(ids(2, 5))
    assert torch.equal(readings[0].feed([7]), alone.feed([7]))


def test_answers_need_logits_and_a_length(tiny: Any) -> None:
    context = prefill(tiny, ids(1, TOKENS), block_size=SIZE)
    with pytest.raises(ConfigError, match="most is 0"):
        Reading(tiny, context).greedy(0)
    bare = type(context)(context.kv)
    with pytest.raises(ConfigError, match="feed tokens first"):
        Reading(tiny, bare).greedy(1)


def test_logits_that_are_no_numbers_are_no_answer(tiny: Any) -> None:
    context = prefill(tiny, ids(1, TOKENS))
    assert context.logits is not None
    context.logits[3] = torch.nan
    with pytest.raises(ConfigError, match="not numbers: the weights are damaged"):
        Reading(tiny, context).greedy(1)


def test_a_method_that_writes_into_what_others_read_is_refused(tiny: Any) -> None:
    class Wiping(Dropping):
        name = "wiping"

        def blocks(self, context: Context, layer: int, room: int) -> torch.Tensor:
            context.kv.values[layer].zero_()
            return torch.zeros(2, context.kv.sealed(layer))

    class Unsure(Dropping):
        name = "unsure"

        def blocks(self, context: Context, layer: int, room: int) -> torch.Tensor:
            return torch.full((2, context.kv.sealed(layer)), torch.nan)

    class Peeking(Method):
        name = "peeking"

        def choose(self, context: Context, budget: float) -> None:
            context.observed().vectors[0].add_(1)

    for method, reason in ((Wiping(), "method wiping changes what it is given"), (Unsure(), "scores are not all numbers")):
        with pytest.raises(ConfigError, match=reason):
            settle(prefill(tiny, ids(1, TOKENS)), method, 0.5)
    with pytest.raises(ConfigError, match="method peeking changes what it is given"):
        Reading(tiny, prefill(tiny, ids(1, TOKENS), observe=4), Peeking(), 0.5)


def test_several_readings_at_once_are_each_as_if_alone(tiny: Any) -> None:
    """Different methods, different lengths, and an answer that ends before the others."""
    dense = prefill(tiny, ids(1, TOKENS), block_size=SIZE, observe=ALL)
    names = [name for name, method in SMALL.items() if method.attention(TOKENS, 0.5) == "full"]

    def readings() -> list[Reading]:
        return [Reading(tiny, settle(dense, SMALL[name], 0.5), SMALL[name], 0.5) for name in names]

    texts = [ids(10 + number, 3 + number % 4) for number in range(len(names))]
    together, alone = readings(), readings()
    feed(together, texts)
    for one, other, text in zip(together, alone, texts, strict=True):
        assert (one.logits - other.feed(text)).abs().max() < CLOSE
        assert one.read == other.read
    stop = alone[0].greedy(3)[-1]
    said = greedy(together, 6, lambda ids: ids[-1] == stop)
    assert said == [other.greedy(6, lambda ids: ids[-1] == stop) for other in alone]
    assert len({len(ids) for ids in said}) > 1
    feed(together, [[5]] * len(names))
    for one, other in zip(together, alone, strict=True):
        assert (one.logits - other.feed([5])).abs().max() < CLOSE


def test_readings_go_apart(tiny: Any) -> None:
    first = Reading(tiny, prefill(tiny, ids(1, TOKENS), block_size=SIZE))
    first.feed(ids(2, 3))
    second = first.again()
    wanted = first.feed([7])
    second.feed([9, 9])
    assert torch.equal(first.again().feed([8]), first.feed([8]))
    assert torch.equal(wanted, run(tiny, [7], first._context.kv, run(tiny, ids(2, 3), first._context.kv).kv).logits)
