"""Which models this engine can serve exactly, and the layout of their KV.
Called once when an engine is made; it never runs the model."""

from __future__ import annotations

from typing import Any

from transformers.cache_utils import get_layer_types_and_kwargs

from tenure.errors import ConfigError, IdentityError
from tenure.identity import Identity, Layout
from tenure.tiers.device import DeviceArena, dtype_name

__all__ = ["identity_for", "layout_of", "refuse_now", "refuse_unsupported"]

_ATTENTION = {"full_attention", "sliding_attention"}
_MOVING_ROPE = {"dynamic", "longrope"}


def layout_of(model: Any) -> Layout:
    """The layout of a model's KV, from its configuration. Raises ConfigError for a model without plain attention."""
    config = model.config.get_text_config(decoder=True)
    query_heads = getattr(config, "num_attention_heads", None)
    if not query_heads:
        raise ConfigError(f"{type(model).__name__} has no attention heads: it keeps no KV that could be reused")
    return Layout(
        layers=config.num_hidden_layers,
        heads=getattr(config, "num_key_value_heads", None) or query_heads,
        head_size=getattr(config, "head_dim", None) or config.hidden_size // query_heads,
    )


def refuse_unsupported(model: Any) -> None:
    """Raises ConfigError, by name, for what cannot be served exactly from blocks of KV."""
    name = type(model).__name__
    config = model.config.get_text_config(decoder=True)
    if model.config.is_encoder_decoder:
        raise ConfigError(f"{name} is an encoder-decoder: its KV depends on the encoder's input, which no prompt names")
    if getattr(model, "_is_stateful", False):
        raise ConfigError(f"{name} keeps a recurrent state: it has no KV by token")
    kinds = set(get_layer_types_and_kwargs(config)[0]) - _ATTENTION
    if kinds:
        raise ConfigError(f"{name} has layers of {', '.join(sorted(kinds))}: only {', '.join(sorted(_ATTENTION))} can be served")
    if getattr(config, "num_kv_shared_layers", 0):
        raise ConfigError(f"{name} shares KV between layers: each layer must have its own")
    rope = getattr(config, "rope_parameters", None) or {}
    kinds = {part.get("rope_type") for part in (rope, *rope.values()) if isinstance(part, dict)} & _MOVING_ROPE
    if kinds:
        raise ConfigError(f"{name} has {', '.join(sorted(kinds))} RoPE: keys change with the length of what follows them")


def identity_for(model: Any, arena: DeviceArena, who: Identity) -> Identity:
    """`who`, completed with the layout and dtype of the arena, which must be the model's.

    Raises IdentityError when `who` says otherwise or does not name the weights, ConfigError when the arena is another model's.
    """
    layout, dtype = layout_of(model), dtype_name(model.dtype)
    if (arena.layout.layers, arena.layout.heads, arena.layout.head_size) != (layout.layers, layout.heads, layout.head_size):
        raise ConfigError(f"the arena is for {arena.layout}: the model has {layout}")
    if arena.kv_dtype != dtype:
        raise ConfigError(f"the arena holds {arena.kv_dtype}: the model computes KV in {dtype}")
    devices = set((getattr(model, "hf_device_map", None) or {}).values())
    if arena.device != model.device or len(devices) > 1:
        raise ConfigError(f"the arena lies on {arena.device}, the model on {devices or model.device}: one device is needed")
    if not isinstance(who, Identity):
        raise IdentityError(f"who is {who!r}: an Identity is needed")
    if not who.weights:
        raise IdentityError("who.weights is empty: give a content digest of the weights, or new weights would hit old KV")
    if who.layout not in (None, arena.layout):
        raise IdentityError(f"who.layout is {who.layout}: the arena is for {arena.layout}")
    return who.with_(layout=arena.layout, kv_dtype=dtype)


def refuse_now(model: Any, who: Identity) -> None:
    """What may change between requests: raises ConfigError in training mode, IdentityError for adapters nobody named."""
    if model.training:
        raise ConfigError("the model is in training mode: call model.eval() first")
    if not who.adapter and (getattr(model, "peft_config", None) or getattr(model, "_hf_peft_config_loaded", False)):
        raise IdentityError("the model has adapters: give their content digest as who.adapter")
