"""The strings people type: capacities (1k, 5%, 1k..64k), policies (lru, lfu:ageing=0) and bytes (512KiB). The command
line and `replay` call it. Whatever it does not understand is a ConfigError."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tenure import _core
from tenure.errors import ConfigError

# All that the core has; "optimum" needs the future, and only a replay can use it.
POLICIES = tuple(name for name in _core.POLICIES if name != "optimum")
_SCALE = {"": 1, "k": 1_000, "m": 1_000_000, "g": 1_000_000_000}
_BYTES = {"": 0, "b": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_MOST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class PolicyChoice:
    """A policy by name, with the parameters given for it. `label` is how it was written."""

    name: str
    params: dict[str, float] = field(default_factory=dict)
    label: str = ""


def capacities(text: str, distinct: int) -> list[int]:
    """Frame counts from "1k,10k", "5%" (of `distinct` blocks) or "1k..64k" (doubling); ascending, without repeats."""
    found: set[int] = set()
    for part in _parts(text, "capacity"):
        low, dots, high = part.partition("..")
        first = _frames(low, distinct, part)
        if not dots:
            found.add(first)
            continue
        last = _frames(high, distinct, part)
        if last < first:
            raise ConfigError(f"capacity range {part!r} runs backwards: {first} to {last}", low=first, high=last)
        while first < last:
            found.add(first)
            first *= 2
        found.add(last)
    return sorted(found)


def policies(text: str) -> list[PolicyChoice]:
    """Policies from "lru,hazard" or "all"; parameters follow a colon: "lfu:ageing=0"."""
    found: dict[str, PolicyChoice] = {}
    for part in _parts(text, "policy"):
        name, *pairs = part.split(":")
        for known in POLICIES if name == "all" else (name,):
            if known not in POLICIES:
                raise ConfigError(f"no policy named {name!r}; there are {', '.join(POLICIES)}", policy=name)
            label = known + "".join(f":{pair}" for pair in pairs)
            found.setdefault(label, PolicyChoice(known, dict(_parameter(pair, part) for pair in pairs), label))
    return list(found.values())


def size_in_bytes(text: str) -> int:
    """Bytes from "2097152", "2MiB", "2M" (all powers of 1024)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    value = round(float(match[1]) * 1024 ** _BYTES[match[2]]) if match else 0
    if value < 1:
        raise ConfigError(f"no size in bytes: {text!r} (like 2097152, 512KiB or 2MiB)", text=text)
    return value


def share(value: float, name: str) -> float:
    """A rate from 0 to 1; ConfigError for anything else (a hit rate above 1 cannot be)."""
    if not 0 <= value <= 1:
        raise ConfigError(f"{name} must be between 0 and 1, not {value:g}", **{name.replace(" ", "_"): value})
    return value


def _parts(text: str, what: str) -> list[str]:
    parts = [part.strip() for part in text.lower().split(",") if part.strip()]
    if not parts:
        raise ConfigError(f"no {what} given", **{what: text})
    return parts


def _frames(text: str, distinct: int, whole: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?|\d+(?:_\d+)+)([kmg%]?)", text.strip())
    if not match:
        raise ConfigError(f"no capacity: {whole!r} (like 1000, 10k, 5%, 1k..64k)", capacity=whole)
    number = float(match[1].replace("_", ""))
    frames = max(1, round(distinct * number / 100)) if match[2] == "%" else round(number * _SCALE[match[2]])
    if not 1 <= frames <= _MOST:
        raise ConfigError(f"capacity {whole!r} is {frames} frames; possible are 1 to {_MOST}", capacity=frames, most=_MOST)
    return frames


def _parameter(pair: str, whole: str) -> tuple[str, float]:
    name, _, value = pair.partition("=")
    try:
        return name, float(value)
    except ValueError:
        raise ConfigError(f"no policy parameter: {pair!r} in {whole!r} (like ageing=0)", parameter=pair) from None
