"""Plain forward calls on Tenure, against a DynamicCache that is filled with the same cuts: chunks, forks, truncation, rows."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs tenure[model]")
transformers = pytest.importorskip("transformers", reason="needs tenure[model]")

from tenure import CapacityError

from .making import CLOSE, VOCABULARY, Served, cold_logits, left_padded, places, prompts

Serve = Callable[..., Served]
PROGRAMS = 20
STEPS = 300


@pytest.mark.parametrize("seed", range(12))
def test_logits_are_those_of_a_cold_run_cut_at_the_same_column(serve: Serve, seed: int) -> None:
    one = serve()
    rows = [prompts(seed, 1, 9 + seed)[0], prompts(seed + 50, 1, 26 - seed)[0]]
    inputs = left_padded(*(rows if seed % 3 else rows[:1]))
    for _ in range(2):
        with torch.no_grad(), one.engine.cache(**inputs) as cache:
            cut = cache.get_seq_length()
            found = one.model(inputs["input_ids"][:, cut:], attention_mask=inputs["attention_mask"], cache=cache).logits
        wanted = cold_logits(one.model, inputs["input_ids"], inputs["attention_mask"], cut=cut)
        real = inputs["attention_mask"][:, cut:].bool()
        assert (found - wanted)[real].abs().max() < CLOSE
    assert cut == min(len(row) // 4 * 4 + inputs["input_ids"].shape[1] - len(row) for row in rows[: len(real)]) or cut == (
        inputs["input_ids"].shape[1] - 1
    )


@pytest.mark.filterwarnings("ignore:`past_key_values` is deprecated")
def test_whole_prompts_may_be_fed_to_a_warm_cache(serve: Serve) -> None:
    one = serve()
    inputs = left_padded(prompts(1, 1, 21)[0], prompts(2, 1, 18)[0])
    for _ in range(2):
        with torch.no_grad(), one.engine.cache(**inputs) as cache:
            cut = cache.get_seq_length()
            found = one.model(**inputs, past_key_values=cache).logits  # the older name
        wanted = cold_logits(one.model, inputs["input_ids"], inputs["attention_mask"], cut=cut)
        assert found.shape == wanted.shape  # only what was computed
        assert (found[:, -1] - wanted[:, -1]).abs().max() < CLOSE
    assert cut == 19


@pytest.mark.parametrize("grad", ["inference first", "no_grad first"])
def test_inference_mode_and_no_grad_mix(serve: Serve, grad: str) -> None:
    one = serve()
    ids = prompts(1, 1, 20)
    modes = [torch.inference_mode, torch.no_grad][:: 1 if grad == "inference first" else -1]
    with modes[0](), one.engine.cache(ids) as cache:
        one.model(ids[:, :9], cache=cache)
        with modes[1]():
            found = one.model(ids[:, 9:], cache=cache).logits
    assert (found - cold_logits(one.model, ids, cut=9)).abs().max() < CLOSE


def test_a_chunk_can_be_hit_as_soon_as_the_next_begins(serve: Serve) -> None:
    one = serve()
    ids = prompts(1, 1, 20)
    with torch.no_grad(), one.engine.cache(ids) as cache:
        seen = []
        for start in range(0, 20, 5):
            one.model(ids[:, start : start + 5], cache=cache)
            seen.append(one.kv.match(ids[0], one.engine.who).hit_tokens)
    assert seen == [0, 4, 8, 12]
    assert one.kv.match(ids[0], one.engine.who).hit_tokens == 20


def test_only_what_was_computed_can_be_hit(serve: Serve) -> None:
    one = serve()
    ids = prompts(1, 1, 20)
    with torch.no_grad(), one.engine.cache(ids) as cache:
        one.model(ids[:, :11], cache=cache)
    assert one.kv.match(ids[0], one.engine.who).hit_tokens == 8
    one.engine.cache(ids).close()
    assert one.kv.match(ids[0], one.engine.who).hit_tokens == 8


def test_refused_drafts_are_not_cached(serve: Serve) -> None:
    one = serve()
    ids = prompts(1, 1, 24)
    with torch.no_grad(), one.engine.cache(ids[:, :6]) as cache:
        one.model(ids[:, :6], cache=cache)
        one.model(ids[:, 6:20], cache=cache)
        cache.crop(-10)
        one.model(ids[:, 20:21], cache=cache)
    assert one.kv.match(ids[0], one.engine.who).hit_tokens == 8
    assert one.kv.counts().cached == 2


@pytest.fixture
def nan_in_new_memory() -> Iterator[None]:
    """Memory that nobody has written holds NaN, which spreads wherever it is read."""
    torch.use_deterministic_algorithms(True)
    assert torch.empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("nan_in_new_memory")
def test_memory_that_nobody_has_written_is_not_read(serve: Serve) -> None:
    one = serve()
    inputs = left_padded(prompts(1, 1, 21)[0], prompts(2, 1, 14)[0])
    for _ in range(2):
        with torch.no_grad(), one.engine.cache(**inputs, room=50) as cache:
            cut = cache.get_seq_length()
            found = one.model(**inputs, cache=cache).logits[:, -1]
        wanted = cold_logits(one.model, inputs["input_ids"], inputs["attention_mask"], cut=cut)[:, -1]
        assert (found - wanted).abs().max() < CLOSE  # false for NaN
    assert cut == 19


@dataclass
class Pair:
    """A cache of ours and the oracle's, in the same state. ids: all tokens that are known, fed or not."""

    ours: Any
    theirs: Any
    ids: torch.Tensor
    mask: torch.Tensor

    @property
    def done(self) -> int:
        return int(self.ours.get_seq_length())

    @property
    def pad(self) -> int:
        return int((self.mask == 0).sum(1).max())

    def rows(self, indices: list[int]) -> None:
        self.ids, self.mask = self.ids[indices], self.mask[indices]


class Program:
    """Random steps on several open caches; after each the logits agree and the books are right."""

    def __init__(self, served: Served, seed: int) -> None:
        self.served = served
        self.random = random.Random(seed)
        self.stems = [prompts(1000 * seed + i, 1, 40)[0] for i in range(3)]
        self.pairs: list[Pair] = []
        self.skipped = 0
        self.refused = 0

    def step(self) -> None:
        verb = self.random.choices(
            ["open", "feed", "crop", "fork", "reorder", "select", "repeat", "close"], [3, 10, 3, 1, 2, 1, 1, 2]
        )[0]
        if verb == "open" or not self.pairs:
            if len(self.pairs) < 4:
                self.open()
        else:
            pair = self.random.choice(self.pairs)
            getattr(self, verb)(pair)
        self.served.kv.check()

    def prompt(self) -> torch.Tensor:
        stem = self.random.choice(self.stems)[: self.random.randint(1, 40)]
        tail = torch.tensor([self.random.randrange(1, VOCABULARY) for _ in range(self.random.randint(0, 6))], dtype=torch.long)
        return torch.cat([stem, tail])

    def open(self) -> None:
        inputs = left_padded(*(self.prompt() for _ in range(self.random.choice([1, 1, 1, 2, 3]))))
        ours = self.served.engine.cache(**inputs, strict=False, room=self.random.choice([0, 5, 64]))
        done = ours.get_seq_length()
        theirs = transformers.DynamicCache(config=self.served.model.config)
        pair = Pair(ours, theirs, inputs["input_ids"], inputs["attention_mask"])
        self.pairs.append(pair)
        if done:
            self.forward(pair, theirs, 0, done)
            for ours_layer, their_layer in zip(ours.layers, theirs.layers, strict=True):
                real = pair.mask[:, :done].bool()
                difference = (ours_layer.keys - their_layer.keys).transpose(1, 2)[real].abs()
                assert difference.numel() == 0 or difference.max() < CLOSE
        self.skipped += done
        self.refused += sum(error is not None for error in ours.refused)

    def forward(self, pair: Pair, cache: Any, start: int, stop: int) -> torch.Tensor:
        with torch.no_grad():
            found: torch.Tensor = self.served.model(
                pair.ids[:, start:stop],
                attention_mask=pair.mask[:, :stop],
                position_ids=places(pair.mask)[:, start:stop],
                cache=cache,
            ).logits
            return found

    def feed(self, pair: Pair) -> None:
        done, more = pair.done, self.random.choice([1, 1, 1, 2, 7])
        missing = max(done + more - pair.ids.shape[1], 0)
        rows = len(pair.ids)
        fresh = [[self.random.randrange(1, VOCABULARY) for _ in range(missing)] for _ in range(rows)]
        pair.ids = torch.cat([pair.ids, torch.tensor(fresh, dtype=torch.long).reshape(rows, missing)], 1)
        pair.mask = torch.cat([pair.mask, torch.ones((rows, missing), dtype=torch.long)], 1)
        found = self.forward(pair, pair.ours, done, done + more)
        wanted = self.forward(pair, pair.theirs, done, done + more)
        real = pair.mask[:, done : done + more].bool()
        assert not real.any() or (found - wanted)[real].abs().max() < CLOSE
        self.refused += sum(error is not None for error in pair.ours.refused)

    def crop(self, pair: Pair) -> None:
        most = pair.done - pair.pad
        if most <= 1:
            return
        count = self.random.randint(1, min(most - 1, 12))
        pair.ours.crop(-count)
        pair.theirs.crop(-count)
        pair.ids, pair.mask = pair.ids[:, : pair.done], pair.mask[:, : pair.done]

    def fork(self, pair: Pair) -> None:
        done = pair.done
        if len(self.pairs) < 5 and done > pair.pad:
            theirs = copy.deepcopy(pair.theirs)
            self.pairs.append(Pair(pair.ours.fork(), theirs, pair.ids[:, :done].clone(), pair.mask[:, :done].clone()))

    def reorder(self, pair: Pair) -> None:
        rows = len(pair.ids)
        self._take(pair, [self.random.randrange(rows) for _ in range(rows)], "reorder_cache")

    def select(self, pair: Pair) -> None:
        rows = len(pair.ids)
        self._take(pair, self.random.sample(range(rows), self.random.randint(1, rows)), "batch_select_indices")

    def _take(self, pair: Pair, indices: list[int], verb: str) -> None:
        getattr(pair.ours, verb)(torch.tensor(indices))
        getattr(pair.theirs, verb)(torch.tensor(indices))
        pair.rows(indices)

    def repeat(self, pair: Pair) -> None:
        if len(pair.ids) <= 2:
            pair.ours.batch_repeat_interleave(2)
            pair.theirs.batch_repeat_interleave(2)
            pair.rows([row for row in range(len(pair.ids)) for _ in range(2)])

    def close(self, pair: Pair) -> None:
        pair.ours.close(failed=self.random.random() < 0.3)
        self.pairs.remove(pair)


SETTINGS: list[dict[str, Any]] = [
    {},
    {"partial_reuse": 1},
    {"on_duplicate": "rewrite"},
    {"recompute_last": True, "policy": "slru"},
    {"partial_reuse": 2, "on_duplicate": "rewrite", "policy": "hazard"},
]


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_random_programs_agree(serve: Serve, seed: int) -> None:
    frames = 600 if seed % 2 else 28
    one = serve(frames=frames, **SETTINGS[seed % len(SETTINGS)])
    program = Program(one, seed)
    for _ in range(STEPS):
        program.step()
    assert program.skipped > 0
    assert bool(program.refused) == (frames == 28)
    for pair in program.pairs:
        pair.ours.close()


def test_control_the_program_notices_a_byte(serve: Serve) -> None:
    one = serve()
    program = Program(one, 1)

    def damaged() -> None:
        for _ in range(STEPS):
            program.step()
            one.arena.tensor[: one.arena.frames // 16] += 0.5

    with pytest.raises(AssertionError):
        damaged()
    for pair in program.pairs:
        pair.ours.close()


def test_strict_or_not(serve: Serve) -> None:
    one = serve(frames=8)
    ids = prompts(1, 1, 40)
    with pytest.raises(CapacityError) as error:
        one.engine.cache(ids)
    assert error.value.numbers["frames"] == 8
    with torch.no_grad(), one.engine.cache(ids, strict=False) as cache:
        assert isinstance(cache.refused[0], CapacityError)
        found = one.model(ids, cache=cache).logits
    assert (found - cold_logits(one.model, ids)).abs().max() < CLOSE
