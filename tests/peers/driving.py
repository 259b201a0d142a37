"""Where the peers live, and how to run one of their drivers over many workloads in one process."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent


def run_driver(peer: str, workloads: list[dict[str, Any]]) -> list[dict[str, Any]]:
    folder = os.environ.get("TENURE_PEERS")
    python = Path(folder or "") / peer / "bin" / "python"
    if not folder or not python.exists():
        pytest.skip(f"{peer} is not installed: make test-peers installs it (tools/peers.sh), and TENURE_PEERS names the folder")
    done = subprocess.run(
        [str(python), str(HERE / f"{peer}_driver.py")], input=json.dumps(workloads), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    return found if isinstance(found, list) else [found]
