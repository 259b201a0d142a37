"""One request, half of it cached, on a full pool: vLLM's KVCacheManager and SGLang's radix caches against ours, in turns."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from benchmarks.ours import frames_for, request_times
from benchmarks.report import Row, ratio, save

ROUNDS = 3
REPEATS = {2_048: 60, 32_768: 20, 131_072: 8}
HERE = Path(__file__).resolve().parent


def peer(name: str, tokens: int) -> list[dict[str, Any]] | None:
    """The runs of one peer at one length, None where it is not installed."""
    python = Path(os.environ.get("TENURE_PEERS", ".peers")) / name / "bin" / "python"
    if not python.exists():
        return None
    command = [str(python), str(HERE / f"peer_{name}.py"), "--tokens", str(tokens), "--repeats", str(REPEATS[tokens])]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    runs: list[dict[str, Any]] = json.loads(out.strip().splitlines()[-1])["runs"]
    return runs


def run() -> None:
    rows: list[Row] = []
    for tokens in REPEATS:
        ours: dict[str, list[float]] = {"array": [], "list": []}
        theirs: dict[str, list[float]] = {}
        for _ in range(ROUNDS):
            for name in ("vllm", "sglang"):
                for kind in ours:
                    ours[kind] += request_times(tokens, frames_for(tokens), REPEATS[tokens], as_list=kind == "list")
                for found in peer(name, tokens) or []:
                    label = f"{name}:{found.get('hash') or found.get('cache')}"
                    phases = found["raw_ns"]
                    total = [p for p in phases if p not in ("make", "total")]
                    theirs.setdefault(label, []).extend(map(sum, zip(*(phases[p] for p in total), strict=True)))
        rows += compare(tokens, ours, theirs)
    save("request", "One request: key, look-up, allocate under eviction, release", rows)


def compare(tokens: int, ours: dict[str, list[float]], theirs: dict[str, list[float]]) -> list[Row]:
    """vLLM by its fastest hash function and by its default; SGLang by each cache it has."""
    rows = []
    vllm = {label: times for label, times in theirs.items() if label.startswith("vllm")}
    fastest = min(vllm, key=lambda label: ratio(vllm[label], [1.0])) if vllm else None
    for kind, wanted in (("array", 30.0), ("list", 15.0)):
        for label in sorted({fastest, "vllm:sha256"} - {None}) if vllm else [None]:
            hashing = "not installed" if label is None else label.split(":")[1] + (", its fastest" if label == fastest else "")
            rows.append(
                Row(
                    f"{tokens:,} tokens from {'an array' if kind == 'array' else 'a list'}: vLLM's KVCacheManager ÷ ours",
                    ratio(vllm[label], ours[kind]) if label else None,
                    (">=", wanted) if tokens == 2_048 else None,
                    {"ours": ours[kind], "theirs": vllm.get(label or "", [])},
                    hashing,
                )
            )
    for label in sorted(label for label in theirs if label.startswith("sglang")):
        rows.append(
            Row(
                f"{tokens:,} tokens: SGLang's match, evict and insert ÷ ours",
                ratio(theirs[label], ours["array"]),
                (">=", 5.0) if label == "sglang:radix" else None,
                {"ours": ours["array"], "theirs": theirs[label]},
                label.split(":")[1],
            )
        )
    return rows
