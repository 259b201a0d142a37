"""A second scorer: it reads the right answer out of a session's context and a query, never out of the labels, and scores by rules
written anew. It shares no code with the tasks but the words' categories and the list of modules."""

from __future__ import annotations

import ast
import sysconfig
from collections import Counter
from functools import cache
from pathlib import Path

from tenure.scbench.tasks.code_search import MODULES
from tenure.scbench.tasks.words import CATEGORIES


def rescore(task: str, context: str, query: str, prediction: str) -> float:
    """What an answer to `query` is worth, 0 to 1."""
    right = truth(task, context, query)
    if task == "math_find":
        spaced = "".join(one if one.isdigit() or one == "." else " " for one in prediction)
        return float([word.strip(".") for word in spaced.split() if word.strip(".")][:1] == right)
    if task == "icl_many_shot":
        return float("".join(one if one.isalnum() else " " for one in prediction).split()[:1] == right)
    words = "".join(one if one.isalnum() or one in "-_" else " " for one in prediction).split()
    if task in ("multi_hop", "code_search"):
        return len(set(right) & set(words)) / len(set(right))
    return float(prediction.count(right[0]) > 0)


def truth(task: str, context: str, query: str) -> list[str]:
    """The right answer as the context has it."""
    lines = context.splitlines()
    return globals()[f"_{task}"](lines, query)


def _retr_kv(lines: list[str], query: str) -> list[str]:
    return [line.split(": ")[1] for line in lines if line.split(": ")[0] + ":" == query]


def _prefix_suffix(lines: list[str], query: str) -> list[str]:
    begin, end = query.rstrip(":").split("*")
    return [line for line in lines if line.startswith(begin) and line.endswith(end)]


def _multi_hop(lines: list[str], query: str) -> list[str]:
    values: dict[str, str] = {}
    for line in lines:
        _, name, _, *source = line.split(" ")
        values[name] = source[0] if len(source) == 1 else values[source[1]]
    return [name for name, value in values.items() if f"VAR = {value}:" == query]


def _math_find(lines: list[str], query: str) -> list[str]:
    values = sorted(int(word) for line in lines for word in line.split())
    rank = next((at for at, word in enumerate(("second", "third", "fourth"), start=1) if word in query), 0)
    return [str(values[-1 - rank] if "largest" in query else values[rank])]


def _icl_many_shot(lines: list[str], query: str) -> list[str]:
    kind = {word: name for name, words in CATEGORIES.items() for word in words}
    votes = Counter(line.split(": ")[1] for line in lines if kind[line.split(": ")[0]] == kind[query.rstrip(":")])
    assert len(votes) == 1, "a category has two labels"
    return list(votes)


def _kv_needle(lines: list[str], query: str) -> list[str]:
    return [line[len(query) :].strip() for line in lines if line.startswith(f"{query} ")]


def _code_search(lines: list[str], query: str) -> list[str]:
    about = query.splitlines()[0].removeprefix("# ")
    here = {node.name for node in ast.walk(ast.parse("\n".join(lines))) if isinstance(node, ast.FunctionDef)}
    return sorted({name for name, says in _documented() if says.startswith(about) and name in here})


@cache
def _documented() -> list[tuple[str, str]]:
    """(name, docstring) of every function and method of the modules."""
    paths = (Path(sysconfig.get_path("stdlib"), f"{module}.py") for module in MODULES.split())
    nodes = (node for path in paths if path.is_file() for node in ast.walk(ast.parse(path.read_text("utf8"))))
    return [(node.name, ast.get_docstring(node) or "") for node in nodes if isinstance(node, ast.FunctionDef)]
