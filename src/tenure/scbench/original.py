"""SCBench's own data: sessions from its JSONL files in a folder, and its metrics. The command line calls it for `--data`.
It downloads nothing; instructions are in our words, questions and answers are the data's."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import msgspec

from tenure.checks import integer
from tenure.errors import TraceError
from tenure.scbench import scoring
from tenure.scbench.session import Session, Turn
from tenure.scbench.similarity import bleu, f1_chinese, rouge_lsum

__all__ = ["ORIGINAL", "Original"]

LETTERS = "ABCD"
ALIKE = 0.8
"""A function counts as found when it is at least so like the one that was described, and most like that one."""
_PREFIX = "scbench_"


class _Asked(msgspec.Struct):
    input: str
    answer: str | int | float | list[str]
    options: list[str] = []
    task: str = ""


class _Row(msgspec.Struct):
    multi_turns: list[_Asked]
    context: str | list[int] = ""
    input: str = ""
    repo: str = ""


@dataclass(frozen=True, slots=True)
class Original:
    """One of SCBench's data sets: `read` its sessions, `score` an answer. `limits` is the most tokens of an answer by kind of
    turn (the kind is the data set's name where it does not mix them)."""

    name: str
    limits: dict[str, int]
    instruction: str = ""

    def path(self, folder: Path) -> Path:
        """Its file in a folder."""
        return folder / f"{_PREFIX}{self.name}.jsonl"

    def read(self, folder: Path, turns: int = 5) -> Iterator[Session]:
        """The sessions of `folder`/scbench_NAME.jsonl, their first `turns` turns; a session's seed is its number from 0.

        Raises TraceError for a file that cannot be read or a line that is no session, with file and line.
        """
        integer("turns", turns, 1, 1 << 16)
        path = self.path(folder)
        rows = list(_rows(path))
        functions: dict[str, list[str]] = defaultdict(list)  # of a repository: what an answer can be taken for
        for _, row in rows:
            functions[row.repo] += [str(asked.answer) for asked in row.multi_turns if self._kind(asked) == "repoqa"]
        for number, (line, row) in enumerate(rows):
            try:
                asked = tuple(self._turn(one, functions[row.repo]) for one in row.multi_turns[:turns])
            except ValueError as problem:
                raise TraceError(f"{path}:{line}: {problem}", file=str(path), line=line) from None
            text = row.context or row.input
            if not asked or not text:
                raise TraceError(f"{path}:{line}: has no {'turns' if text else 'context'}", file=str(path), line=line)
            context = "\n\n".join(part for part in (self.instruction, str(text)) if part) + "\n\n"
            yield Session(self.name, number, context, asked, stop="", close="\n\n")

    def score(self, prediction: str, turn: Turn) -> float:
        """How right an answer is, 0 to 1, by the metric of the turn's kind."""
        return _METRICS[turn.kind](prediction, turn.labels)

    def _kind(self, asked: _Asked) -> str:
        return asked.task.removeprefix(_PREFIX) if len(self.limits) > 1 else self.name

    def _turn(self, asked: _Asked, rivals: list[str]) -> Turn:
        kind, query, answer = self._kind(asked), asked.input, asked.answer
        if isinstance(answer, float):
            answer = f"{Decimal(str(answer)):f}"  # as people write it
        if kind not in self.limits:
            raise ValueError(f"a turn of task {asked.task!r}: {self.name} has {', '.join(self.limits)}")
        labels = tuple(answer) if isinstance(answer, list) else (str(answer),)
        if not labels or not all(label.strip() for label in labels):
            raise ValueError("a turn without an answer")
        if kind == "mf" and not (isinstance(asked.answer, int | float) and asked.answer >= 0):
            raise ValueError(f"the answer {answer!r} is no number from 0 on")
        if not query.strip():
            raise ValueError("a turn without a question")
        if kind == "choice_eng":
            if answer not in asked.options or len(asked.options) != len(LETTERS):
                raise ValueError(f"the answer {answer!r} must be one of four options: there are {asked.options}")
            labels = (*labels, LETTERS[asked.options.index(labels[0])])
            options = "".join(f"{letter}. {option}\n" for letter, option in zip(LETTERS, asked.options, strict=True))
            query = f"Question: {query}\n{options}The correct answer is"
        elif kind.startswith("qa_"):
            query = f"Question: {query}\nAnswer:"
        elif kind == "repoqa":
            labels += tuple(dict.fromkeys(rival for rival in rivals if rival != answer))
        said = ", ".join(answer) if isinstance(answer, list) else str(answer)
        enough = labels[-1] if kind == "choice_eng" else ""  # the letter
        return Turn(query, said if query[-1:].isspace() else f" {said}", labels, kind, self.limits[kind], enough)


def choice(prediction: str, labels: tuple[str, ...]) -> float:
    """Whether the right one of four options was chosen, by an answer that begins with a letter, is the option's text, or says
    either after `answer is` and the like; else the first letter that stands alone counts."""
    text = prediction.strip()
    if text[:1] in tuple(LETTERS):
        return float(text[0] in labels)
    if text in labels:
        return 1.0
    text = " ".join(re.sub(r"[\n\"'.,?!{}]", " ", text).split())
    for cue in ("answer is:", "answer:", "answer is", "option is"):
        _, found, after = text.partition(cue)
        if found:
            return float(after[1:].startswith(labels))
    return float(next((word for word in text.split() if word in tuple(LETTERS)), "") in labels)


def number(prediction: str, labels: tuple[str, ...]) -> float:
    """Whether the first number is the right one; a whole number is compared without the fraction."""
    said, true = scoring.first_number(prediction), labels[0]
    if "." not in true:
        said = said.partition(".")[0]
    return float(said != "" and Decimal(said) == Decimal(true))


def function(prediction: str, labels: tuple[str, ...]) -> float:
    """Whether the answer (its first code block, if it has one) is like the first label, and less like every other."""
    block = re.search(r"^```\w*\s*\n(.*?)^```", prediction.strip(), re.DOTALL | re.MULTILINE)
    likeness = [bleu(block.group(1) if block else prediction, label) for label in labels]
    return float(likeness[0] >= ALIKE and likeness[0] == max(likeness))


def _parts(prediction: str, labels: tuple[str, ...]) -> float:
    return sum(label.lower() in prediction.lower() for label in labels) / len(labels)


# SCBench's own harness compares with an answer that is one string character by character in qa_chn and many_shot: almost anything
# is right. Here the whole answer counts. It also cuts a function out of a code block with a parser; here the block counts.
_METRICS: dict[str, Callable[[str, tuple[str, ...]], float]] = {
    "kv": lambda said, labels: scoring.contains(said, labels[0]),
    "prefix_suffix": lambda said, labels: scoring.contains(said, labels[0]),
    "vt": _parts,
    "repoqa": function,
    "choice_eng": choice,
    "qa_eng": _parts,
    "qa_chn": lambda said, labels: max(f1_chinese(said, label) for label in labels),
    "many_shot": _parts,
    "mf": number,
    "summary": lambda said, labels: rouge_lsum(said, labels[0]),
    "passkey": lambda said, labels: float(re.findall("[0-9]+", said)[:1] == [labels[0]]),
}

_SETS = (
    Original("kv", {"kv": 150}, "Find the value that this JSON object has for a key."),
    Original("prefix_suffix", {"prefix_suffix": 150}),
    Original("vt", {"vt": 30}),
    Original("repoqa", {"repoqa": 1024}, "Find the function that is described and repeat it, word for word, in a code block."),
    Original("qa_eng", {"qa_eng": 40}, "Read the book, then answer in few words."),
    Original("qa_chn", {"qa_chn": 40}, "请阅读下面的书，然后回答问题。"),
    Original("choice_eng", {"choice_eng": 40}, "Read the book, then choose the right answer."),
    Original("mf", {"mf": 5}),
    Original("many_shot", {"many_shot": 10}),
    Original("summary", {"summary": 200}),
    Original("summary_with_needles", {"summary": 800, "passkey": 15}),
    Original("repoqa_and_kv", {"repoqa": 1024, "kv": 80}),
)
ORIGINAL: dict[str, Original] = {one.name: one for one in _SETS}
"""The twelve data sets, by their names without the prefix."""


def _rows(path: Path) -> Iterator[tuple[int, _Row]]:
    """(line number from 1, row) of every line that is not blank."""
    decode = msgspec.json.Decoder(_Row).decode
    line = 0
    try:
        with path.open("rb") as lines:
            for line, raw in enumerate(lines, start=1):
                if raw.strip():
                    yield line, decode(raw)
    except OSError as problem:
        raise TraceError(f"{path}: cannot be read: {problem.strerror or problem}", file=str(path), line=0) from None
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as problem:
        raise TraceError(f"{path}:{line}: {problem}", file=str(path), line=line) from None
