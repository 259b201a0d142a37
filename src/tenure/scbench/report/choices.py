"""The operator's table: what one can do with a context's KV, what that keeps, holds and reads, and when to choose it. The report
calls it; every sentence follows from the numbers by the thresholds in `verdicts`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from tenure.scbench.report import words
from tenure.scbench.report.pooling import Compared, Pool, Setting, pool, sound
from tenure.scbench.report.samples import CONTROLS, DENSE, PREFIX, RECOMPUTE, SWAPPED, Samples
from tenure.scbench.report.verdicts import FEWEST, LOSSLESS, UNSETTLED, USABLE, grade

__all__ = ["Choice", "choices"]

_BITS = re.compile(r"-(?:int|fp)(\d+)$")


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One line. name: what is done; measured: by which method, the best of its kind, and how that is. idle: the share of the KV
    that stays on the device while nobody asks. grades: by part, "lossless", "usable" or what is lost. when: to choose it."""

    name: str
    measured: Pool
    idle: float
    grades: dict[str, str]
    when: str


def choices(samples: Samples) -> tuple[Choice, ...]:
    """Model by model; what was not measured is left out."""
    return tuple(_choice(kind, name, found) for model in samples.names(0) for kind, name, found in _measured(samples, model))


def _measured(samples: Samples, model: str) -> Iterator[tuple[str, str, Pool]]:
    """Each choice's kind and name, with the best method that makes it."""
    tasks = sound(samples, model)
    settings = {one: row for one, row in samples.settings(model).items() if one[0] not in CONTROLS and one[0] != RECOMPUTE}
    options: dict[tuple[str, str], list[Setting]] = {}
    for (method, budget), row in settings.items():
        size, bits = words.budget(budget), _BITS.search(method)
        if method == DENSE:
            option = "all", "keep it all"
        elif method == PREFIX:
            option = "reuse", "keep it all, reuse exact prefixes"
        elif method == SWAPPED:
            option = "swap", "swap: keep it in host memory, load it back"
        elif row.stage == "compression" and row.memory == "O(n)":
            option = "round", f"quantise to {bits[1]} bits" if bits else f"quantise: {method}"
        elif row.stage == "compression":
            option = "drop", f"drop to {size}"
        elif row.stage == "loading":
            option = "read", f"keep it all, read {size}"
        elif row.stage == "retrieval":
            option = "find", f"find pieces again, run {size} ({method})"
        else:
            continue
        options.setdefault(option, []).append((method, budget))
    order = ("all", "reuse", "swap", "round", "read", "drop", "find")
    for kind, name in sorted(options, key=lambda option: order.index(option[0])):
        if (best := _best(samples, model, options[kind, name], tasks)) is not None:
            yield kind, name, best


def _best(samples: Samples, model: str, settings: Sequence[Setting], tasks: Sequence[str]) -> Pool | None:
    """The one that loses least over what was measured; of equals the first."""
    pools = [found for one in settings if (found := pool(samples, model, one[0], [one], tasks)) is not None]
    return max(pools, key=_left, default=None)


def _left(one: Pool) -> float:
    parts = one.parts().values()
    return sum(part.difference.value for part in parts) / len(parts)


def _choice(kind: str, name: str, measured: Pool) -> Choice:
    grades = {part: grade(compared) for part, compared in measured.parts().items()}
    idle = 0.0 if kind == "swap" else measured.resident
    return Choice(name=name, measured=measured, idle=idle, grades=grades, when=_when(kind, measured, grades))


def _when(kind: str, one: Pool, grades: dict[str, str]) -> str:
    """The sentence. Each kind has its reason; whether it is worth it is for the grades to say."""
    if kind == "all":
        return "When all of it fits on the device; the others are measured against it."
    if one.sessions < FEWEST:
        return f"Not to be said from {one.sessions} session{'s' * (one.sessions > 1)}; {FEWEST} are the least."
    why = {
        "reuse": f"When prompts begin as others did ({words.percent(one.saved)} of prefill is saved)",
        "swap": f"When the device is short of memory and the host is not ({words.percent(one.saved)} of prefill is saved)",
        "round": f"When {1 / max(one.resident, 1e-6):.1f} times as many contexts have to fit",
        "read": f"When all of it fits and reading it is what takes the time ({words.percent(one.read)} is read)",
        "drop": f"When {1 / max(one.resident, 1e-6):.1f} times as many contexts have to fit",
        "find": f"When the same texts come again in another order ({words.percent(one.saved)} of prefill is saved)",
    }[kind]
    unsettled = [part for part, text in grades.items() if text == UNSETTLED]
    grades = {part: text for part, text in grades.items() if text != UNSETTLED}
    lost = {part: text for part, text in grades.items() if text.startswith("loses")}
    if unsettled:
        why = f"{why} (too few sessions for {' and '.join(unsettled)})"
    if not lost and all(text == LOSSLESS for text in grades.values()):
        return f"{why}: nothing was lost."
    if not lost:
        return f"{why}, and {_enough([part for name, part in one.parts().items() if name in grades])}."
    if len(lost) == len(grades):
        return f"Not for such tasks: each loses more than {words.percent(1 - USABLE)} of dense's accuracy ({_told(lost)})."
    kept = [part for part in grades if part not in lost]
    if kind == "drop" and kept == ["turn 1"]:
        return f"{why}, and only if the question is known before and none follows (lost: {_told(lost)})."
    return f"{why}, and only for {' and '.join(kept)} (lost: {_told(lost)})."


def _enough(parts: Sequence[Compared]) -> str:
    """What has to be good enough where all is usable, and not all lossless."""
    relative = [part.relative for part in parts if part.relative is not None]
    value, low = min(part.value for part in relative), min(part.low for part in relative)
    if value < 1:
        return f"{words.percent(value)} of dense's accuracy is enough"
    return f"a loss of {words.percent(1 - low)}, which was not seen but is not excluded, can be borne"


def _told(lost: dict[str, str]) -> str:
    return ", ".join(f"{part}: {text.removeprefix('loses ')}" for part, text in lost.items())
