"""The tokenizer of the induction model: the tasks' words whole, numbers two digits at a time, everything else by character.
The induction model and its trainer use it; it never looks at what the text means."""

from __future__ import annotations

import re
import string

from tenure.identity import content_digest
from tenure.scbench.tasks.icl_many_shot import LABELS
from tenure.scbench.tasks.words import WORDS

__all__ = ["VOCABULARY", "Lexicon"]

_CHARACTERS = ("\n", *(one for one in string.printable if one >= " "))
_NUMBERS = tuple(f"{before}{number:02d}" for before in ("", " ", "-") for number in range(100))
_JOINED = ("The code of the ", " near the ", " = VAR ", " the ", "The ", "VAR ", "-*-", " is", " =")
"""What the tasks' lines are made of besides words and numbers; no query or answer ends within one, and longer ones come first."""
_VERBS = ("saw", "fed", "heard", "lost", "found")
_PIECES = tuple(dict.fromkeys((*_CHARACTERS, *_NUMBERS, *_JOINED, *_VERBS, *LABELS, *WORDS)))
_ID = {piece: number for number, piece in enumerate(_PIECES)}
_SPLIT = re.compile(rf"{'|'.join(map(re.escape, _JOINED))}|[A-Za-z]+|[ -]?[0-9][0-9]|[\s\S]")
VOCABULARY = len(_PIECES)


class Lexicon:
    """Text to ids and back. What printable ASCII can say comes back as it was; other characters become their escapes (\\xe9).

    `digest` tells one list of pieces from another.
    """

    digest = content_digest(*(piece.encode() for piece in _PIECES))

    def encode(self, text: str) -> list[int]:
        """The ids of a text."""
        ids: list[int] = []
        for piece in _SPLIT.findall(_plain(text)):
            known = _ID.get(piece)
            ids += [_ID[one] for one in piece] if known is None else [known]
        return ids

    def decode(self, ids: list[int]) -> str:
        """The text of ids, each 0 to VOCABULARY - 1."""
        return "".join(_PIECES[one] for one in ids)


def _plain(text: str) -> str:
    """The text in the characters that have an id."""
    return "".join(one if one in _ID else one.encode("unicode_escape").decode() for one in text)
