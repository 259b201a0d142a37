"""The demo's table while it grows: redrawn in place on a terminal that is wide enough, else a line each as it comes.
`tenure demo` feeds it; it knows no model and no blocks."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.text import Text

__all__ = ["Growing"]

_AROUND = 3
"""Lines of a terminal that are not the table's: its header, what is being done, and the cursor's."""


class Growing:
    """A table of ready-made lines under a header. To be used in a `with` block."""

    def __init__(self, screen: Console, header: str) -> None:
        self._screen = screen
        self._header = header
        self._lines: list[str] = []
        self._doing = ""
        wide = screen.is_terminal and screen.width > len(header)
        self._live = Live(console=screen, auto_refresh=False, transient=False) if wide else None

    def tell(self, doing: str) -> None:
        """What is being done now; it is shown where it can be taken back."""
        self._doing = doing
        if self._live is not None:
            self._live.update(self._drawn(self._lines[-max(1, self._screen.height - _AROUND) :]), refresh=True)

    def add(self, line: str) -> None:
        """One line more."""
        self._lines.append(line)
        if self._live is None:
            self._screen.print(line)
        else:
            self.tell("")

    def __enter__(self) -> Growing:
        if self._live is None:
            self._screen.print(self._header)
        else:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._live is not None:
            self._doing = ""
            self._live.update(self._drawn(self._lines))
            self._live.stop()

    def _drawn(self, lines: list[str]) -> Text:
        return Text("\n".join([self._header, *lines, *([self._doing] if self._doing else [])]), no_wrap=True)
