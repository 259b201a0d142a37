"""Whatever stands in the pool, only the very block that was asked for comes back; what is of use to nobody is taken out."""

from __future__ import annotations

import pytest

from tenure.tiers import BlockLayout, Codec, Int8, Raw, Zstd
from tenure.tiers.heads import Head
from tenure.tiers.valkey import ValkeyTier
from tests.pool import servers
from tests.pool.making import again, digests, head_key, keys, learn, parts, pool, read, write
from tests.tiers.making import KEY, PAGED, SMALL, block, buffers, record

OTHER_BLOCK_SIZE = BlockLayout.of("bf16", 8, layers=4, heads=4, head_size=16)
"""As many bytes as PAGED."""


def flip(one: servers.Server, key: bytes, at: int, mask: int = 1) -> None:
    value = bytearray(one.command("GET", key))
    value[at % len(value)] ^= mask
    one.command("SET", key, bytes(value), "KEEPTTL")


@pytest.mark.parametrize("at", [0, 5, 20, 60, 100, 160, 250, 290])
def test_a_flipped_bit_in_the_envelope(one: servers.Server, at: int) -> None:
    with pool(one.url) as tier:
        assert write(tier, 1) == [None]
        flip(one, parts(one, tier, 1)[0], at)
        assert read(tier, 1) == ["torn"]
        assert keys(one, tier) == []
        assert write(tier, 1) == [None], "so that it can be written again"
        assert read(tier, 1) == [None]


@pytest.mark.parametrize("chunk", [0, 1, 2])
@pytest.mark.parametrize("at", [500, 1500, -1])
@pytest.mark.parametrize("codec", [Raw(), Int8()], ids=str)
def test_a_flipped_bit_in_the_payload(one: servers.Server, chunk: int, at: int, codec: Codec) -> None:
    with pool(one.url, codec=codec, chunk_bytes=1500 if codec.name == "int8" else 3000) as tier:
        assert tier.write([1], [block(PAGED, 1)], [record(PAGED, 1)]) == [None]
        flip(one, parts(one, tier, 1)[chunk], at, 128)
        assert [o and o.kind for o in tier.read([1], [record(PAGED, 1)], buffers(PAGED, 1))] == ["checksum"]
        assert keys(one, tier) == []


def test_the_control_an_even_number_of_flips_is_none(one: servers.Server) -> None:
    with pool(one.url) as tier:
        assert write(tier, 1) == [None]
        for _ in range(2):
            flip(one, parts(one, tier, 1)[2], 7)
        assert read(tier, 1) == [None]


@pytest.mark.parametrize(("which", "kind"), [(0, "torn"), (1, "torn"), (2, "torn"), (None, "empty")])
def test_parts_that_are_missing(one: servers.Server, which: int | None, kind: str) -> None:
    with pool(one.url) as tier:
        assert write(tier, 1, 2) == [None, None]
        found = parts(one, tier, 1)
        one.command("DEL", *(found if which is None else [found[which]]))
        assert read(tier, 1, 2) == [kind, None]
        assert learn(tier, 1) == 0
        assert write(tier, 1) == [None]


@pytest.mark.parametrize("length", [0, 1, 2999, 3001, 1 << 20])
def test_a_part_of_another_length(one: servers.Server, length: int) -> None:
    with pool(one.url) as tier:
        assert write(tier, 1, 2) == [None, None]
        one.command("SET", parts(one, tier, 1)[1], bytes(length))
        assert read(tier, 1, 2) == ["torn", None], "what follows on the connection is read from its right place"


def test_a_part_of_another_type(one: servers.Server) -> None:
    with pool(one.url) as tier:
        assert write(tier, 1, 2) == [None, None]
        key = parts(one, tier, 1)[1]
        one.command("DEL", key)
        one.command("RPUSH", key, "x")
        assert read(tier, 1, 2) == ["torn", None]


HOSTILE = [
    b"",
    b"x",
    b"block",
    b"block t 300 8192 3000",
    b"block t -1 8192 3000 0",
    b"block t 300 8192 1 0",
    b"block t 300 99999999999999 3000 0",
    b"block t 300 8192 3000 0 0",
    b"block t 300 8192 99999999999999999999 0",
    "block t ٣ 8192 3000 0".encode(),
    bytes(range(256)),
    b"\r\n$5\r\nhello",
    b"claim",
]


@pytest.mark.parametrize("value", HOSTILE, ids=repr)
def test_a_head_that_is_none_of_ours(one: servers.Server, value: bytes) -> None:
    with pool(one.url) as tier:
        one.command("SET", head_key(tier, 1), value)
        assert learn(tier, 1) == 0
        assert write(tier, 1) == ["foreign"]
        assert tier.extend(digests(1), 10) == [False]
        assert one.command("GET", head_key(tier, 1)) == value


def test_a_head_of_another_type(one: servers.Server) -> None:
    with pool(one.url) as tier:
        one.command("RPUSH", head_key(tier, 1), "x")
        assert learn(tier, 1) == 0
        assert write(tier, 1) == ["foreign"]


@pytest.mark.parametrize(
    "head",
    [
        Head(b"t", 300, 8191, 3000),
        Head(b"t", 300, 8192 * 1000, 8192),
        Head(b"t", 1 << 30, 8192, 3000),
        Head(b"t", 300, 0, 0),
        Head(b"t", 300, 8192, 0),
    ],
    ids=str,
)
def test_a_head_of_impossible_sizes_allocates_nothing_and_gives_nothing(one: servers.Server, head: Head) -> None:
    for codec in (Raw(), Zstd()):
        with pool(one.url, codec=codec) as tier:
            one.command("SET", head_key(tier, 1), head.encode())
            assert learn(tier, 1) == 1
            assert read(tier, 1)[0] in ("foreign", "torn", "empty")


def test_a_head_that_points_to_another_block(one: servers.Server) -> None:
    """The parts of block 2 under the name of block 1."""
    with pool(one.url) as tier:
        assert write(tier, 1, 2) == [None, None]
        for mine, other in zip(parts(one, tier, 1), parts(one, tier, 2), strict=True):
            one.command("SET", mine, one.command("GET", other))
        flip(one, head_key(tier, 1), 0, 0)
        kinds = read(tier, 1)
        assert kinds[0] in ("foreign", "torn")  # the two envelopes may differ in length


def disguised(one: servers.Server, source: ValkeyTier, target: ValkeyTier) -> None:
    """Gives what is in one pool the names of another."""
    stems = [tier._keys._block for tier in (source, target)]
    for key in keys(one, source):
        one.command("COPY", key, key.encode().replace(*stems))


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({"layout": OTHER_BLOCK_SIZE}, "foreign"),
        ({"layout": SMALL}, "foreign"),
        ({"codec": Zstd()}, "foreign"),
        ({"key": KEY}, None),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_block_of_another_layout_or_codec_under_the_same_digest(
    one: servers.Server, settings: dict[str, object], kind: str | None
) -> None:
    with pool(one.url, **settings) as other, pool(one.url) as tier:  # type: ignore[arg-type]
        their = record(other.layout, 1, digest=digests(1)[0])
        assert other.write([1], [block(other.layout, 1)], [their]) == [None]
        assert tier.look(digests(1), []).heads == [], "it has another name to begin with"
        disguised(one, other, tier)
        assert learn(tier, 1) == 1
        got = read(tier, 1)
        assert got == [kind] if "key" in settings or "codec" in settings else got[0] in ("foreign", "torn")
        assert learn(tier, 1) == 1 or got == ["torn"], "what others may use is left alone"


def test_an_unsigned_or_wrongly_signed_block(one: servers.Server) -> None:
    with pool(one.url) as plain, again(plain, key=KEY) as signed, again(plain, key=bytes(32)) as wrong:
        assert write(plain, 1) == [None]
        assert learn(signed, 1) == 1
        assert read(signed, 1) == ["signature"]
        assert write(signed, 2) == [None]
        assert [learn(tier, 2) for tier in (plain, wrong)] == [1, 1]
        assert read(wrong, 2) == ["signature"]
        assert read(plain, 2) == [None]
        assert read(signed, 2) == [None]


def test_a_reader_takes_out_only_what_it_has_seen_broken(one: servers.Server) -> None:
    """The block was broken, was thrown out, and has been written again: the new one stays."""
    with pool(one.url) as old, again(old) as new:
        assert write(old, 1) == [None]
        one.command("DEL", *parts(one, old, 1), head_key(old, 1))
        assert write(new, 1) == [None]
        assert read(old, 1) == ["empty"]
        assert read(new, 1) == [None]
        assert learn(old, 1) == 1
        assert read(old, 1) == [None]
