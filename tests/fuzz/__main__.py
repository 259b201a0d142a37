"""Fuzzes one target under atheris, guided by coverage: python -m fuzz TARGET [options of libFuzzer], from the folder tests."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["tenure.tiers", "tenure.cluster"]):
    from fuzz.targets import TARGETS

from fuzz.seeds import seeds


def main() -> None:
    target, *options = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="tenure-seeds-") as folder:
        for number, seed in enumerate(seeds()[target]):
            (Path(folder) / str(number)).write_bytes(seed)
        atheris.Setup([sys.argv[0], *options, folder], TARGETS[target])
        atheris.Fuzz()


main()
