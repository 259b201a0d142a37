"""A node for a transformers model, by sizes in bytes: device memory, host memory, a directory on disk, and a pool it shares.
Called by whoever serves a model and does not want to put the parts together; it decides nothing else."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import Any

from tenure.checks import integer
from tenure.engines.support import layout_of, refuse_unsupported
from tenure.errors import ConfigError
from tenure.node import Level, Node
from tenure.tiers import CODECS, Codec, DiskTier, HostTier
from tenure.tiers.device import DeviceArena, dtype_name
from tenure.tiers.valkey import ValkeyTier

__all__ = ["node_for"]

_OF_LEVEL = tuple(field.name for field in fields(Level) if field.name != "tier")
_OF_DISK = ("key", "sync", "direct")
_OF_POOL = tuple(name for name in inspect.signature(ValkeyTier).parameters if name not in ("layout", "url", "codec"))


def node_for(
    model: Any,
    *,
    device_bytes: int,
    host_bytes: int = 0,
    disk: str | Path | None = None,
    disk_bytes: int = 0,
    block_size: int = 32,
    host: Mapping[str, Any] | None = None,
    on_disk: Mapping[str, Any] | None = None,
    pool: str | None = None,
    in_pool: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Node:
    """A Node whose device arena, host memory and disk store take at most so many bytes each; 0: no such tier.

    disk: the store's directory. block_size: tokens a block. host, on_disk: more for those tiers: `codec` (a name of
    tenure.tiers.CODECS, or a Codec) and what Level takes (policy, params, write, uses, deadline, lossy_answers, failures);
    on_disk also: DiskTier's key, sync and direct. pool: where the pool is that this node shares with others, as ValkeyTier's url
    has it. in_pool: as host, and ValkeyTier's other settings by their names. settings: of Node (poll, trust) and BlockManager,
    such as policy.

    Raises ConfigError (sizes too small for one block, a model that cannot be served, no such address of a pool), StoreError for
    the directory. Nothing stays open then.
    """
    refuse_unsupported(model)
    integer("block_size", block_size, 1, 65535)
    layout, dtype = layout_of(model), dtype_name(model.dtype)
    value = DeviceArena.block_bytes_of(layout, block_size, dtype)
    frames = integer("device_bytes", device_bytes, 0, 1 << 62) // value
    if frames < 1:
        raise ConfigError(f"device_bytes is {device_bytes}: one block of {block_size} tokens has {value} bytes", needed=value)
    arena = DeviceArena(frames, layout, block_size, dtype=dtype, device=model.device)
    if (host and not host_bytes) or ((on_disk or disk_bytes) and disk is None) or (in_pool and pool is None):
        raise ConfigError(
            "settings for a tier that is not there: host needs host_bytes, on_disk and disk_bytes need disk, in_pool needs pool"
        )
    if disk is not None and not disk_bytes:
        raise ConfigError(f"disk_bytes is {disk_bytes}: how much may the store {disk} take?")
    for_host, for_disk, for_pool = (
        _known("host", host),
        _known("on_disk", on_disk, _OF_DISK),
        _known("in_pool", in_pool, _OF_POOL),
    )
    levels = []
    if host_bytes:
        codec = _codec(for_host)
        stride = -(-codec.bound(arena.block_layout) // 4096) * 4096
        count = integer("host_bytes", host_bytes, 0, 1 << 62) // stride
        if count < 1:
            raise ConfigError(f"host_bytes is {host_bytes}: one block has {stride} bytes there", needed=stride)
        levels.append(Level(HostTier(arena.block_layout, count, codec=codec), **for_host))
    with ExitStack() as opened:
        if disk is not None:
            codec = _codec(for_disk)
            own = {name: for_disk.pop(name) for name in _OF_DISK if name in for_disk}
            tier = DiskTier(disk, arena.block_layout, disk_bytes, codec=codec, **own)
            opened.callback(tier.close)
            levels.append(Level(tier, **({"deadline": 5.0} | for_disk)))
        if pool is not None:
            codec = _codec(for_pool)
            own = {name: for_pool.pop(name) for name in _OF_POOL if name in for_pool}
            shared = ValkeyTier(arena.block_layout, pool, codec=codec, **own)
            opened.callback(shared.close)
            levels.append(Level(shared, **({"deadline": 2.0} | for_pool)))
        node = Node(arena, levels, block_size, **settings)
        opened.pop_all()  # the node closes it
    return node


def _known(name: str, given: Mapping[str, Any] | None, more: tuple[str, ...] = ()) -> dict[str, Any]:
    """A copy of what is given for a tier. Raises ConfigError for a setting that it does not have; no value is told."""
    known = ("codec", *_OF_LEVEL, *more)
    if given is not None and not isinstance(given, Mapping):
        raise ConfigError(f"{name} is {given!r}: settings by their names are needed, of {', '.join(sorted(known))}")
    found = dict(given or {})
    if strange := sorted(str(setting) for setting in found if setting not in known):
        raise ConfigError(f"{name} has {', '.join(strange)}: it may have {', '.join(sorted(known))}")
    return found


def _codec(settings: dict[str, Any]) -> Codec:
    """Takes the codec out. Raises ConfigError for none that is known."""
    codec = settings.pop("codec", "raw")
    if isinstance(codec, Codec):
        return codec
    if not isinstance(codec, str) or codec not in CODECS:
        raise ConfigError(f"no codec named {codec!r}; there are {', '.join(CODECS)}")
    return CODECS[codec]()
