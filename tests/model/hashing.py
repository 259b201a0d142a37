"""The core's content hash, in plain Python: what the ghosts of policies and of the ledger are filed under.
Used by the reference; a hit never depends on it."""

from __future__ import annotations

from functools import cache

_ALL = (1 << 64) - 1


def fold(a: int, b: int) -> int:
    """Both halves of the 128-bit product, xored."""
    product = a * b
    return (product ^ (product >> 64)) & _ALL


def mix(x: int) -> int:
    """David Stafford's variant 13 of the MurmurHash3 finaliser."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & _ALL
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & _ALL
    return x ^ (x >> 31)


@cache
def bytes_hash(data: bytes | None) -> int:
    """Of an extra key: FNV-1a, mixed; 0 for no key."""
    if data is None:
        return 0
    h = 0xCBF29CE484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 & _ALL
    return mix(h)


@cache
def chain_hash(before: int, extra: int, tokens: tuple[int, ...]) -> int:
    """The chain value of a block: of all before it, its extra key and its tokens; four tokens at a time, then one by one."""
    total, at = 0, 0x9E3779B97F4A7C15
    whole = len(tokens) - len(tokens) % 4
    for i in range(0, whole, 4):
        x, y = tokens[i] | tokens[i + 1] << 32, tokens[i + 2] | tokens[i + 3] << 32
        total += fold(x ^ at, y ^ 0xE7037ED1A0B428DB ^ (at << 1 & _ALL))
        at = at + 0xA0761D6478BD642F & _ALL
    for token in tokens[whole:]:
        total += fold(token ^ at, 0x8EBC6AF09C88C6E3 ^ (at << 1 & _ALL))
        at = at + 0xA0761D6478BD642F & _ALL
    total &= _ALL
    return mix(fold(before ^ 0x589965CC75374CC3, total ^ 0x1D8E4E27C47D124F) + extra * 0xEB44ACCAB455D165 + total & _ALL)


def first_salt(seed: int) -> int:
    """What the first block of every prompt is chained to."""
    return mix(seed ^ 0x74656E757265)


def space_salt(seed: int, space: int) -> int:
    """What tells the ghosts of one namespace from those of another."""
    return mix(first_salt(seed) + 0x9E3779B97F4A7C15 * (space + 1) & _ALL)
