"""Files as a store needs them: whole reads and writes at an offset, reserved space, atomic replacement, direct I/O, one owner.
Called by the disk tier; it knows nothing of blocks, and raises OSError for the caller to judge."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tenure.errors import StoreError

__all__ = [
    "NO_SPACE",
    "PAGE",
    "Lock",
    "aligned",
    "direct_flag",
    "empty_buffer",
    "read_at",
    "replace_file",
    "reserve",
    "size_of",
    "space_taken",
    "write_at",
]

PAGE = 4096
"""What direct I/O is aligned to: offset, length and memory."""
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

_held: set[tuple[int, int]] = set()  # (device, inode) of the lock files this process holds: the system does not tell it apart
_held_lock = threading.Lock()


def write_at(fd: int, buffers: Sequence[memoryview], offset: int) -> None:
    """Writes all of the buffers, one behind the other. Raises OSError; a part may then have been written."""
    left = list(buffers)
    missing = sum(map(len, left))
    while missing:
        done = os.pwritev(fd, left, offset)
        if done <= 0:
            raise OSError(errno.EIO, "nothing was written")
        offset += done
        missing -= done
        if missing:
            left = _after(left, done)


def read_at(fd: int, buffers: Sequence[memoryview], offset: int) -> int:
    """Fills the buffers one behind the other; returns the bytes read, fewer only at the file's end. Raises OSError."""
    left = list(buffers)
    total = 0
    missing = sum(map(len, left))
    while missing:
        done = os.preadv(fd, left, offset + total)
        total += done
        missing -= done
        if done == 0 or (missing and done % PAGE):  # the file's end: direct I/O cannot go on from within a page
            break
        if missing:
            left = _after(left, done)
    return total


def _after(buffers: list[memoryview], done: int) -> list[memoryview]:
    for index, buffer in enumerate(buffers):
        if done < len(buffer):
            return [buffer[done:], *buffers[index + 1 :]]
        done -= len(buffer)
    return []


def empty_buffer(nbytes: int) -> memoryview:
    """Zeroed memory that direct I/O takes as it is."""
    return memoryview(mmap.mmap(-1, nbytes))


def aligned(buffer: memoryview) -> bool:
    """Whether direct I/O takes this memory as it is."""
    address: int = np.frombuffer(buffer, np.uint8).__array_interface__["data"][0]
    return address % PAGE == 0 and len(buffer) % PAGE == 0


def direct_flag(path: Path) -> int:
    """O_DIRECT where the file system takes it for a file of at least a page, else 0."""
    flag: int = getattr(os, "O_DIRECT", 0)
    if not flag:
        return 0
    try:
        fd = os.open(path, os.O_RDONLY | flag)
    except OSError:
        return 0
    try:
        os.preadv(fd, [empty_buffer(PAGE)], 0)
    except OSError:
        return 0
    finally:
        os.close(fd)
    return flag


def size_of(path: Path) -> int:
    """Bytes in a file; 0 when it does not exist."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def space_taken(path: Path) -> int:
    """Bytes of the disk that a file or a whole directory takes, reserved space and the directory itself included."""
    try:
        status = path.lstat()
    except FileNotFoundError:
        return 0
    own = max(status.st_blocks * 512, -(-status.st_size // PAGE) * PAGE)
    if not path.is_dir() or path.is_symlink():
        return own
    return own + sum(space_taken(inner) for inner in path.iterdir())


def reserve(path: Path, nbytes: int) -> None:
    """Makes a file exactly `nbytes` long with all of its space reserved; what is new reads as zeros. Raises OSError and has then
    left the file as it was."""
    before = path.stat().st_size if path.exists() else None
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if before is not None and before > nbytes:
            os.ftruncate(fd, nbytes)
        elif hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, 0, nbytes)
        else:
            for start in range(before or 0, nbytes, 1 << 20):
                write_at(fd, [memoryview(bytes(min(1 << 20, nbytes - start)))], start)
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(fd, before or 0)
            if before is None:
                path.unlink()
        raise
    finally:
        os.close(fd)


def replace_file(path: Path, content: bytes) -> None:
    """Puts new content in a file's place: all of it or none, durable when this returns. Raises OSError."""
    temporary = path.with_name(path.name + ".tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        write_at(fd, [memoryview(content)], 0)
        os.fsync(fd)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    finally:
        os.close(fd)
    os.replace(temporary, path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class Lock:
    """One owner for a store: a lock that the system takes back the moment its owner dies, and that names the owner."""

    def __init__(self, path: Path) -> None:
        """Raises StoreError when another process, or this one, has the store open; OSError when the file cannot be made."""
        with _held_lock:
            with contextlib.suppress(FileNotFoundError):
                status = path.stat()
                if (status.st_dev, status.st_ino) in _held:  # opening and closing the file here would give the lock back
                    raise StoreError(f"the store {path.parent} is open in this process already", owner=os.getpid())
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.ftruncate(self._fd, 0)
                os.pwrite(self._fd, b"%d\n" % os.getpid(), 0)
            except OSError as error:
                owner = os.pread(self._fd, 32, 0).strip()
                os.close(self._fd)
                if error.errno not in (errno.EACCES, errno.EAGAIN):
                    raise
                shown = int(owner) if owner.isdigit() else None
                raise StoreError(
                    f"the store {path.parent} is in use by process {shown or 'unknown'}: each process needs a store of its own",
                    owner=shown,
                ) from None
            status = os.fstat(self._fd)
            self._path = path
            self._key = (status.st_dev, status.st_ino)
            _held.add(self._key)

    def still_ours(self) -> bool:
        """Whether the file that is locked is the one that the path names."""
        try:
            status = self._path.stat()
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._key

    def release(self) -> None:
        """Gives the store up."""
        with _held_lock:
            _held.discard(self._key)
            os.close(self._fd)
