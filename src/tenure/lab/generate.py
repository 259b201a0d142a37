"""Makes traffic from a seed: the same seed and parameters give the same trace, byte for byte. The command line and
the tests call it. What it writes holds its parameters in the first line, and the `plain` reader reads it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tenure.errors import ConfigError
from tenure.lab.builder import Builder, Request, Timing
from tenure.lab.ids import Ints
from tenure.lab.readers.base import Problems
from tenure.lab.trace import Trace
from tenure.lab.workloads import KINDS, Draft, Workload, mixed

VERSION = 1
_VOCABULARY = 32_000


@dataclass(frozen=True, slots=True)
class Generated:
    """Drafted requests by arrival, each with its tenant; the parameters and the workloads by tenant that made them."""

    parameters: dict[str, Any]
    workloads: dict[str, Workload]
    requests: tuple[tuple[str, Draft], ...]

    @property
    def block_size(self) -> int:
        """Tokens per block."""
        return int(self.parameters["block_size"])

    def tokens(self, draft: Draft) -> Ints:
        """The prompt as token ids, i64[sum of segment lengths]; a segment's tokens depend on seed and number alone."""
        seed = self.parameters["seed"]
        return np.concatenate(
            [np.random.default_rng([seed, text]).integers(0, _VOCABULARY, size=length) for text, length in draft.prompt]
        )

    def trace(self) -> Trace:
        """The same Trace that reading the written file gives."""
        builder = Builder(Timing(), Problems().bad)
        builder.file("generated", self.block_size)
        for line, (tenant, draft) in enumerate(self.requests, start=2):
            tokens = self.tokens(draft)
            builder.add(
                Request(
                    line=line,
                    arrival=draft.arrival,
                    keys=tokens,
                    kind="tokens",
                    output=draft.output,
                    input_tokens=len(tokens),
                    tenant=tenant,
                    session=str(draft.session),
                ),
                "plain",
            )
        return builder.build(f"generated ({self.parameters['kind']})", None, lambda: 0)

    def write(self, path: str | Path, what: Literal["tokens", "hash_ids"] = "tokens") -> int:
        """Write JSONL: a line of parameters, then a line per request; returns the number of requests.

        what: "tokens" (the prompts), or "hash_ids" (an id per full block; small, and enough for a replay).
        """
        trace = self.trace() if what == "hash_ids" else None
        with Path(path).open("w", encoding="utf-8") as out:
            out.write(_line({"tenure_trace": VERSION, **self.parameters}))
            for number, (tenant, draft) in enumerate(self.requests):
                row: dict[str, Any] = {
                    "timestamp": draft.arrival,
                    "tenant": tenant,
                    "session": draft.session,
                    "output": draft.output,
                }
                if trace is not None:
                    row["input_length"] = int(trace.input_tokens[number])
                    row["hash_ids"] = trace.path(number).tolist()
                else:
                    row["tokens"] = self.tokens(draft).tolist()
                out.write(_line(row))
        return len(self.requests)


def generate(
    kind: str = "mixed",
    *,
    seconds: float = 600.0,
    seed: int = 0,
    block_size: int = 16,
    requests: int | None = None,
    tenants: Mapping[str, Workload] | None = None,
    **parameters: float,
) -> Generated:
    """Draft traffic of one kind ("chat", "agent", "rag", "scan"), or "mixed": one tenant of each.

    seconds: how long it lasts. requests: at most that many (the first ones). tenants: a workload per tenant, instead of
    kind. parameters: fields of the kind, as `turns=8`. Raises ConfigError for unknown names and impossible values.
    """
    for name, value, least in (("seconds", seconds, 1e-3), ("block_size", block_size, 1), ("seed", seed, 0)):
        if not least <= value < 1e9:
            raise ConfigError(f"{name} must be at least {least:g}, not {value:g}", **{name: value})
    if requests is not None and requests < 1:
        raise ConfigError(f"requests must be at least 1, not {requests}", requests=requests)
    who = dict(tenants) if tenants is not None else _named(kind, parameters)
    texts, sessions = count(), count()
    drafted: list[tuple[str, Draft]] = []
    for index, (tenant, workload) in enumerate(who.items()):
        rng = np.random.default_rng([seed, 7, index])
        drafted.extend((tenant, draft) for draft in workload.drafts(rng, seconds, texts, sessions))
    drafted.sort(key=lambda pair: (pair[1].arrival, pair[1].session))
    kept = [(tenant, _rounded(draft)) for tenant, draft in drafted[:requests]]
    if not kept:
        raise ConfigError("no request falls into that time: more seconds, or a higher rate", seconds=seconds)
    return Generated(
        parameters={
            "kind": kind if tenants is None else "tenants",
            "seed": seed,
            "seconds": seconds,
            "block_size": block_size,
            "requests": len(kept),
            "tenants": {tenant: asdict(workload) for tenant, workload in who.items()},  # type: ignore[call-overload]
        },
        workloads=who,
        requests=tuple(kept),
    )


def _named(kind: str, parameters: Mapping[str, float]) -> dict[str, Workload]:
    if kind == "mixed":
        if parameters:
            raise ConfigError("parameters belong to one kind of traffic; mixed has its own", **parameters)
        return mixed()
    if kind not in KINDS:
        raise ConfigError(f"no kind of traffic named {kind!r}; there are {', '.join(KINDS)}, mixed", kind=kind)
    default = asdict(KINDS[kind]())
    known = [name for name in default if name != "kind"]
    for name, value in parameters.items():
        if name not in known:
            raise ConfigError(f"{kind} has no parameter {name!r}; it has {', '.join(known)}", parameter=name)
        if not 0 <= value < 1e9 or (value < 1 and name in ("turns", "steps", "documents", "system_prompts")):
            raise ConfigError(f"{kind}: {name} cannot be {value:g}", **{name: value})
    fitted = {name: type(default[name])(value) for name, value in parameters.items()}
    return {"": KINDS[kind](**fitted)}


def _rounded(draft: Draft) -> Draft:
    return Draft(round(draft.arrival, 6), draft.prompt, draft.output, draft.session)


def _line(row: dict[str, Any]) -> str:
    return json.dumps(row, separators=(",", ":")) + "\n"
