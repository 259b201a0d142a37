"""What a grid leaves behind: a row for each session, mode, method and budget, one JSON object a line.
The grid appends rows, reports read them; nothing here computes a score or an average."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from tenure.errors import TraceError

__all__ = ["Row", "read_rows"]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One session, asked in one mode with one method at one budget.

    model, task, mode, method: names. size: of the session, in the task's units. seed: of the session; rows of equal model, task
    and seed answer the same questions. stage: of the method in the life cycle. memory: "O(k)" or "O(n)". budget: a fraction of
    the bytes of a KV that is kept and read whole; 1 for methods of one size. scores, kinds, predictions, lengths: of each turn in
    order; scores from 0 to 1, lengths in tokens, of the shortest answers that are true. tokens: of the context that was settled.
    full: bytes that its KV takes; resident: bytes that are kept; read: bytes of it that each token read on average, metadata
    counted. asked: tokens of all prompts of the session, each whole; prefilled: those of them that were run. seconds: that it
    took, running the context aside; encoding: seconds of that. Both None where seconds were not taken, and encoding None for what
    serves whole prompts: its seconds are all.
    """

    model: str
    task: str
    size: int
    seed: int
    mode: str
    method: str
    stage: str
    memory: str
    budget: float
    scores: tuple[float, ...]
    kinds: tuple[str, ...]
    predictions: tuple[str, ...]
    lengths: tuple[int, ...]
    tokens: int
    full: int
    resident: int
    read: float
    asked: int
    prefilled: int
    encoding: float | None = None
    seconds: float | None = None

    @property
    def cell(self) -> tuple[str, str, str, str, float]:
        """What it is a sample of: model, task, mode, method, budget."""
        return (self.model, self.task, self.mode, self.method, self.budget)

    def line(self) -> bytes:
        """As it stands in a file, with its line end."""
        return msgspec.json.encode(self) + b"\n"


def read_rows(path: Path) -> Iterator[Row]:
    """The rows of a file; none where there is no file. A last line that was cut off is left out.

    Raises TraceError for any other line that is no row, with file and line.
    """
    if not path.exists():
        return
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield msgspec.json.decode(line, type=Row)
            except msgspec.DecodeError as problem:
                raise TraceError(f"{path}:{number}: no row: {problem}", file=str(path), line=number) from None
