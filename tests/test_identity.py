"""Identity: known answers for namespaces and digest chains, worked out here by another hand, and frozen."""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from conftest import Build
from helpers import in_another_process, put

from tenure import Identity, Layout, content_digest
from tenure.errors import ConfigError, IdentityError, TokenError

PLAIN = Identity("m")
FULL = Identity(
    "smollm2-135m",
    weights="3f2a",
    tenant="acme",
    adapter=b"\x01\x02",
    tokenizer="t",
    kv_dtype="fp8",
    quantisation="int4",
    layout=Layout(30, 3, 64, 1, 2),
    attention="window-4096",
    epoch=7,
)
PUBLIC = replace(FULL, public=True)


def length(count: int) -> bytes:
    return count.to_bytes(8, "little")


def framed(value: bytes) -> bytes:
    return length(len(value)) + value


def text(value: str) -> bytes:
    return b"s" + framed(value.encode())


def number(value: int) -> bytes:
    return b"i" + framed(str(value).encode())


def namespace_by_hand(who: Identity) -> str:
    """Name and typed value of each field, each behind its length; a public identity names no tenant."""

    def digest(value: str | bytes) -> bytes:
        return b"y" + framed(value) if isinstance(value, bytes) else text(value)

    layout = b"n"
    if who.layout is not None:
        sizes = (who.layout.layers, who.layout.heads, who.layout.head_size, who.layout.shard, who.layout.shards)
        layout = b"l" + b"".join(number(size) for size in sizes)
    parts = [
        ("model", text(who.model)),
        ("weights", digest(who.weights)),
        ("tenant", text("" if who.public else who.tenant)),
        ("adapter", digest(who.adapter)),
        ("tokenizer", digest(who.tokenizer)),
        ("kv_dtype", text(who.kv_dtype)),
        ("quantisation", text(who.quantisation)),
        ("layout", layout),
        ("attention", text(who.attention)),
        ("epoch", number(who.epoch)),
        ("public", b"b\x01" if who.public else b"b\x00"),
    ]
    data = framed(b"tenure.identity.1") + b"".join(framed(name.encode()) + value for name, value in parts)
    return hashlib.sha256(data).hexdigest()


def chain_by_hand(who: Identity, tokens: list[int], size: int, extra: dict[int, bytes]) -> list[str]:
    """BLAKE2b-256, keyed with the namespace: the parent's digest, the extra key, the tokens, each behind its length."""
    digests = []
    parent = b""
    for block in range(len(tokens) // size):
        ids = b"".join(token.to_bytes(4, "little") for token in tokens[block * size : (block + 1) * size])
        data = framed(parent) + framed(extra.get(block, b"")) + framed(ids)
        parent = hashlib.blake2b(data, digest_size=32, key=who.namespace, person=b"tenure.block.1").digest()
        digests.append(parent.hex())
    return digests


NAMESPACES = {
    "plain": (PLAIN, "38725c307518ee3f7d5271aa79d869da4cea2387c08bc1d98e82677f4b70fcc0"),
    "full": (FULL, "224b9cb054f990ae50b4ec947907215adc7a8ef8d6354ee93ba351494055475b"),
    "public": (PUBLIC, "fe3dbbee4e8085d000d86caf0b3e709c76079afb512e30b1f5350896c2667938"),
}


@pytest.mark.parametrize("name", NAMESPACES)
def test_the_namespace_is_the_known_answer(name: str) -> None:
    who, known = NAMESPACES[name]
    assert who.namespace.hex() == namespace_by_hand(who) == known


TOKENS = [0, 1, 2, 3, 100, 2**31 - 1, 7, 8, 9]
CHAIN = [
    "cdec1a60cc6e2219bd84ff4b2b54f7691f0d343d2eea8075f65de6a3df8fc5f0",
    "e8ef93b55f1b359c2d469f6e7887d732aeb0674ef1fa6c2bccef2b917cad265c",
]


def test_the_digest_chain_is_the_known_answer() -> None:
    extra = {1: b"image:0"}
    chain = [digest.hex() for digest in FULL.digest_chain(TOKENS, 4, extra)]
    assert chain == chain_by_hand(FULL, TOKENS, 4, extra) == CHAIN


def test_content_digest_is_the_known_answer() -> None:
    by_hand = hashlib.sha256(framed(b"ab") + framed(b"") + framed(b"c")).hexdigest()
    assert content_digest(b"ab", b"", memoryview(b"c")) == by_hand
    assert by_hand == "fc8c9cb2fcf043eccbb4a1d9db773cf56aac8ccc96cd90987a38a862db532f0b"
    assert content_digest() == hashlib.sha256().hexdigest()
    assert content_digest(np.arange(3, dtype="<i4").data) == content_digest(np.arange(3, dtype="<i4").tobytes())


IN_ANOTHER = """
from tenure import Identity, Layout
who = Identity("smollm2-135m", weights="3f2a", tenant="acme", adapter=b"\\x01\\x02", tokenizer="t", kv_dtype="fp8",
    quantisation="int4", layout=Layout(30, 3, 64, 1, 2), attention="window-4096", epoch=7)
print(who.namespace.hex())
for digest in who.digest_chain([0, 1, 2, 3, 100, 2**31 - 1, 7, 8, 9], 4, {1: b"image:0"}):
    print(digest.hex())
"""


@pytest.mark.parametrize("seed", ["0", "1", "4294967295"])
def test_digests_are_the_same_in_another_process(seed: str) -> None:
    assert in_another_process(IN_ANOTHER, PYTHONHASHSEED=seed).split() == [FULL.namespace.hex(), *CHAIN]


OTHERS: list[dict[str, Any]] = [
    {"model": "smollm2-135"},
    {"weights": "3f2b"},
    {"weights": b"3f2a"},
    {"tenant": "acme2"},
    {"adapter": b"\x01"},
    {"adapter": b""},
    {"adapter": "\x01\x02"},
    {"tokenizer": "t2"},
    {"kv_dtype": "bf16"},
    {"quantisation": "int8"},
    {"layout": None},
    {"layout": Layout(30, 3, 64, 0, 2)},
    {"layout": Layout(30, 3, 64, 1, 4)},
    {"layout": Layout(3, 30, 64, 1, 2)},
    {"layout": Layout(30, 3, 6, 1, 2)},
    {"attention": "full"},
    {"epoch": 8},
    {"public": True},
]


def test_every_field_tells_namespaces_apart() -> None:
    all_of_them = [FULL, *(replace(FULL, **change) for change in OTHERS)]
    assert len({who.namespace for who in all_of_them}) == len(all_of_them)
    assert [FULL.differs(replace(FULL, **change)) for change in OTHERS] == [tuple(change) for change in OTHERS]


def test_fields_that_run_together_differ() -> None:
    names = ["", "a", "b", "ab", "ba", "aab"]
    identities = [
        Identity("m" + model, weights=weights, adapter=adapter, tokenizer=tokenizer)
        for model, weights, adapter, tokenizer in itertools.product(names, names, names, names)
    ]
    assert len({who.namespace for who in identities}) == len(identities)


def test_the_price_of_rebuilding_is_no_part_of_the_identity() -> None:
    dear = replace(FULL, rebuild=4.0)
    assert dear.namespace == FULL.namespace
    assert FULL.differs(dear) == ()


def test_a_public_namespace_is_shared_by_all_tenants_and_by_nobody_else(build: Build) -> None:
    mine, theirs = PUBLIC, replace(PUBLIC, tenant="umbrella")
    assert mine.namespace == theirs.namespace
    assert (mine.account, theirs.account, FULL.account) == ("public", "public", "acme")
    assert PUBLIC.namespace != FULL.namespace
    with pytest.raises(IdentityError, match="account of public KV"):
        replace(FULL, tenant="public")
    kv = build(4)
    put(kv, mine, 1)
    assert put(kv, theirs, 1) == 4
    assert put(kv, FULL, 1) == 0


def test_invalidating_a_tenant_does_not_depend_on_who_used_the_public_namespace_first(build: Build) -> None:
    left = []
    for order in (["acme", "umbrella"], ["umbrella", "acme"]):
        kv = build(4)
        for tenant in order:
            put(kv, replace(PUBLIC, tenant=tenant), 1)
        kv.invalidate(tenant="acme")
        left.append(put(kv, PUBLIC, 1))
    assert left[0] == left[1]


# -- the chain


def chain_of(tokens: Any, who: Identity = PLAIN, size: int = 2, extra: dict[int, bytes] | None = None) -> list[bytes]:
    return list(who.digest_chain(tokens, size, extra))


def test_every_earlier_token_is_in_a_blocks_name() -> None:
    base = chain_of([1, 2, 3, 4, 5, 6])
    for position in range(6):
        tokens = [1, 2, 3, 4, 5, 6]
        tokens[position] += 10
        changed = chain_of(tokens)
        assert changed[: position // 2] == base[: position // 2]
        assert all(new != old for new, old in zip(changed[position // 2 :], base[position // 2 :], strict=True))


def test_so_are_extra_keys_namespace_and_block_size() -> None:
    base = chain_of([1, 2, 3, 4])
    for other in (
        chain_of([1, 2, 3, 4], extra={0: b"image"}),
        chain_of([1, 2, 3, 4], who=FULL),
        chain_of([1, 2, 3, 4], size=1),
        chain_of([1, 2, 3, 4], size=4),
    ):
        assert not set(base) & set(other)
    later = chain_of([1, 2, 3, 4], extra={1: b"image"})
    assert (later[0] == base[0], later[1] == base[1]) == (True, False)
    assert len(set(chain_of([7] * 64))) == 32


def test_only_full_blocks_have_a_name() -> None:
    assert chain_of([1]) == chain_of([]) == []
    assert chain_of([1, 2, 3]) == chain_of([1, 2])


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8, tuple, list])
def test_the_kind_of_tokens_does_not_matter(kind: Any) -> None:
    tokens = kind([1, 2, 3, 4]) if kind in (tuple, list) else np.array([1, 2, 3, 4], dtype=kind)
    assert chain_of(tokens) == chain_of([1, 2, 3, 4])


@pytest.mark.parametrize("size", [0, -1, 1.5, "2", None])
def test_a_block_has_a_size(size: Any) -> None:
    with pytest.raises(ConfigError):
        chain_of([1, 2], size=size)


@pytest.mark.parametrize("key", ["text", None, 5])
def test_an_extra_key_is_bytes(key: Any) -> None:
    with pytest.raises(TokenError):
        chain_of([1, 2], extra={0: key})


# -- what an identity may be made of


@pytest.mark.parametrize(
    "change",
    [
        {"model": ""},
        {"model": None},
        {"model": b"m"},
        {"model": "\ud800"},
        {"tenant": ""},
        {"tenant": 5},
        {"kv_dtype": np.dtype("float16")},
        {"weights": None},
        {"weights": 7},
        {"weights": "\ud800"},
        {"weights": bytearray(b"x")},
        {"adapter": ["lora"]},
        {"layout": (30, 3, 64)},
        {"epoch": -1},
        {"epoch": 1.0},
        {"epoch": True},
        {"epoch": 1 << 64},
        {"epoch": "7"},
        {"public": 1},
        {"public": "yes"},
        {"public": None},
        {"rebuild": 0},
        {"rebuild": -1.0},
        {"rebuild": float("nan")},
        {"rebuild": float("inf")},
        {"rebuild": "2"},
    ],
    ids=lambda change: str(change)[:40].encode("ascii", "replace").decode(),
)
def test_a_field_of_the_wrong_kind_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(IdentityError):
        Identity(**{"model": "m"} | change)


@pytest.mark.parametrize(
    "sizes", [(0, 1, 1), (1, 0, 1), (1, 1, -1), (1, 1, 1.0), (1, 1, 1, 1, 1), (1, 1, 1, -1, 1), (True, 1, 1), ("1", 1, 1)]
)
def test_a_layout_of_the_wrong_kind_is_refused(sizes: Any) -> None:
    with pytest.raises(IdentityError):
        Layout(*sizes)


def test_numpys_integers_are_integers() -> None:
    assert Identity("m", epoch=np.int64(3)).namespace == Identity("m", epoch=3).namespace  # type: ignore[arg-type]
    mine = Identity("m", layout=Layout(np.int32(30), 3, 64))  # type: ignore[arg-type]
    assert mine.namespace == Identity("m", layout=Layout(30, 3, 64)).namespace


def test_an_identity_is_a_value() -> None:
    assert Identity("m") == PLAIN
    assert hash(Identity("m")) == hash(PLAIN)
    assert PLAIN.with_(tenant="acme") == Identity("m", tenant="acme")
    with pytest.raises(AttributeError):
        PLAIN.model = "other"  # type: ignore[misc]
