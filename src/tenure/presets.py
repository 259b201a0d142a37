"""Settings under which a manager evicts as a named system does (R9). Called by BlockManager.preset; data only."""

from __future__ import annotations

from typing import Any

from tenure.errors import ConfigError

__all__ = ["preset_options"]

_PRESETS: dict[str, dict[str, Any]] = {
    # LRU over blocks without a reference, a request's tail first; a prompt's last token is always computed; duplicates stay.
    "vllm": {"block_size": 16, "policy": "lru", "on_duplicate": "keep", "recompute_last": True},
    # A radix tree, only leaves go; a duplicate's frame goes back when the request's prefix is inserted.
    "sglang": {"block_size": 1, "policy": "lru", "on_duplicate": "rewrite", "recompute_last": True},
    # Priorities 0-100 with durations, LRU among equals, partial reuse by copying.
    "tensorrt-llm": {"block_size": 32, "policy": "priority", "partial_reuse": 1},
    # Chunks of 256 tokens; LRU in each tier.
    "lmcache": {"block_size": 256, "policy": "lru"},
}

# SGLang's --radix-eviction-policy, by name.
_SGLANG_STRATEGIES: dict[str, tuple[str, dict[str, float]]] = {
    "lru": ("lru", {}),
    "lfu": ("lfu", {"ageing": 0}),
    "fifo": ("fifo", {}),
    "mru": ("lru", {"newest_first": 1}),
    "filo": ("fifo", {"newest_first": 1}),
    "priority": ("priority", {"default": 0, "sticky": 1}),
    "slru": ("slru", {"share": 1, "threshold": 2}),
}


def preset_options(name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """The preset's settings with `settings` over them; for "sglang" a `strategy` picks its eviction policy.

    Raises ConfigError for a preset or strategy that does not exist.
    """
    if name not in _PRESETS:
        raise ConfigError(f"no preset named {name!r}; there are {', '.join(_PRESETS)}")
    options = dict(_PRESETS[name])
    settings = dict(settings)
    if name == "sglang" and "strategy" in settings:
        strategy = settings.pop("strategy")
        if strategy not in _SGLANG_STRATEGIES:
            raise ConfigError(f"no strategy named {strategy!r}; there are {', '.join(_SGLANG_STRATEGIES)}")
        options["policy"], options["params"] = _SGLANG_STRATEGIES[strategy]
    return options | settings
