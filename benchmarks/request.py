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
# SGLang's speed depends on how long its tree's nodes are: a tail that came as one request, or as 64 turns of a chat.
PEERS = (("vllm", ()), ("sglang", ("--tail-nodes", "1")), ("sglang", ("--tail-nodes", "64")))
HERE = Path(__file__).resolve().parent


def peer(name: str, tokens: int, *options: str) -> list[dict[str, Any]]:
    """The runs of one peer at one length; none where it is not installed."""
    python = Path(os.environ.get("TENURE_PEERS", ".peers")) / name / "bin" / "python"
    if not python.exists():
        return []
    command = [str(python), str(HERE / f"peer_{name}.py"), "--tokens", str(tokens), "--repeats", str(REPEATS[tokens]), *options]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    runs: list[dict[str, Any]] = json.loads(out.strip().splitlines()[-1])["runs"]
    return runs


def run() -> None:
    rows: list[Row] = []
    for tokens in REPEATS:
        ours: dict[str, list[float]] = {"array": [], "list": []}
        theirs: dict[str, list[float]] = {}
        for _ in range(ROUNDS):
            for name, options in PEERS:
                for kind in ours:
                    ours[kind] += request_times(tokens, frames_for(tokens), REPEATS[tokens], as_list=kind == "list")
                for found in peer(name, tokens, *options):
                    label = f"{name}:{found['hash']}" if name == "vllm" else f"{name}:{found['cache']}, {found['tail_nodes']}"
                    theirs.setdefault(label, []).extend(found["raw_ns"]["total"])
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
                (">=", 5.0) if label.startswith("sglang:radix") else None,
                {"ours": ours["array"], "theirs": theirs[label]},
                f"{label.split(':')[1]} node{'s' * (not label.endswith(', 1'))} a tail",
            )
        )
    return rows
