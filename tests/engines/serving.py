"""Serves the recorded prompts from a store on disk, then goes on until it is killed: python -m tests.engines.serving FOLDER.
Says "served" when the prompts are on disk, and a dot for each request after that."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from tenure.models import smollm2

from .recorded import house, recorded


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    loaded = smollm2()
    prompts = recorded(loaded)
    engine = house(loaded, sum(ids.shape[1] for ids in prompts), disk=folder)
    one = {"max_new_tokens": 1, "do_sample": False}
    for ids in prompts:
        engine.generate(ids, **one)
        engine.kv.flush()
    print("served", flush=True)
    r = torch.Generator().manual_seed(0)
    for _ in range(16):  # less than the room that is left
        engine.generate(torch.randint(100, 40_000, (1, 64), generator=r), **one)
        print(".", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
