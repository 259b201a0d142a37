"""Seeded workloads for the peer drivers, and the names both drivers give to blocks.

Two families, both plain JSON values:

* Request workloads (``request_workload``) are understood by both drivers:
  ``["admit", rid, tokens]``, ``["append", rid, tokens]``, ``["free", rid]``.
* Radix workloads (``radix_workload``) address the tree itself and suit only the
  SGLang driver: ``["insert", tokens, priority]``, ``["match", tokens]``,
  ``["evict", tokens_wanted]``, ``["lock", tokens]``, ``["unlock", tokens]``.

A block is named by its content: the number of tokens from the root to its end,
and the first 16 hexadecimal digits of the SHA-256 of those tokens as
little-endian unsigned 32-bit integers.

    python workloads.py KIND SEED        one request workload as JSON
    python workloads.py radix SEED [STRATEGY]
"""

from __future__ import annotations

import hashlib
import json
import random
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any

Tokens = list[int]
Op = list[Any]
Workload = dict[str, Any]

VOCABULARY = 32_000


def block_names(tokens: Sequence[int], block_size: int) -> list[tuple[int, str]]:
    """Name every full block of a path, root first."""
    digest = hashlib.sha256()
    names = []
    for end in range(block_size, len(tokens) + 1, block_size):
        digest.update(struct.pack(f"<{block_size}I", *tokens[end - block_size : end]))
        names.append((end, digest.hexdigest()[:16]))
    return names


class _Maker:
    """Collects the operations of one workload."""

    def __init__(self, seed: int, block_size: int) -> None:
        self.random = random.Random(seed)
        self.block_size = block_size
        self.ops: list[Op] = []
        self.running: list[str] = []
        self._next_id = 0

    def tokens(self, count: int) -> Tokens:
        return [self.random.randrange(VOCABULARY) for _ in range(count)]

    def length(self, least: int, most: int) -> int:
        """A length in tokens, given in blocks, and seldom a whole number of them."""
        return self.random.randint(least * self.block_size, most * self.block_size)

    def ragged(self, prompt: Tokens) -> Tokens:
        """Make sure that the last block of a prompt is partial.

        A prompt of whole blocks makes vLLM recompute its last block, so that the
        pool holds two blocks of the same content. Only "aligned" wants that.
        """
        return prompt + self.tokens(1) if len(prompt) % self.block_size == 0 else prompt

    def admit(self, prompt: Tokens) -> str:
        rid = f"r{self._next_id}"
        self._next_id += 1
        self.ops.append(["admit", rid, prompt])
        self.running.append(rid)
        return rid

    def append(self, rid: str, tokens: Tokens) -> None:
        self.ops.append(["append", rid, tokens])

    def free(self, rid: str) -> None:
        self.ops.append(["free", rid])
        self.running.remove(rid)

    def serve(self, prompt: Tokens, output: int = 0) -> Tokens:
        """Admit, decode and release one request; return all its tokens."""
        rid = self.admit(prompt)
        path = list(prompt)
        while output > 0:
            step = self.tokens(min(output, self.random.randint(1, self.block_size)))
            self.append(rid, step)
            path += step
            output -= len(step)
        self.free(rid)
        return path


def _shared(maker: _Maker, requests: int) -> None:
    """A few system prompts, of uneven popularity, each with one-off questions."""
    systems = [maker.tokens(maker.length(1, 8)) for _ in range(6)]
    for _ in range(requests):
        system = systems[min(maker.random.randrange(6), maker.random.randrange(6))]
        maker.serve(maker.ragged(system + maker.tokens(maker.length(0, 4))))


def _chat(maker: _Maker, requests: int) -> None:
    """Conversations that grow turn by turn and are sometimes resumed from earlier."""
    system = maker.tokens(maker.length(1, 3))
    turns: list[Tokens] = [system]
    for _ in range(requests):
        base = maker.random.choice(turns[-8:])
        if len(base) > 20 * maker.block_size:
            base = system
        prompt = maker.ragged(base + maker.tokens(maker.length(0, 3)))
        turns.append(maker.serve(prompt, output=maker.random.randint(0, 40)))


def _scan(maker: _Maker, requests: int) -> None:
    """A hot prefix, and long prompts that are seen once."""
    hot = maker.tokens(maker.length(4, 6))
    for index in range(requests):
        if index % 3:
            maker.serve(maker.ragged(hot + maker.tokens(maker.length(0, 2))))
        else:
            maker.serve(maker.ragged(maker.tokens(maker.length(8, 20))))


def _concurrent(maker: _Maker, requests: int) -> None:
    """Several running requests that share prefixes, decode, and end in any order."""
    bases = [maker.tokens(maker.length(1, 6)) for _ in range(5)]
    admitted = 0
    while admitted < requests or maker.running:
        choice = maker.random.random()
        if admitted < requests and (not maker.running or choice < 0.3):
            base = maker.random.choice(bases)
            prompt = maker.ragged(base + maker.tokens(maker.length(0, 3)))
            maker.admit(prompt)
            bases[maker.random.randrange(len(bases))] = prompt[: maker.length(1, 8)]
            admitted += 1
        elif choice < 0.75 and maker.running:
            rid = maker.random.choice(maker.running)
            maker.append(rid, maker.tokens(maker.random.randint(1, 2 * maker.block_size)))
        elif maker.running:
            maker.free(maker.random.choice(maker.running))


def _aligned(maker: _Maker, requests: int) -> None:
    """Prompts of whole blocks, sent again: vLLM then caches a second copy."""
    seen = [maker.tokens(maker.block_size * maker.random.randint(1, 6)) for _ in range(8)]
    for _ in range(requests):
        prompt = list(maker.random.choice(seen))
        if maker.random.random() < 0.5:
            prompt += maker.tokens(maker.block_size * maker.random.randint(1, 3))
        maker.serve(prompt)


REQUEST_KINDS: dict[str, Callable[[_Maker, int], None]] = {
    "shared": _shared,
    "chat": _chat,
    "scan": _scan,
    "concurrent": _concurrent,
    "aligned": _aligned,
}


def request_workload(
    kind: str,
    seed: int,
    *,
    blocks: int = 48,
    block_size: int = 16,
    requests: int = 80,
    strategy: str = "lru",
    one_page_nodes: bool = True,
) -> Workload:
    """One request workload; ``blocks`` is what requests can use, so it forces eviction.

    Only "aligned" makes vLLM hold two blocks of the same content. With
    ``one_page_nodes`` SGLang's tree gets one node per page; without it, nodes are
    as long as the insertions that made them, and whole nodes are evicted.
    """
    maker = _Maker(seed, block_size)
    REQUEST_KINDS[kind](maker, requests)
    return {
        "kind": kind,
        "seed": seed,
        "blocks": blocks,
        "block_size": block_size,
        "pages": blocks,
        "page_size": block_size,
        "strategy": strategy,
        "one_page_nodes": one_page_nodes,
        "ops": maker.ops,
    }


def radix_workload(
    seed: int,
    *,
    strategy: str = "lru",
    pages: int = 64,
    page_size: int = 16,
    operations: int = 300,
    one_page_nodes: bool = True,
    priorities: int = 1,
) -> Workload:
    """One workload on the radix tree itself, about ``pages`` pages large.

    Insertions branch off random earlier paths. Evictions ask for whole pages, and
    at times for less than one. ``priorities`` above 1 gives insertions random
    priorities below it.
    """
    maker = _Maker(seed, page_size)
    rng = maker.random
    paths: list[Tokens] = [maker.tokens(2 * page_size)]
    locked: list[Tokens] = []
    inserted = 0
    for _ in range(operations):
        choice = rng.random()
        base = rng.choice(paths[-16:])
        if choice < 0.45:
            keep = rng.randrange(len(base) + 1)
            path = base[:keep] + maker.tokens(maker.length(0, 4))
            if not path:
                continue
            maker.ops.append(["insert", path, rng.randrange(priorities)])
            paths.append(path)
            inserted += len(path) - keep
        elif choice < 0.75:
            maker.ops.append(["match", base[: rng.randint(1, len(base))]])
        elif choice < 0.83:
            maker.ops.append(["lock", base])
            locked.append(base)
        elif choice < 0.91 and locked:
            maker.ops.append(["unlock", locked.pop(rng.randrange(len(locked)))])
        if inserted > pages * page_size:
            wanted = rng.randint(1, max(1, inserted - pages * page_size // 2))
            maker.ops.append(["evict", wanted])
            inserted = max(0, inserted - wanted)
    for path in locked:
        maker.ops.append(["unlock", path])
    maker.ops.append(["evict", pages * page_size * 4])
    return {
        "kind": "radix",
        "seed": seed,
        "pages": pages,
        "page_size": page_size,
        "strategy": strategy,
        "one_page_nodes": one_page_nodes,
        "ops": maker.ops,
    }


def main(arguments: Sequence[str]) -> int:
    """Print one workload as JSON."""
    if len(arguments) < 2 or arguments[0] not in (*REQUEST_KINDS, "radix"):
        print(f"usage: workloads.py {{{','.join(REQUEST_KINDS)},radix}} SEED [STRATEGY]")
        return 2
    kind, seed = arguments[0], int(arguments[1])
    strategy = arguments[2] if len(arguments) > 2 else "lru"
    made = radix_workload(seed, strategy=strategy) if kind == "radix" else request_workload(kind, seed, strategy=strategy)
    print(json.dumps(made))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
