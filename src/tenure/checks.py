"""Checks of what callers pass in, each with a typed error that says what was wrong and what would be right. Used everywhere."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping
from typing import Any

from tenure.errors import ConfigError, TenureError

__all__ = ["fraction", "integer", "numbers", "positive", "seconds"]


def integer(name: str, value: Any, least: int, most: int, error: type[TenureError] = ConfigError) -> int:
    """An integer from `least` to `most` (numpy's too, bool not)."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or not least <= number <= most:
        raise error(f"{name} is {value!r}: an integer from {least} to {most} is needed", least=least, most=most)
    return number


def fraction(name: str, value: Any) -> float:
    """A number from 0 to 1."""
    if not _is_number(value) or not 0 <= value <= 1:
        raise ConfigError(f"{name} is {value!r}: a fraction from 0 to 1 is needed", least=0, most=1)
    return float(value)


def positive(name: str, value: Any, most: float = 1e9) -> float:
    """A number above 0, at most `most`."""
    if not _is_number(value) or not 0 < value <= most:
        raise ConfigError(
            f"{name} is {value!r}: a number above 0 and at most {most:g} is needed", **{name.rpartition(".")[2]: value}
        )
    return float(value)


def seconds(name: str, value: Any) -> float:
    """A finite duration in seconds, 0 or more."""
    if not _is_number(value) or not math.isfinite(value) or value < 0:
        raise ConfigError(f"{name} is {value!r}: a number of seconds of 0 or more is needed")
    return float(value)


def numbers(values: Mapping[str, Any] | None) -> dict[str, float]:
    """A policy's parameters: names to numbers."""
    for name, value in (values or {}).items():
        if not _is_number(value) and not isinstance(value, bool):
            raise ConfigError(f"parameter {name} is {value!r}: a policy's parameters are numbers")
    return {str(name): float(value) for name, value in (values or {}).items()}


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not hasattr(value, "__float__") or isinstance(value, str):
        return False
    return not math.isnan(float(value))
