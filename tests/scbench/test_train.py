"""Training the induction model: seeded, it learns, and a plain start does not."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs tenure[model]")
pytest.importorskip("transformers", reason="needs tenure[model]")

from tenure.errors import ConfigError
from tenure.scbench import train as training
from tenure.scbench.induction import fresh, induction
from tenure.scbench.lexicon import Lexicon
from tenure.scbench.tasks import TASKS
from tenure.scbench.train import Plan, Progress, row, teach, train

SHORT = Plan(steps=60, climb=40, least=8, most=16, tokens=512, rate=2e-3, tasks=(("retr_kv", 1.0),))


def accuracy(model: Any, size: int) -> float:
    """The part of answers whose every token is the model's first choice, given the true tokens before it."""
    right = []
    for seed in range(4):
        session = TASKS["retr_kv"].seeded(seed, size, 4)
        ids, asked = row(session, Lexicon())
        with torch.no_grad():
            guess = model(torch.tensor([ids])).logits[0].argmax(-1).tolist()
        right += [guess[place - 1] == ids[place] for place in asked]
    return sum(right) / len(right)


def plain() -> Any:
    """The same shape with a start that knows nothing of look-ups."""
    model = fresh(0)
    random = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.copy_(torch.randn(parameter.shape, generator=random) * 0.02)
    return model


def test_a_short_training_learns_to_look_up_and_from_a_plain_start_it_does_not() -> None:
    """An answer is two tokens and the end of the line: who knows only that answers end has a third."""
    assert accuracy(fresh(0).eval(), 12) < 0.8
    model = teach(fresh(0), 0, SHORT)
    assert not model.training
    assert accuracy(model, 12) > 0.9
    assert accuracy(teach(plain(), 0, SHORT), 12) < 0.5


def test_equal_seeds_give_equal_weights_and_others_do_not() -> None:
    plan = Plan(steps=4, climb=2, least=8, most=12, tokens=256)
    torch.manual_seed(1)
    one = teach(fresh(5), 5, plan).state_dict()
    torch.manual_seed(2)
    state = torch.random.get_rng_state()
    two = teach(fresh(5), 5, plan).state_dict()
    other = teach(fresh(6), 6, plan).state_dict()
    assert torch.equal(state, torch.random.get_rng_state()), "the caller's generator is left alone"
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert not all(torch.equal(one[name], other[name]) for name in one)


def test_threads_are_given_back_and_progress_is_told() -> None:
    told: list[Progress] = []
    threads = torch.get_num_threads()
    plan = Plan(steps=3, climb=1, least=8, most=12, tokens=128)
    teach(fresh(0), 0, plan, told.append)
    assert torch.get_num_threads() == threads
    assert [(one.step, one.steps) for one in told] == [(1, 3), (2, 3), (3, 3)]
    assert all(one.loss > 0 and one.task in TASKS for one in told)


@pytest.mark.parametrize("name", [name for name, _ in Plan().tasks])
def test_only_answers_are_learnt(name: str) -> None:
    session = TASKS[name].session(Random(1), 12, 3)
    ids, asked = row(session, Lexicon())
    said = Lexicon().decode([ids[place] for place in asked])
    assert said == "".join(turn.answer + session.close for turn in session.turns)
    assert Lexicon().decode(ids).startswith(session.context + session.primer + session.turns[0].query)


def test_a_model_is_kept_whole_and_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENURE_CACHE", str(tmp_path))
    monkeypatch.setattr(training, "Plan", lambda: Plan(steps=2, climb=1, least=8, most=8, tokens=128))
    with pytest.raises(ConfigError, match="tenure scbench train"):
        induction(3)
    folder = train(3)
    assert train(3, lambda _: pytest.fail("trained twice")) == folder
    assert sum(file.stat().st_size for file in folder.iterdir()) < 2_000_000
    found = induction(3)
    assert found.weights == json.loads((folder / "tenure.json").read_text())["weights"]
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x7f")
    with pytest.raises(ConfigError, match="no induction model"):
        induction(3)
    assert train(3) == folder
    assert induction(3).weights == found.weights


def test_a_seed_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="seed"):
        train(-1)
