"""A folder of things that are dear to make: each is made once, by one process, and is there whole or not at all.
Called by the model loaders; it never deletes what is whole."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from tenure.errors import ConfigError

__all__ = ["cache_folder", "made_once"]

_UNFINISHED = ".unfinished"


def cache_folder() -> Path:
    """Where Tenure keeps what it converted: `TENURE_CACHE`, or the platform's folder for caches."""
    if chosen := os.environ.get("TENURE_CACHE"):
        return Path(chosen)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "tenure"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tenure"


def made_once(name: str, make: Callable[[Path], None], usable: Callable[[Path], bool]) -> Path:
    """The folder `name` of the cache. Where there is none that is `usable`, `make` fills an empty one, which then takes its
    place in one step: a process that dies in between leaves nothing that would be taken for whole. Others wait meanwhile. Raises
    ConfigError where the cache cannot be written."""
    root = cache_folder()
    try:
        return _made_once(root, name, make, usable)
    except OSError as problem:
        told = problem.strerror or problem
        raise ConfigError(f"{root} cannot keep {name}: {told}; let TENURE_CACHE name a folder with room") from problem


def _made_once(root: Path, name: str, make: Callable[[Path], None], usable: Callable[[Path], bool]) -> Path:
    target = root / name
    root.mkdir(parents=True, exist_ok=True)
    if usable(target):
        return target
    with open(root / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # goes with the process
        if usable(target):
            return target
        unfinished = root / f"{name}{_UNFINISHED}"
        shutil.rmtree(unfinished, ignore_errors=True)  # of a process that died
        unfinished.mkdir()
        try:
            make(unfinished)
            for file in unfinished.rglob("*"):
                _to_disk(file)
            if target.exists():  # not usable: damaged, or of another format
                shutil.rmtree(target)
            unfinished.rename(target)
            _to_disk(root)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
    return target


def _to_disk(path: Path) -> None:
    with contextlib.suppress(OSError):  # some file systems refuse it for folders
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
