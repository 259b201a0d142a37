"""Name the function that does what is described, among the standard library's own, without docstrings. After SCBench's RepoQA;
one of the tasks in the registry beside it. What a seed draws depends on the version of Python."""

from __future__ import annotations

import ast
import re
import sysconfig
from collections import Counter
from functools import cache
from pathlib import Path
from random import Random

from tenure.errors import ConfigError
from tenure.scbench import scoring
from tenure.scbench.session import Session, Turn
from tenure.scbench.tasks.base import Task, drawn

__all__ = ["CodeSearch"]

MODULES = """
ast base64 bisect calendar colorsys contextlib copy difflib dis fileinput fnmatch fractions functools genericpath
gettext glob heapq imaplib inspect ipaddress linecache locale mimetypes nturl2path ntpath operator pickletools pkgutil
platform posixpath pprint profile pstats quopri random reprlib secrets shlex shutil site smtplib socket statistics
stat string struct subprocess symtable tabnanny tempfile textwrap timeit tokenize trace traceback types uuid warnings
wave zipfile
"""
LONGEST = 600
"""Characters of a function's source at most."""
_SENTENCE = re.compile(r"[A-Z][^\n]{20,100}?\.(?=\s|$)")


class CodeSearch(Task):
    """Functions as source; a query is `# ` and the first sentence of a docstring, `def` below it. Label: the function's name,
    which must be a word of the answer."""

    name = "code_search"
    unit = "functions"

    def most(self) -> int:
        """As many as this Python has."""
        return len(_functions())

    def draw(self, random: Random, size: int, turns: int) -> Session:
        """Functions in any order."""
        chosen = random.sample(_functions(), size)
        asked, solved = drawn(random, chosen, turns)
        return Session(
            task=self.name,
            seed=0,
            context="".join(f"{source}\n" for _, _, source in chosen),
            primer="".join(f"# {about}\ndef {name}\n" for name, about, _ in solved[:4]),
            turns=tuple(Turn(f"# {about}\ndef", f" {name}", (name,)) for name, about, _ in asked),
        )

    def score(self, prediction: str, turn: Turn) -> float:
        """Whether the name is a word of the answer."""
        return scoring.names_found(prediction, turn.labels)


@cache
def _functions() -> tuple[tuple[str, str, str], ...]:
    """(name, what it does, source without docstring) of each function that has a docstring without its name, and whose name is
    in none of the others."""
    found: list[tuple[str, str, str]] = []
    for path in (Path(sysconfig.get_path("stdlib"), f"{module}.py") for module in MODULES.split()):
        tree = ast.parse(path.read_bytes() if path.is_file() else b"")
        for node in (node for node in tree.body if isinstance(node, ast.FunctionDef)):
            about = _SENTENCE.match(ast.get_docstring(node) or "")
            if not about or len(node.name) < 5 or node.name in about.group() or about.group() in {says for _, says, _ in found}:
                continue
            node.body = node.body[1:] or [ast.Pass()]
            if len(source := ast.unparse(node)) <= LONGEST:
                found.append((node.name, about.group(), source))
    words = Counter(re.findall(r"\w+", " ".join(source for _, _, source in found)))
    if not found:
        raise ConfigError("this Python comes without the source of its standard library: code_search needs it")
    return tuple(one for one in found if words[one[0]] == 1)
