"""Text to token ids, with any file of the `tokenizers` library or, without one, the bytes of its UTF-8. Readers of text
call it. It never downloads anything."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from tenure.errors import ConfigError
from tenure.lab.ids import Ints

Tokenize = Callable[[str], Ints]


def load(tokenizer: str | Path | None) -> Tokenize:
    """A function from text to i64 token ids. `tokenizer`: a tokenizer.json, or "bytes" for one token per UTF-8 byte.

    Raises ConfigError when none is given, the file cannot be used, or the library is missing.
    """
    if tokenizer is None:
        raise ConfigError("this trace holds text: name a tokenizer file (--tokenizer tokenizer.json, or bytes)")
    if str(tokenizer) == "bytes":
        return lambda text: np.frombuffer(text.encode("utf-8"), dtype=np.uint8).astype(np.int64)
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise ConfigError("tokenizer files need more: pip install 'tenure[lab]'", extra="lab") from None
    if not Path(tokenizer).is_file():
        raise ConfigError(f"no tokenizer file at {tokenizer}", tokenizer=str(tokenizer))
    try:
        model = Tokenizer.from_file(str(tokenizer))
    except Exception as problem:
        raise ConfigError(f"{tokenizer} is no tokenizer file: {problem}", tokenizer=str(tokenizer)) from None
    return lambda text: np.array(model.encode(text, add_special_tokens=False).ids, dtype=np.int64)
