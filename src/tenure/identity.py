"""What a block's KV is of, as a typed, length-framed identity; from it the namespace and the digest chain of blocks.
Called by the manager for every sequence and by every tier that names bytes; it never looks at bytes itself."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import msgspec
import numpy as np

from tenure._core import as_tokens
from tenure.checks import blocks_and_keys, encodable, integer, positive
from tenure.errors import IdentityError

__all__ = ["Identity", "Layout", "content_digest"]

PUBLIC = "public"
"""The account that public KV is charged to."""
_FRAME = struct.Struct("<Q")
_MOST = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Layout:
    """How the KV of one token lies in memory: layers, KV heads, head size, and which shard of how many this is."""

    layers: int
    heads: int
    head_size: int
    shard: int = 0
    shards: int = 1

    def __post_init__(self) -> None:
        for name in ("layers", "heads", "head_size", "shards"):
            object.__setattr__(self, name, integer(f"layout.{name}", getattr(self, name), 1, _MOST, IdentityError))
        object.__setattr__(self, "shard", integer("layout.shard", self.shard, 0, _MOST, IdentityError))
        if self.shard >= self.shards:
            raise IdentityError(
                f"layout.shard is {self.shard}: there are {self.shards} shards, numbered from 0",
                shard=self.shard,
                shards=self.shards,
            )


@dataclass(frozen=True, slots=True)
class Identity:
    """Whom and what KV belongs to. Two requests share blocks only when every field is equal.

    `weights`, `adapter` and `tokenizer` are content digests (`content_digest`), not names: a name that is given new content
    would hit old KV. `tenant` is the trust domain; `public=True` opts in to one namespace that all tenants share, charged to
    the tenant "public". `rebuild` is the price of computing this KV again relative to plain KV (a quantised copy is dear to
    get back); it steers the cost policies and is no part of the identity.

    Raises IdentityError for a field of the wrong type.
    """

    model: str
    weights: str | bytes = b""
    tenant: str = "default"
    adapter: str | bytes = b""
    tokenizer: str | bytes = b""
    kv_dtype: str = "bf16"
    quantisation: str = "none"
    layout: Layout | None = None
    attention: str = "full"
    epoch: int = 0
    public: bool = False
    rebuild: float = 1.0
    namespace: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("model", "tenant", "kv_dtype", "quantisation", "attention"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value:
                raise IdentityError(f"identity.{name} is {value!r}: a non-empty string is needed")
            if not encodable(value):
                raise IdentityError(f"identity.{name} is {value!r}: it has lone surrogates, which UTF-8 cannot say")
        for name in ("weights", "adapter", "tokenizer"):
            value = getattr(self, name)
            if not isinstance(value, str | bytes) or (isinstance(value, str) and not encodable(value)):
                raise IdentityError(f"identity.{name} is {value!r}: a content digest (str or bytes) is needed")
        if self.layout is not None and not isinstance(self.layout, Layout):
            raise IdentityError(f"identity.layout is {self.layout!r}: a Layout is needed")
        if self.tenant == PUBLIC and not self.public:
            raise IdentityError(f"the tenant name {PUBLIC!r} is the account of public KV: choose another")
        if not isinstance(self.public, bool):
            raise IdentityError(f"identity.public is {self.public!r}: True or False is needed")
        object.__setattr__(self, "epoch", integer("identity.epoch", self.epoch, 0, _MOST, IdentityError))
        object.__setattr__(self, "rebuild", positive("identity.rebuild", self.rebuild, 1e6, IdentityError))
        object.__setattr__(self, "namespace", hashlib.sha256(self.encode()).digest())

    @property
    def account(self) -> str:
        """The tenant that this KV is charged to."""
        return PUBLIC if self.public else self.tenant

    def with_(self, **changes: Any) -> Identity:
        """A copy with some fields changed."""
        return replace(self, **changes)

    def differs(self, other: Identity) -> tuple[str, ...]:
        """The names of the fields that tell the two apart."""
        names = (f.name for f in fields(self) if f.name not in ("namespace", "rebuild"))
        return tuple(name for name in names if getattr(self, name) != getattr(other, name))

    def encode(self) -> bytes:
        """Every field that tells KV apart: name, type and value, each behind its length, so that none runs into the next."""
        parts = [_framed(b"tenure.identity.1")]
        for f in fields(self):
            if f.name in ("namespace", "rebuild"):
                continue
            value = getattr(self, f.name)
            if f.name == "tenant" and self.public:
                value = ""  # shared by all
            parts.append(_framed(f.name.encode()) + _typed(value))
        return b"".join(parts)

    def digest_chain(self, tokens: Any, block_size: int, extra_keys: Mapping[int, bytes] | None = None) -> Iterator[bytes]:
        """The name of each full block of `tokens` outside the process: BLAKE2b-256 over the parent's digest, the extra key
        and the tokens (little-endian uint32), keyed with the namespace. Stable across processes, machines and Pythons.

        Raises TokenError for bad tokens, ConfigError for a block size below 1.
        """
        integer("block_size", block_size, 1, 65535)
        ids = np.ascontiguousarray(as_tokens(tokens), dtype="<u4")
        keys = dict(blocks_and_keys(extra_keys))
        parent = b""
        for block in range(len(ids) // block_size):
            parent = self.link(parent, keys.get(block, b""), ids[block * block_size : (block + 1) * block_size].tobytes())
            yield parent

    def link(self, parent: bytes, extra_key: bytes, tokens: bytes) -> bytes:
        """One link of the digest chain: 32 bytes for the block with these tokens (little-endian uint32) after `parent` (the link
        before, empty for a first block)."""
        digest = hashlib.blake2b(digest_size=32, key=self.namespace, person=b"tenure.block.1")
        for part in (parent, extra_key, tokens):
            digest.update(_framed(part))
        return digest.digest()

    def dump(self) -> bytes:
        """All fields, for `load`."""
        named = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("namespace", "layout")}
        layout = None if self.layout is None else {f.name: getattr(self.layout, f.name) for f in fields(self.layout)}
        return msgspec.msgpack.encode(named | {"layout": layout})

    @classmethod
    def load(cls, dumped: bytes) -> Identity:
        """The identity that `dump` gave. Raises IdentityError for anything else."""
        try:
            named = msgspec.msgpack.decode(dumped, type=dict[str, Any])
            layout = named.pop("layout")
            return cls(**named, layout=None if layout is None else Layout(**layout))
        except (msgspec.MsgspecError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise IdentityError(f"these bytes are no identity: {error}") from None


def content_digest(*parts: bytes | memoryview) -> str:
    """SHA-256 over the parts, each behind its length: for weights, adapters and tokenizers. Hex."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(_FRAME.pack(memoryview(part).nbytes))
        digest.update(part)
    return digest.hexdigest()


def _framed(value: bytes) -> bytes:
    return _FRAME.pack(len(value)) + value


def _typed(value: object) -> bytes:
    if value is None:
        return b"n"
    if isinstance(value, bool):
        return b"b" + bytes([value])
    if isinstance(value, int):
        return b"i" + _framed(str(value).encode())
    if isinstance(value, bytes):
        return b"y" + _framed(value)
    if isinstance(value, str):
        return b"s" + _framed(value.encode("utf-8"))
    if isinstance(value, Layout):
        return b"l" + b"".join(_typed(getattr(value, f.name)) for f in fields(value))
    raise IdentityError(f"an identity field of type {type(value).__name__} cannot be encoded")
