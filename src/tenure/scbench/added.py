"""Methods and tasks of the user's own: Python files that add to `METHODS` and `TASKS` when they are run. The command line and
every measuring process call it; it adds nothing itself."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path

from tenure.errors import ConfigError
from tenure.identity import content_digest

__all__ = ["load"]


def load(files: Iterable[str]) -> None:
    """Runs each file, once in a process. Raises ConfigError for one that cannot be run, with where it failed and why."""
    for file in files:
        path = Path(file).resolve()
        name = f"tenure_scbench_added_{content_digest(str(path).encode())}"  # the same in every process
        if name in sys.modules:
            continue
        found = importlib.util.spec_from_file_location(name, path)
        if path.suffix != ".py" or found is None or found.loader is None:
            raise ConfigError(f"{file} cannot be used: a Python file, NAME.py, is needed")
        module = sys.modules[name] = importlib.util.module_from_spec(found)
        try:
            found.loader.exec_module(module)
        except (Exception, SystemExit) as problem:  # whatever the user's code raises
            del sys.modules[name]
            raise ConfigError(f"{file}{_line(problem, path)}: {type(problem).__name__}: {problem}") from problem


def _line(problem: BaseException, path: Path) -> str:
    """Where in the file it came from, as far as that is known."""
    if isinstance(problem, SyntaxError):
        return f":{problem.lineno}"
    trace, line = problem.__traceback__, ""
    while trace is not None:
        line = f":{trace.tb_lineno}" if trace.tb_frame.f_code.co_filename == str(path) else line
        trace = trace.tb_next
    return line
