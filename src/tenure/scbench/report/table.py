"""The report's tables for a terminal. The command line calls it; it computes nothing."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from tenure.scbench.report.sheets import Sheet

__all__ = ["table"]


def table(sheet: Sheet) -> Table:
    """A sheet as a table; names are shown as they are, never read as markup."""
    out = Table(
        box=None,
        pad_edge=False,
        header_style="bold",
        title=Text(sheet.title, style="bold"),
        title_justify="left",
        caption=Text(sheet.note) if sheet.note else None,
        caption_justify="left",
    )
    last = len(sheet.header) - 1
    for column, name in enumerate(sheet.header):
        text = sheet.is_text(column)
        out.add_column(name, justify="left" if text else "right", no_wrap=not (text and column == last))
    for row in sheet.rows:
        out.add_row(*(Text(cell) for cell in row))
    return out
