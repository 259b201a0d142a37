"""Every method of the registry on one contract; then each against scores and attention by loops in plain numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs tenure[model]")
transformers = pytest.importorskip("transformers", reason="needs tenure[model]")

from tenure import ConfigError
from tenure.scbench.attend import Ask, run
from tenure.scbench.kv import Context
from tenure.scbench.methods import METHODS, Dropping, Loading, Method, Rounding
from tenure.scbench.reading import Reading, prefill

from . import brute
from .making import CLOSE, SIZE, SMALL, TOKENS, asked, ids, llama

SEALED = TOKENS // SIZE
BUDGETS = [0.5, 0.25, 0.125, 0.0625]
NAMES = sorted(SMALL)
DROPPING = [name for name in NAMES if isinstance(SMALL[name], Dropping)]
LOADING = [name for name in NAMES if isinstance(SMALL[name], Loading)]
SHAPES = [name for name in NAMES if SMALL[name].stage == "generation"]
FOUND = [name for name in NAMES if SMALL[name].stage == "retrieval"]


def metadata(name: str) -> float:
    """What a loading method stores, as a fraction of the KV."""
    sealed = SEALED * SIZE / TOKENS
    return {"quest": sealed / SIZE, "inf_llm": sealed / SIZE / 2}.get(name, 0.0)


def fits(budget: float, meta: float = 0.0, name: str = "", layer: int = 0) -> int:
    """How many sealed blocks a budget pays for; a pyramid of slope 2 on two layers has 3/2 of it below and 1/2 above."""
    budget *= (1.5, 0.5)[layer] if name == "pyramidkv" else 1
    return max(0, int((budget - meta) * TOKENS - TOKENS % SIZE) // SIZE)


def test_the_registry_is_by_name_and_by_stage() -> None:
    assert all(name == method.name for name, method in METHODS.items())
    assert {method.stage for method in METHODS.values()} == {"none", "generation", "retrieval", "compression", "loading"}
    for method in METHODS.values():
        assert method.memory == ("O(k)" if isinstance(method, Dropping) else "O(n)")
        assert method.fixed == (isinstance(method, Rounding) or method.name in ("dense", "pieces"))


@pytest.mark.parametrize("name", ["dense", *(name for name in NAMES if not SMALL[name].fixed)])
def test_a_budget_that_does_not_bind_is_exactly_dense(tiny: Any, name: str) -> None:
    wanted, logits = asked(tiny, METHODS["dense"], 1.0, ids(1, TOKENS), ids(2, 5))
    context, found = asked(tiny, SMALL[name], 1.0, ids(1, TOKENS), ids(2, 5))
    assert torch.equal(found, logits)
    assert context.kv.exact == TOKENS
    for part, other in zip((*context.kv.keys, *context.kv.values), (*wanted.kv.keys, *wanted.kv.values), strict=True):
        assert torch.equal(part, other)
    assert SMALL[name].attention(TOKENS, 1.0) == "full"


@pytest.mark.parametrize("name", [*DROPPING, *LOADING, *SHAPES, *FOUND])
def test_a_budget_that_binds_changes_the_answer(tiny: Any, name: str) -> None:
    _, logits = asked(tiny, METHODS["dense"], 1.0, ids(1, TOKENS), ids(2, 5))
    assert not torch.equal(asked(tiny, SMALL[name], 0.25, ids(1, TOKENS), ids(2, 5))[1], logits)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_input_gives_the_same_answer_and_nothing_is_changed(tiny: Any, name: str) -> None:
    context = prefill(tiny, ids(1, TOKENS), SMALL[name], 0.25, SIZE)
    before = [part.clone() for part in (*context.kv.keys, *context.kv.values)]
    found = [Reading(tiny, context, SMALL[name], 0.25).feed(ids(2, 5)) for _ in range(2)]
    again, logits = asked(tiny, SMALL[name], 0.25, ids(1, TOKENS), ids(2, 5))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], logits)
    for part, was, other in zip((*context.kv.keys, *context.kv.values), before, (*again.kv.keys, *again.kv.values), strict=True):
        assert torch.equal(part, was)
        assert torch.equal(part, other)


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("name", DROPPING)
def test_dropping_keeps_to_the_budget_and_leaves_the_open_block(tiny: Any, name: str, budget: float) -> None:
    kv = prefill(tiny, ids(1, TOKENS), SMALL[name], budget, SIZE).kv
    rooms = [fits(budget, 0, name, layer) for layer in range(2)]
    for layer, room in enumerate(rooms):
        assert kv.slots(layer) == room * SIZE + 1
        for head in kv.positions[layer].tolist():
            assert head[-1] == TOKENS - 1
            assert head == sorted(head)
            assert all(head[at : at + SIZE] == list(range(head[at], head[at] + SIZE)) for at in range(0, room * SIZE, SIZE))
            assert all(head[at] % SIZE == 0 for at in range(0, room * SIZE, SIZE))
    assert kv.resident == (sum(rooms) * SIZE + 2) * kv.token_bytes / 2
    assert kv.resident <= budget * kv.full or 0 in rooms
    untouched = run(tiny, ids(1, TOKENS), block_size=SIZE).kv
    for layer, (part, whole) in enumerate(zip(kv.keys, untouched.keys, strict=True)):
        for head in range(2):
            assert torch.equal(part[head], whole[head, kv.positions[layer][head]])


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("name", LOADING)
def test_loading_keeps_all_and_reads_within_the_budget(tiny: Any, name: str, budget: float) -> None:
    context = prefill(tiny, ids(1, TOKENS), SMALL[name], budget, SIZE)
    reading = Reading(tiny, context, SMALL[name], budget)
    assert reading.read == 0
    reading.feed(ids(2, 5))
    meta = metadata(name)
    assert reading.metadata == pytest.approx(meta * context.kv.full)
    assert context.kv.resident == context.kv.full
    room = fits(budget, meta)
    assert reading.read == pytest.approx((room * SIZE + 1) * context.kv.token_bytes + meta * context.kv.full)
    assert reading.read <= budget * context.kv.full or room == 0


def test_dense_and_thinned_kv_are_read_whole(tiny: Any) -> None:
    for method, budget in ((METHODS["dense"], 1.0), (METHODS["streaming"], 0.25)):
        context = prefill(tiny, ids(1, TOKENS), method, budget, SIZE)
        reading = Reading(tiny, context, method, budget)
        reading.feed(ids(2, 5))
        assert reading.read == context.kv.resident


def token_scores(plain: brute.Llama, name: str, layer: int) -> list[list[float]]:
    return {
        "snapkv": lambda: brute.snapkv(plain, layer, 6, 3),
        "pyramidkv": lambda: brute.snapkv(plain, layer, 6, 3),
        "tova": lambda: brute.tova(plain, layer),
        "h2o": lambda: brute.h2o(plain, layer),
        "keydiff": lambda: brute.keydiff(plain, layer),
        "expected": lambda: brute.expected(plain, layer, 24, 4),
    }[name]()


def kept_by_loops(plain: brute.Llama, name: str, layer: int, room: int) -> list[set[int]]:
    """[kv_heads]: the sealed blocks that stay."""
    if name == "streaming":
        return [({0} if room else set()) | set(range(SEALED - room + 1, SEALED))] * 2
    found = []
    for scores in token_scores(plain, name, layer):
        sums = brute.block_sums(scores, SIZE)
        recent = set(range(SEALED - room // 2, SEALED)) if name == "h2o" else set()
        others = [block for block in range(SEALED) if block not in recent]
        best = brute.top([sums[block] for block in others], room - len(recent))
        found.append(recent | {others[place] for place in best})
    return found


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", sorted(set(DROPPING) - {"random", "streaming"}))
def test_scores_of_tokens_are_those_of_plain_loops(seed: int, name: str) -> None:
    model, tokens = llama(seed), ids(seed, TOKENS)
    plain = brute.Llama(model)
    plain.run(tokens)
    method: Any = SMALL[name]
    context = prefill(model, tokens, method, 1.0, SIZE)
    for layer in range(2):
        found, wanted = method.tokens(context, layer), torch.tensor(token_scores(plain, name, layer))
        torch.testing.assert_close(found.double(), wanted.double(), atol=CLOSE, rtol=0)


@pytest.mark.parametrize("budget", [0.5, 0.25])
@pytest.mark.parametrize("name", sorted(set(DROPPING) - {"random"}))
def test_what_stays_and_the_answer_are_those_of_plain_loops(tiny: Any, name: str, budget: float) -> None:
    tokens, question, plain = ids(1, TOKENS), ids(2, 5), brute.Llama(tiny)
    plain.run(tokens)
    wanted = [kept_by_loops(plain, name, layer, fits(budget, 0, name, layer)) for layer in range(2)]
    context, found = asked(tiny, SMALL[name], budget, tokens, question)
    for layer in range(2):
        kept = [{place // SIZE for place in head[:-1]} for head in context.kv.positions[layer].tolist()]
        assert kept == wanted[layer]

    def visible(layer: int, head: int, row: int, at: brute.Layer) -> Any:
        seen = brute.everything(layer, head, row, at)
        if row >= TOKENS:
            for block in set(range(SEALED)) - wanted[layer][head]:
                seen[block * SIZE : (block + 1) * SIZE] = False
        return seen

    assert abs(found.double().numpy() - plain.run(tokens + question, visible)).max() < CLOSE


@pytest.mark.parametrize("budget", [0.5, 0.375])
@pytest.mark.parametrize("name", sorted(set(LOADING) - {"random-reads"}))
def test_what_is_read_and_the_answer_are_those_of_plain_loops(tiny: Any, name: str, budget: float) -> None:
    tokens, question, plain = ids(1, TOKENS), ids(2, 5), brute.Llama(tiny)
    room = fits(budget, metadata(name))
    assert 0 < room < SEALED
    read: dict[tuple[int, int, int], set[int]] = {}
    by_loops: dict[tuple[int, int, int], list[float]] = {}

    def visible(layer: int, head: int, row: int, at: brute.Layer) -> Any:
        seen = brute.everything(layer, head, row, at)
        if row < TOKENS:
            return seen
        if name == "inf_llm":
            scores = brute.inf_llm(plain, at, head, row, SIZE, SEALED, TOKENS, 64, 1)
        else:
            scores = {"quest": brute.quest, "oracle": brute.oracle}[name](plain, at, head, row, SIZE, SEALED)
        by_loops[layer, head, row - TOKENS] = scores
        read[layer, head, row - TOKENS] = brute.top(scores, room)
        for block in set(range(SEALED)) - read[layer, head, row - TOKENS]:
            seen[block * SIZE : (block + 1) * SIZE] = False
        return seen

    wanted = plain.run(tokens + question, visible)
    context = prefill(tiny, tokens, SMALL[name], budget, SIZE)
    method: Any = SMALL[name]
    choice = method.choose(context, budget)
    assert choice is not None
    chosen: dict[tuple[int, int, int], set[int]] = {}

    def watched(ask: Ask) -> Any:
        mask, scores = choice(ask), method.score(ask, context.kv, method.describe(context, ask.layer))
        for head in range(2):
            for row in range(len(question)):
                assert scores[head, row].tolist() == pytest.approx(by_loops[ask.layer, head, row], abs=CLOSE)
                chosen[ask.layer, head, row] = set(mask[head, row].nonzero().flatten().tolist())
        return mask

    found = run(tiny, question, context.kv, choose=watched).logits
    assert chosen == read
    assert abs(found.double().numpy() - wanted).max() < CLOSE
    assert torch.equal(Reading(tiny, context, method, budget).feed(question), found)


@pytest.mark.parametrize("name", SHAPES)
def test_prefills_of_a_shape_are_those_of_plain_loops(tiny: Any, name: str) -> None:
    """Of the context by tokens; of a question of seven by blocks that are in the shape at least in part, then a token alone."""
    tokens, question, budget, plain = ids(1, TOKENS), ids(2, 8), 0.6, brute.Llama(tiny)
    sink, window, tail = 1, 33, {"a_shape": 0, "tri_shape": 5}[name]
    assert int(budget * TOKENS) == sink + window

    def visible(layer: int, head: int, row: int, at: brute.Layer) -> Any:
        ends = TOKENS if row < TOKENS else TOKENS + 7
        if row >= ends - tail:  # the eighth token is alone
            return brute.everything(layer, head, row, at)
        near = [token < sink or row - token < window for token in range(row + 1)]
        if row >= TOKENS:
            sealed = range(SEALED * SIZE)
            near = [any(near[token // SIZE * SIZE :][:SIZE]) if token in sealed else True for token in range(row + 1)]
        return np.array(near)

    context = prefill(tiny, tokens, SMALL[name], budget, SIZE)
    assert context.logits is not None
    assert abs(context.logits.double().numpy() - plain.run(tokens, visible)).max() < CLOSE
    for layer, wanted in enumerate(plain.layers):
        assert abs(context.kv.keys[layer].double().numpy() - wanted.keys).max() < CLOSE
    assert context.kv.exact == 0
    label = SMALL[name].attention(TOKENS, budget)
    assert label.startswith(f"{name}({sink},{window}")
    assert label != SMALL[name].attention(TOKENS - SIZE, budget)
    reading = Reading(tiny, context, SMALL[name], budget)
    assert abs(reading.feed(question[:7]).double().numpy() - plain.run(tokens + question[:7], visible)).max() < CLOSE
    assert 0.5 * context.kv.full < reading.read < context.kv.full
    assert abs(reading.feed(question[7:]).double().numpy() - plain.run(tokens + question, visible)).max() < CLOSE


def test_methods_differ_in_what_they_keep(tiny: Any) -> None:
    """A control for the comparisons above: no two scores are the same by accident."""
    kept = {name: prefill(tiny, ids(1, TOKENS), SMALL[name], 0.5, SIZE).kv.positions[1].tolist() for name in DROPPING}
    assert all(kept[one] != kept[two] for one in kept for two in kept if one < two)


def test_oracle_reads_more_attention_than_any_other(tiny: Any) -> None:
    """Of equal bytes, so without what others store: the control is an upper bound."""
    tokens, question = ids(1, TOKENS), ids(2, 5)
    context = prefill(tiny, tokens, METHODS["h2o"], 1.0, SIZE)

    def mass(name: str) -> float:
        choice = METHODS[name].choose(context, 0.5)
        total = 0.0

        def watched(ask: Ask) -> Any:
            nonlocal total
            assert choice is not None
            mask = choice(ask)
            true = METHODS["oracle"].score(ask, context.kv, torch.empty(0))  # type: ignore[attr-defined]
            total += float(true[mask].sum()) if ask.layer == 0 else 0.0  # later layers see what the first one read
            return mask

        run(tiny, question, context.kv, choose=watched)
        return total

    assert mass("oracle") > max(mass(name) for name in LOADING if name != "oracle")


@pytest.mark.parametrize("name", ["snapkv", "pyramidkv", "h2o", "tova", "expected", "inf_llm"])
def test_methods_that_need_queries_say_so(tiny: Any, name: str) -> None:
    bare = Context(run(tiny, ids(1, TOKENS), block_size=SIZE).kv)
    with pytest.raises(ConfigError, match="records them"):
        SMALL[name].compress(bare, 0.5) if isinstance(SMALL[name], Dropping) else SMALL[name].choose(bare, 0.5)


@pytest.mark.parametrize("budget", [0, -0.5, 1.5, float("nan"), "half", True])
def test_budgets_that_are_no_fractions_are_refused(tiny: Any, budget: Any) -> None:
    with pytest.raises(ConfigError, match="budget is"):
        prefill(tiny, [1, 2, 3], METHODS["dense"], budget)
    context = prefill(tiny, ids(1, TOKENS), METHODS["dense"], 1.0, SIZE)
    for method in (METHODS["streaming"], METHODS["pyramidkv"], METHODS["quest"]):
        with pytest.raises(ConfigError, match="budget is"):
            Reading(tiny, context, method, budget)
        with pytest.raises(ConfigError, match="budget is"):
            method.compress(context, budget) if isinstance(method, Dropping) else method.choose(context, budget)


@pytest.mark.parametrize("tokens", [1, 3, 4, 5])
@pytest.mark.parametrize("name", NAMES)
def test_contexts_shorter_than_a_window_or_a_block_work(tiny: Any, name: str, tokens: int) -> None:
    method: Method = METHODS[name]
    context, logits = asked(tiny, method, 0.25, ids(1, tokens), ids(2, 2))
    assert logits.isfinite().all()
    assert context.kv.length == tokens
    assert all(context.kv.slots(layer) in (tokens, tokens % SIZE) for layer in range(2))


def test_a_new_method_is_one_score(tiny: Any) -> None:
    class Longest(Dropping):
        name = "longest"

        def blocks(self, context: Context, layer: int, room: int) -> Any:
            values = context.kv.values[layer][:, : context.kv.sealed(layer) * SIZE]
            return values.norm(dim=-1).unflatten(1, (-1, SIZE)).sum(-1)

    kv = prefill(tiny, ids(1, TOKENS), Longest(), 0.5, SIZE).kv
    assert kv.resident <= kv.full / 2
