"""Trace files in, one Trace out. The command line and users call `read`; each format is one file beside this one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from tenure.errors import ConfigError, TraceError
from tenure.lab.builder import Builder, Timing
from tenure.lab.readers.agent_text import AgentText
from tenure.lab.readers.bailian import Bailian
from tenure.lab.readers.base import MALFORMED, STDIN, Format, Problems, Source
from tenure.lab.readers.lmcache import LMCacheLookups
from tenure.lab.readers.mooncake import Mooncake
from tenure.lab.readers.plain import Plain
from tenure.lab.readers.weka import Weka
from tenure.lab.trace import Trace

__all__ = ["FORMATS", "Format", "Timing", "read", "sniff"]

FORMATS: dict[str, type[Format]] = {known.name: known for known in (Plain, Mooncake, Bailian, LMCacheLookups, AgentText, Weka)}
_SUFFIXES = (".json", ".jsonl", ".json.gz", ".jsonl.gz")
_LOOK_AT = 20  # lines that sniffing looks at before it gives up


def read(
    paths: str | Path | Iterable[str | Path],
    format: str | None = None,
    *,
    skip_bad: bool = False,
    interleave: float | None = None,
    block_size: int | None = None,
    tokenizer: str | Path | None = None,
    timing: Timing | None = None,
    on_bad: Callable[[TraceError], None] | None = None,
) -> Trace:
    """Read trace files (a folder stands for the files in it, by name; "-" for standard input) into one Trace.

    format: a name from FORMATS; None: found out for each file. interleave: file i begins at i * interleave seconds.
    block_size: tokens per block where the trace does not say (where it says otherwise: TraceError).
    tokenizer: a tokenizer file for traces of text.
    skip_bad: count bad lines in `Trace.skipped` (and tell `on_bad`) instead of raising at the first.
    Raises TraceError (file and line in message and `.numbers`) and ConfigError (unknown format, tokenizer, sizes).
    """
    if format is not None and format not in FORMATS:
        raise ConfigError(f"unknown trace format {format!r}; known: {', '.join(FORMATS)}", format=format)
    if interleave is not None and not 0 <= interleave < 1e9:
        raise ConfigError(f"interleave must be seconds from 0 on, not {interleave}", interleave=interleave)
    if block_size is not None and block_size < 1:
        raise ConfigError(f"a block has at least one token, not {block_size}", block_size=block_size)
    problems = Problems(skip_bad, on_bad)
    builder = Builder(timing or Timing(), problems.bad)
    files = _files([paths] if isinstance(paths, str | Path) else paths)
    for path in files:
        source = Source(path, problems, block_size=block_size, tokenizer=tokenizer)
        if not (format and skip_bad):
            source.check()
        reader = (FORMATS[format] if format else sniff(source))()
        builder.file(source.name, reader.tokens_per_block(source))
        shared = reader.name if reader.shares_ids else None
        for request in reader.requests(source):
            builder.add(request, shared)
    name = (
        (files[0].name if files[0] != STDIN else "<stdin>")
        if len(files) == 1
        else f"{files[0].parent.name or files[0].name} ({len(files)} files)"
    )
    return builder.build(name, interleave, lambda: problems.count)


def sniff(source: Source) -> type[Format]:
    """The format of a file, from the first line that is a JSON object. Raises TraceError when none fits."""
    fields = next((found for line in source.peek(_LOOK_AT) if (found := _fields(line)) is not None), None)
    for known in FORMATS.values():
        if fields is not None and known.knows(fields):
            return known
    if source.path.name.endswith((".json", ".json.gz")):  # a document over many lines, or a broken one
        return Weka
    raise TraceError(
        f"{source.name}:1: no known trace format (known: {', '.join(FORMATS)}); name it with --format",
        file=source.name,
        line=1,
    )


def _fields(raw: bytes) -> dict[str, Any] | None:
    try:
        return msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    except MALFORMED:
        return None


def _files(paths: Iterable[str | Path]) -> list[Path]:
    found: list[Path] = []
    for path in map(Path, paths):
        if path != STDIN and path.is_dir():
            inside = sorted(p for p in path.iterdir() if p.is_file() and p.name.endswith(_SUFFIXES))
            if not inside:
                raise TraceError(f"{path}: no trace file in this folder ({', '.join(_SUFFIXES)})", file=str(path), line=0)
            found.extend(inside)
        else:
            found.append(path)
    if not found:
        raise TraceError("no trace file given", file="", line=0)
    return found
