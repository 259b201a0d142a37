"""`tenure why`: what the misses of some traffic are due to, and one of them explained. `lab.explain` does the work."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from tenure.cli import options, show
from tenure.errors import ConfigError
from tenure.lab.advice import frames
from tenure.lab.explain import Explained, Look, explain, last_asked
from tenure.lab.settings import capacities, policies
from tenure.lab.trace import Trace
from tenure.ledger import Reason


def command(
    traces: options.Traces,
    request: Annotated[int | None, typer.Option(help="Explain this request (from 0); without it, the worst loss.")] = None,
    capacity: Annotated[str, typer.Option(help="Frames of the pool: 1000, 10k, 5%.")] = "10%",
    policy: Annotated[str, typer.Option(help="The policy of the pool.")] = "lru",
    interleave: options.Interleave = None,
    as_json: options.AsJson = False,
    format: options.FormatName = None,
    skip_bad: options.SkipBad = False,
    block_size: options.BlockSize = None,
    tokenizer: options.TokenizerFile = None,
) -> None:
    """Explain why requests miss: the reasons in all, and one request in particular."""
    chosen = policies(policy)
    if len(chosen) > 1 or len(capacities(capacity, 1_000_000)) > 1:
        raise ConfigError("one policy and one capacity at a time", policies=len(chosen))
    trace = options.read_traces(traces, format, skip_bad, interleave, block_size, tokenizer, 0.0, 0.0)
    told = explain(trace, capacities(capacity, trace.distinct)[0], chosen[0])
    look = told.worst() if request is None else told.look(request)
    if as_json:
        typer.echo(
            json.dumps(
                {
                    "frames": told.frames,
                    "policy": told.policy,
                    "reasons": [{"reason": r.value, "requests": n, "tokens_missed": missed} for r, n, missed in told.reasons],
                    "request": {
                        "number": look.request,
                        "arrival": look.arrival,
                        "tenant": look.tenant if _has_tenants(trace) else None,
                        "asked": look.asked,
                        "found": look.found,
                        "reason": look.why.reason.value,
                        "at": look.why.at,
                        "when": look.why.when,
                        "explanation": sentences(trace, told, look),
                    },
                }
            )
        )
        return
    out = show.console()
    out.print(show.headline(trace))
    out.print(assumed(told))
    out.print()
    out.print(show.reasons(told.reasons))
    out.print(how_counted(told))
    out.print()
    for line in sentences(trace, told, look):
        out.print(line)


def assumed(told: Explained) -> str:
    """The pool that the reasons are about."""
    return f"Assumed: policy {told.policy}, {frames(told.frames)}, one request after the other."


def how_counted(told: Explained) -> str:
    """What a row of the reasons counts."""
    cut = any(look.why.reason is Reason.HIT and look.missed for look in told.looks)
    return (
        "A request counts once, under the reason of its first full block that was not cached, even if it found all before it; "
        f"`hit` counts only requests that found every full block{', or all that the pool holds of a longer one' if cut else ''}."
    )


def sentences(trace: Trace, told: Explained, look: Look) -> list[str]:
    """One look-up in plain words."""
    tenants = _has_tenants(trace)
    text = [
        f"Request {look.request} came at {look.arrival:.3f} s{f' for tenant {look.tenant!r}' if tenants else ''} with "
        f"{look.asked:,} tokens in full blocks; {look.found:,} were found."
    ]
    why, before = look.why, last_asked(trace, look.request, look.why.at)
    if why.reason is Reason.HIT:
        text.append(
            f"What the pool can hold of it was there: it is longer than {frames(told.frames)}."
            if look.missed
            else "Everything that fills a block was there."
        )
        return text
    seen = f" Request {before} had asked for it at {trace.arrival[before]:.3f} s." if before is not None else ""
    if why.reason is Reason.EVICTED and why.when is not None:
        text.append(
            f"The block at token {why.at:,} had been there.{seen} {why.policy} evicted it at {why.when:.3f} s, "
            f"{look.arrival - why.when:.3f} s too early, to make room{f' for tenant {why.tenant!r}' if tenants else ''}: "
            f"{look.missed:,} tokens have to be computed again. More than {frames(told.frames)}, or another policy, would help."
        )
    elif why.reason is Reason.DIVERGED:
        text.append(
            f"From token {why.at:,} on the prompt differs from everything cached: those tokens are new. "
            "No policy would help; a stable order of the prompt's parts might."
        )
    elif why.reason is Reason.NEVER_SEEN and before is None:
        text.append(f"Nobody had asked for the block at token {why.at:,} before. No policy would help.")
    elif why.reason is Reason.TOO_SHORT:
        text.append(f"The prompt does not fill one block of {trace.block_size} tokens.")
    else:
        text.append(f"The look-up ended because: {why}.{seen}")
    return text


def _has_tenants(trace: Trace) -> bool:
    return any(trace.tenants)
