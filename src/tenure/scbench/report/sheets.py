"""The report's tables as plain text cells, once for all ways to show them: terminal, Markdown, page. Those call it; it computes
nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from tenure.scbench.report import words
from tenure.scbench.report.cells import Cell
from tenure.scbench.report.choices import Choice
from tenure.scbench.report.claims import Claims, Finding, Reuse
from tenure.scbench.report.pooling import Compared, Pool
from tenure.scbench.report.verdicts import above
from tenure.scbench.scoring import LEAST_DENSE

__all__ = ["LEGEND", "Sheet", "answers", "claimed", "full", "operator", "summary"]

LEGEND = (
    "Intervals are of 95 %: a bootstrap over sessions, or, where starred, the exact binomial bound, because all sessions agree "
    "and a resample of them has no spread."
)


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table. An empty row is a gap; the first `left` columns and those named in `texts` are text, the others numbers."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: int = 1
    texts: frozenset[str] = frozenset()
    note: str = ""

    def is_text(self, column: int) -> bool:
        """Whether a column is flush left."""
        return column < self.left or self.header[column] in self.texts


def full(cells: Sequence[Cell]) -> list[Sheet]:
    """Every cell: a sheet for each model, task and mode."""
    header = ("method", "budget", "n", "accuracy", "turn 1", "turns 2..", "resident", "read", "saved", "encoding", "after")
    sheets = []
    for (model, task, mode), group in groupby(cells, lambda cell: (cell.model, cell.task, cell.mode)):
        rows: list[tuple[str, ...]] = []
        last, here = None, list(group)
        for cell in here:
            kind = words.group(cell.stage, cell.memory)
            if kind != last:
                rows += [(), (kind,)] if rows else [(kind,)]
            last = kind
            rows.append(
                (
                    f"  {cell.method}",
                    words.budget(cell.budget),
                    str(cell.sessions),
                    words.interval(cell.accuracy),
                    words.interval(cell.first),
                    words.interval(cell.later),
                    words.percent(cell.resident),
                    words.percent(cell.read),
                    words.percent(cell.saved),
                    words.times(cell.encoding_ratio),
                    words.times(cell.seconds_ratio),
                )
            )
        noise = f"Noise is measured here: dense is under {LEAST_DENSE:g}." if here[0].noise else ""
        sheets.append(Sheet(f"{model} / {task} / {mode}", header, tuple(rows), note=noise))
    return sheets


def summary(claims: Claims) -> list[Sheet]:
    """The verdicts: a row a claim, what it says at each budget."""
    sheets = []
    for model in claims.tasks:
        rows: list[tuple[str, ...]] = []
        found = [one for one in claims.findings if one.model == model]
        for about in dict.fromkeys(one.about for one in found):
            for statement in dict.fromkeys(one.statement for one in found if one.about == about):
                rows.append(
                    (about, statement, _verdicts([one for one in found if (one.about, one.statement) == (about, statement)]))
                )
        if rows:
            sheets.append(Sheet(f"{model}: verdicts", ("methods", "claim", "verdict"), tuple(rows), left=3))
    return sheets


def claimed(claims: Claims) -> list[Sheet]:
    """The numbers behind the verdicts: against dense, by budget and method; controls; exact reuse."""
    header = (
        "methods",
        "budget",
        "n",
        "turn 1",
        "turns 2..",
        "falls more by",
        "more than dense?",
        "multi-request",
        "resident",
        "read",
    )
    named = (
        ("memory that was thinned, O(k)", claims.dropping),
        ("memory that was kept, O(n)", claims.keeping),
        ("controls", claims.controls),
    )
    sheets = []
    for model in claims.tasks:
        for title, pools in named:
            rows = tuple(_pooled(pool) for pool in pools if pool.model == model)
            note = f"Accuracy over dense's of the same sessions; {_tasks(claims, model)}"
            if rows:
                sheets.append(Sheet(f"{model}: {title}", header, rows, texts=frozenset({"more than dense?"}), note=note))
        reuse = tuple(_reused(one) for one in claims.reuse if one.model == model)
        if reuse:
            sheets.append(Sheet(f"{model}: exact prefixes, reused against recomputed", _REUSE, reuse, left=2))
    return sheets


def operator(choices: Sequence[Choice], claims: Claims) -> list[Sheet]:
    """What to do with a context's KV: a sheet a model."""
    header = ("choice", "when to choose it", "measured", "n", "idle", "read", "turn 1", "turns 2..", "multi-request")
    sheets = []
    for model, group in groupby(choices, lambda choice: choice.measured.model):
        rows = tuple(
            (
                one.name,
                one.when,
                one.measured.label,
                _sessions(one.measured),
                words.percent(one.idle),
                words.percent(one.measured.read),
                *(words.interval(None if part is None else part.accuracy) for part in _parts(one.measured)),
            )
            for one in group
        )
        note = (
            f"Accuracies themselves; {_tasks(claims, model)} Idle: of the KV, on the device while nobody asks. Of several "
            "methods the one that loses least stands here, chosen on the same sessions: a little better than on new ones."
        )
        sheets.append(Sheet(f"{model}: what to do with a context's KV", header, rows, 3, note=note))
    return sheets


def answers(sheets: Sequence[Sheet]) -> str:
    """As Markdown."""
    return "\n".join(line for sheet in sheets for line in _markdown(sheet))


_REUSE = ("method", "mode", "n", "answers", "differ", "same", "score difference", "prefill saved", "time")


def _reused(one: Reuse) -> tuple[str, ...]:
    return (
        one.method,
        one.mode,
        str(one.sessions),
        f"{one.answers:,}",
        f"{one.different:,}",
        words.interval(one.same),
        words.interval(one.difference, sign=True),
        words.percent(one.saved),
        words.times(one.seconds_ratio),
    )


def _pooled(one: Pool) -> tuple[str, ...]:
    return (
        one.label,
        words.budget(one.budget),
        _sessions(one),
        _relative(one.first),
        _relative(one.later),
        words.interval(one.fall, sign=True),
        above(one.fall),
        _relative(one.request),
        words.percent(one.resident),
        words.percent(one.read),
    )


def _sessions(one: Pool) -> str:
    """How many, and of how many turn 1 and the fall are, where these are fewer."""
    few = None if one.first is None else one.first.accuracy.sessions
    return f"{one.sessions}" if few in (None, one.sessions) else f"{one.sessions} (turn 1: {few})"


def _parts(one: Pool) -> tuple[Compared | None, ...]:
    return (one.first, one.later, one.request)


def _verdicts(found: Sequence[Finding]) -> str:
    """One sentence over the budgets, those of one verdict together."""
    if len(found) == 1:
        return _weighed(found[0].verdict, [found[0]])
    return "; ".join(
        _weighed(verdict, [one for one in found if one.verdict == verdict])
        for verdict in dict.fromkeys(one.verdict for one in found)
    )


def _weighed(verdict: str, found: Sequence[Finding]) -> str:
    numbers = [f"{_at(one)}{words.interval(one.estimate)}" for one in found if one.estimate is not None]
    return f"{verdict} ({', '.join(numbers)})" if numbers else verdict


def _at(one: Finding) -> str:
    return f"{one.at}: " if one.at else ""


def _tasks(claims: Claims, model: str) -> str:
    """What numbers are about, and turn 1 where it is not about all of that."""
    tasks, begun = claims.tasks[model], claims.begun[model]
    told = f"tasks: {', '.join(tasks)}."
    if begun == tasks:
        return told
    return f"{told} Turn 1 and the fall: of {', '.join(begun) or 'none'}, as the prefill itself gives first answers of one token."


def _relative(part: Compared | None) -> str:
    return words.interval(None if part is None else part.relative)


def _markdown(sheet: Sheet) -> Iterator[str]:
    yield f"### {_safe(sheet.title)}\n"
    if sheet.note:
        yield f"{_safe(sheet.note)}\n"
    yield f"| {' | '.join(sheet.header)} |"
    yield f"|{'|'.join(':--' if sheet.is_text(column) else '--:' for column in range(len(sheet.header)))}|"
    for row in sheet.rows:
        if row:
            cells = [_safe(cell) for cell in (*row, *[""] * (len(sheet.header) - len(row)))]
            yield f"| {' | '.join(cells)} |"
    yield ""


def _safe(text: str) -> str:
    """Names are text: nothing in them is Markdown or HTML."""
    for character in "\\`|<>*_":
        text = text.replace(character, f"\\{character}")
    return " ".join(text.split())
