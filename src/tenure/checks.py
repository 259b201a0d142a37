"""Checks of what callers pass in, each with a typed error that says what was wrong and what would be right. Used everywhere."""

from __future__ import annotations

import math
import numbers as numbers_abc
import operator
from collections.abc import Mapping
from typing import Any

from tenure.errors import ConfigError, TenureError, TokenError

__all__ = ["blocks_and_keys", "encodable", "fraction", "integer", "numbers", "positive", "seconds"]


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
    number = _number(value)
    if number is None or not 0 <= number <= 1:
        raise ConfigError(f"{name} is {value!r}: a fraction from 0 to 1 is needed", least=0, most=1)
    return number


def positive(name: str, value: Any, most: float = 1e12, error: type[TenureError] = ConfigError) -> float:
    """A number above 0, at most `most`."""
    number = _number(value)
    if number is None or not 0 < number <= most:
        raise error(f"{name} is {value!r}: a number above 0, at most {most:g}, is needed", least=0, most=most)
    return number


def seconds(name: str, value: Any) -> float:
    """A finite duration in seconds, 0 or more."""
    number = _number(value)
    if number is None or not 0 <= number < math.inf:
        raise ConfigError(f"{name} is {value!r}: a number of seconds of 0 or more is needed")
    return number


def encodable(text: str) -> bool:
    """Whether UTF-8 can say it: not with lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def numbers(values: Mapping[str, Any] | None) -> dict[str, float]:
    """A policy's parameters: names to numbers."""
    checked = {}
    for name, value in (values or {}).items():
        number = float(value) if isinstance(value, bool) else _number(value)
        if number is None:
            raise ConfigError(f"parameter {name} is {value!r}: a policy's parameters are numbers")
        checked[str(name)] = number
    return checked


def blocks_and_keys(extra_keys: Any) -> list[tuple[int, bytes]]:
    """Extra keys by block, ascending: a mapping of block numbers to bytes."""
    if extra_keys is None:
        return []
    if not isinstance(extra_keys, Mapping):
        raise TokenError(f"extra_keys is a {type(extra_keys).__name__}: a mapping of block numbers to bytes is needed")
    checked = []
    for block, key in extra_keys.items():
        if not isinstance(key, bytes):
            raise TokenError(f"the extra key of block {block!r} is a {type(key).__name__}: bytes are needed")
        if not key:
            raise TokenError(f"the extra key of block {block!r} is empty: leave it out, or give at least one byte")
        checked.append((integer("the block of an extra key", block, 0, (1 << 32) - 1, TokenError), key))
    return sorted(checked)


def _number(value: Any) -> float | None:
    """The value as a float; None when it is no number (bool, text, NaN, arrays) or too large for one."""
    if isinstance(value, bool) or not isinstance(value, numbers_abc.Real):
        return None
    try:
        number = float(value)
    except (OverflowError, ValueError):
        return None
    return None if math.isnan(number) else number
