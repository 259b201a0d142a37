"""The report as one HTML page that needs nothing else: no request, no script, pictures inside. The report calls it; it computes
nothing, and every text from outside is escaped."""

from __future__ import annotations

import base64
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from tenure.scbench.report import sheets, words
from tenure.scbench.report.cells import Cell
from tenure.scbench.report.choices import Choice
from tenure.scbench.report.claims import Claims
from tenure.scbench.report.plots import Picture
from tenure.scbench.report.samples import DENSE
from tenure.scbench.report.sheets import Sheet
from tenure.scbench.report.statistics import DRAWS, SEED
from tenure.scbench.report.verdicts import FEWEST, MARGIN, USABLE
from tenure.scbench.scoring import LEAST_DENSE

__all__ = ["CAVEATS", "READING", "page"]

READING = (
    sheets.LEGEND,
    f"The bootstrap resamples sessions within tasks ({DRAWS:,} draws, seed {SEED}); the methods and turns of a session stay "
    "together. The exact bound: of n sessions that agree, a share of 1 - .025^(1/n) might be otherwise; with 20 sessions 0.17.",
    "Resident: bytes of KV kept; read: bytes that each token reads; both over those of the whole KV, metadata counted, over all "
    "modes. Saved: prompt tokens that were not run. Encoding: seconds to run the context; after: from there on; over dense's.",
    f"A verdict needs {FEWEST} sessions, of all its tasks together, and is about the digits that are shown. A difference under "
    f"{MARGIN:g} is as good as none. Lossless: the lower end of the difference to dense is not under -{MARGIN:g}, or no session "
    f"scored otherwise than dense. Usable: at least {USABLE:g} of dense's accuracy.",
    f"Where dense is under {LEAST_DENSE:g} on a task in any mode, no claim is about that task: noise is measured there.",
)
CAVEATS = (
    "Models and contexts are as small as the grid says. What is lost at a share of the KV may differ for larger ones.",
    "A method that is near 0 at turn 1 cannot fall far after it: read the fall beside the level.",
    "In a conversation the first token of turn 1 comes from the prefill, before anything is dropped, rounded or left unread. "
    "Where the true answer is one token, turn 1 is left out (of turn 1, the fall, verdicts and choices, for all methods, so that "
    "they compare; not of accuracy over all turns); where it is longer, turn 1 is a little flattered.",
    "Each interval stands for itself: of forty claims with nothing behind them, chance alone makes one look settled.",
    "The best of several methods was chosen on the sessions that it is shown for, and looks a little better than it is.",
    "Seconds are of this implementation on the machine of the grid, of a few conversations in which each method runs by itself; "
    "kernels made for a method take other times. Methods that begin with full attention share the run of a context, whose "
    "seconds each of them shows. What finding pieces would take is not in them.",
    "Where the device is the CPU, KV that is swapped out and in is copied within one memory: nothing crosses a bus.",
    "Sessions may be missing while a grid runs: n says how many there are, and comparisons are of sessions that both sides have.",
)
_STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --page: #fff; --soft: #555; --rule: #ccc; --band: #f3f3f3; --warn: #a33c00; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --page: #16181b; --soft: #aaa; --rule: #444; --band: #22262a; --warn: #ff9d5c; }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page);
  margin: 0 auto; max-width: 84rem; padding: 1rem 1.5rem; }
h1, h2, h3 { line-height: 1.2; } h2 { margin-top: 2.2rem; border-bottom: 1px solid var(--rule); }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
.wide { overflow-x: auto; margin: .5rem 0 1.2rem; }
th, td { padding: .15rem .6rem; text-align: right; vertical-align: top; white-space: nowrap; }
thead th { border-bottom: 1px solid var(--rule); } tbody tr:nth-child(even) { background: var(--band); }
.t { text-align: left; } .p { text-align: left; white-space: normal; min-width: 16rem; } td.t { white-space: pre-wrap; }
.note, figcaption { color: var(--soft); font-size: 13px; } .warn { color: var(--warn); font-weight: 600; }
figure { margin: 1rem 0 2rem; } img { max-width: 100%; box-sizing: border-box;
  background: #fff; border-radius: 6px; padding: .4rem; }
nav { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; } a { color: inherit; }
dl { display: grid; grid-template-columns: max-content minmax(0, 1fr); gap: .1rem 1rem; margin: 0; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; }
@media (max-width: 50rem) {
  body { padding: .6rem .8rem; } dl { display: block; } dd { margin: 0 0 .2rem 1rem; }
  .wide::before { content: "scroll sideways to see all"; position: sticky; left: 0; color: var(--soft); font-size: 12px; }
  .wide img { max-width: none; min-width: 48rem; } .p { min-width: 13rem; }
}
pre { background: var(--band); padding: .6rem; overflow-x: auto; } summary { cursor: pointer; font-weight: 600; }
"""
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_LONG = 60  # characters: longer text wraps


def page(
    about: Mapping[str, Any],
    cells: Sequence[Cell],
    claims: Claims,
    choices: Sequence[Choice],
    pictures: Sequence[Picture],
) -> str:
    """The page. about: the grid's description."""
    parts: dict[str, Iterable[str]] = {
        "What to do with a context's KV": _sheets(sheets.operator(choices, claims)),
        "Claims": (*_tasks(claims), *_sheets(sheets.summary(claims))),
        "How to read it": (_list(READING),),
        "Caveats": (_list(CAVEATS),),
        "The numbers behind the claims": _sheets(sheets.claimed(claims)),
        "Pictures": map(_figure, pictures),
        "Every cell": _full(cells),
        "What was measured": (_tree(about),),
        "How to make it again": (f"<pre>{_text(_command(about))}</pre>",),
    }
    links = " ".join(f'<a href="#part{number}">{_text(title)}</a>' for number, title in enumerate(parts, 1))
    body = ["<h1>What KV that is dropped, rounded, selected or shared costs</h1>", f"<nav>{links}</nav>", *_weak(cells)]
    for number, (title, lines) in enumerate(parts.items(), 1):
        body += [f'<h2 id="part{number}">{_text(title)}</h2>', *lines]
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8"><title>SCBench: what a grid says</title>',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            f"<style>{_STYLE}</style></head><body>",
            *body,
            "</body></html>\n",
        ]
    )


def _text(value: object) -> str:
    """Escaped; what no page can show is a space."""
    return "\n".join(escape(words.plain(line)) for line in str(value).split("\n"))


def _tree(value: object) -> str:
    """A description of any shape, as lists within lists."""
    if isinstance(value, Mapping):
        named = (f"<dt>{_text(name)}</dt><dd>{_tree(each)}</dd>" for name, each in value.items() if each not in ("", {}, [], ()))
        return f"<dl>{''.join(named)}</dl>"
    if isinstance(value, (list, tuple)):
        if any(isinstance(each, (Mapping, list, tuple)) for each in value):
            return "".join(_tree(each) for each in value)
        return _text(", ".join(map(str, value)))
    return _text(value)


def _command(about: Mapping[str, Any]) -> str:
    command = about.get("command", "not given")
    return shlex.join(map(str, command)) if isinstance(command, (list, tuple)) else str(command)


def _weak(cells: Sequence[Cell]) -> Iterator[str]:
    for cell in cells:
        if cell.noise and cell.method == DENSE:
            where = (
                f"{cell.model} / {cell.task} / {cell.mode}: dense scores {words.interval(cell.accuracy)}, under {LEAST_DENSE:g}."
            )
            yield f'<p class="warn">Noise is measured here: {_text(where)}</p>'


def _tasks(claims: Claims) -> Iterator[str]:
    for model, tasks in claims.tasks.items():
        nothing = f"on no task was dense measured and scores {LEAST_DENSE:g}; little is claimed."
        said = f"claims are about {', '.join(tasks)}." if tasks else nothing
        yield f"<p>{_text(model)}: {_text(said)}</p>"


def _sheets(found: Sequence[Sheet]) -> Iterator[str]:
    for sheet in found:
        yield f"<h3>{_text(sheet.title)}</h3>"
        yield _table(sheet)
    if not found:
        yield "<p>Not measured.</p>"


def _full(cells: Sequence[Cell]) -> Iterator[str]:
    for sheet in sheets.full(cells):
        flag = ' <span class="warn">(noise)</span>' if sheet.note else ""
        yield f"<details><summary>{_text(sheet.title)}{flag}</summary>{_table(sheet)}</details>"


def _table(sheet: Sheet) -> str:
    columns = range(len(sheet.header))
    kinds = [
        ("p" if any(len(row[column]) > _LONG for row in sheet.rows if column < len(row)) else "t")
        if sheet.is_text(column)
        else ""
        for column in columns
    ]
    head = "".join(
        f'<th class="{kind}">{_text(name)}</th>' if kind else f"<th>{_text(name)}</th>"
        for kind, name in zip(kinds, sheet.header, strict=True)
    )
    lines = []
    for row in sheet.rows:
        if len(row) == 1:
            lines.append(f'<tr><th class="t" colspan="{len(sheet.header)}">{_text(row[0])}</th></tr>')
        elif row:
            cells = (
                f'<td class="{kind}">{_text(cell)}</td>' if kind else f"<td>{_text(cell)}</td>"
                for kind, cell in zip(kinds, row, strict=True)
            )
            lines.append(f"<tr>{''.join(cells)}</tr>")
    note = f'<p class="note">{_text(sheet.note)}</p>' if sheet.note else ""
    return f'{note}<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'


def _figure(picture: Picture) -> str:
    title = _text(f"{picture.model}: {picture.title}")
    inside = base64.b64encode(_compact(picture.svg.read_text("utf-8")).encode()).decode()
    image = f'<img alt="{title}" src="data:image/svg+xml;base64,{inside}">'
    return f'<figure><div class="wide">{image}</div><figcaption>{title}</figcaption></figure>'


def _compact(svg: str) -> str:
    """A drawing without what is not seen: its metadata, and digits below a hundredth of a point."""
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", svg, flags=re.DOTALL)
    return re.sub(r"\n\s+", "\n", re.sub(r"(\d\.\d\d)\d+", r"\1", svg))


def _list(lines: Sequence[str]) -> str:
    return "<ul>" + "".join(f"<li>{_text(line)}</li>" for line in lines) + "</ul>"
