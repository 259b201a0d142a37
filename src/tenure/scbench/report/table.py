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
    for column, name in enumerate(sheet.header):  # what has no room goes on in the next line: nothing is cut off
        out.add_column(name, justify="left" if sheet.is_text(column) else "right", overflow="fold")
    for row in sheet.rows:
        out.add_row(*(Text(cell) for cell in row))
    return out
