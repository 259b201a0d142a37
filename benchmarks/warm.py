"""A real model whose prefix lies below the device: the first token with it from host memory and disk, against none cached."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.model import BLOCK, DTYPES, PREFIX, TAIL, missing, timed
from benchmarks.ours import no_collection
from benchmarks.report import Row, ratio, save
from tenure import Identity

ROUNDS = 7
WANTED = {"host": 10.0, "disk": 6.0}
NAMES = {"host": "host memory", "disk": "disk"}
NOBODY = Identity("nobody")


class Bench:
    """The model on a node: device and host have room for one prompt, the disk for several."""

    def __init__(self, dtype: str, folder: Path) -> None:
        import torch

        from tenure.engines.transformers import Engine, layout_of, node_for
        from tenure.models import smollm2
        from tenure.tiers.device import DeviceArena

        loaded = smollm2(dtype)
        block = DeviceArena.block_bytes_of(layout_of(loaded.model), BLOCK, dtype)
        room = ((PREFIX + TAIL) // BLOCK + 4) * block
        self.kv = node_for(
            loaded.model,
            device_bytes=room,
            host_bytes=room,
            disk=folder,
            disk_bytes=6 * room,
            block_size=BLOCK,
            background=False,  # what is due is written between the measurements
        )
        self.engine = Engine(loaded.model, self.kv, who=Identity("smollm2", weights=loaded.weights))
        self.disk: Any = self.kv.levels["disk"].tier
        self.random = torch.Generator().manual_seed(0)
        self.others = 0

    def tokens(self, count: int) -> Any:
        import torch

        return torch.randint(100, 40_000, (1, count), generator=self.random)

    def first_tokens(self) -> dict[str, list[float]]:
        """Seconds to the first token: nothing cached; the prefix in host memory; the prefix on disk."""
        found: dict[str, list[float]] = {"cold": [], "host": [], "disk": []}
        for turn in range(ROUNDS + 1):
            prefix = self.tokens(PREFIX)
            for where, seconds in found.items():
                if where == "disk":
                    self.fill_up()
                if where != "cold":
                    self.empty_device()
                spent = self.first_token(prefix, where)
                if turn:  # the first round takes the memory from the system
                    seconds.append(spent)
        return found

    def first_token(self, prefix: Any, where: str) -> float:
        import torch

        prompt = torch.cat([prefix, self.tokens(TAIL)], 1)
        before = {tier: self.kv.tier_stats(tier).loaded for tier in WANTED}
        spent = timed(lambda: self.engine.generate(prompt, max_new_tokens=1, do_sample=False))
        came = {tier: self.kv.tier_stats(tier).loaded - before[tier] for tier in WANTED}
        if came != {tier: PREFIX // BLOCK if tier == where else 0 for tier in WANTED}:
            raise RuntimeError(f"the prefix was to come from {where}, and these blocks came: {came}")
        self.kv.flush()
        return spent

    def empty_device(self) -> None:
        """Evicts everything; what is below stays."""
        self.kv.sequence(range(self.kv.frames * BLOCK), NOBODY).abort()

    def fill_up(self) -> None:
        """Other blocks take the place of what is in host memory."""
        self.others += 1
        first = self.others * 1_000_000
        self.kv.sequence(range(first, first + self.kv.frames * BLOCK), NOBODY, written=True).release()
        self.kv.flush()


def run() -> None:
    if missing():
        return
    import torch

    torch.set_num_threads(1)
    rows: list[Row] = []
    for dtype in DTYPES:
        with tempfile.TemporaryDirectory(prefix="tenure-bench-", dir=os.environ.get("TENURE_DISK")) as folder:
            bench = Bench(dtype, Path(folder) / "store")
            with bench.kv, no_collection():
                found = bench.first_tokens()
        for tier, wanted in WANTED.items():
            through = "" if tier == "host" else ", O_DIRECT" if bench.disk.direct else ", through the page cache"
            what = f"time to the first token of {PREFIX + TAIL:,}: cold ÷ with {PREFIX:,} from {NAMES[tier]}"
            samples = {"cold": found["cold"], "warm": found[tier]}
            rows.append(Row(what, ratio(found["cold"], found[tier]), (">=", wanted), samples, dtype + through))
    save("warm", "A real model, its prefix below the device: SmolLM2-135M on the CPU, one thread", rows)
