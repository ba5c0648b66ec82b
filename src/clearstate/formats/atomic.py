"""A file is replaced whole or not at all, whatever happens meanwhile.

The new file has no name until it is complete, on the disk and checked (Linux's ``O_TMPFILE``; elsewhere a hidden
name beside the target), so a crash leaves the old file or the new one. All it can leave besides is a hidden name,
on Linux only between two system calls: a nameless file cannot take another's place without a name of its own.
A writer holds a lock on its file, so the next one in that folder can tell which hidden names are dead, and
removes them.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows, where an open file cannot be removed or renamed at all
    fcntl = None

EVERY = 0.05
"""Seconds between two moments at which the disk is asked to write what there is of a new file."""

_flush = getattr(os, "fdatasync", os.fsync)
_HIDDEN = re.compile(r"\.clearstate-[0-9a-f]{16}")
_FULL = frozenset({errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)})


@contextmanager
def replacing(path: str | os.PathLike[str], check: Callable[[str], None] | None = None) -> Iterator[BinaryIO]:
    """An open file that becomes ``path`` when the block ends well, and nothing when it does not.

    Args:
        path: the file to write or replace. A link is followed. An old file's permissions stay, and its owner and
            group where the system lets us give a file away.
        check: called with a name under which this process can read the finished file, before it replaces
            anything; what it raises keeps the old file.

    Raises:
        OSError: the file cannot be written; an old one is as it was.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "x")
    >>> with replacing(path) as file:
    ...     _ = file.write(b"whole")
    ...     path.exists()
    False
    >>> path.read_bytes()
    b'whole'
    """
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    hidden = os.path.join(folder, f".clearstate-{secrets.token_hex(8)}")
    old = os.stat(target) if os.path.lexists(target) else None
    if old is not None and not stat.S_ISREG(old.st_mode):
        raise OSError(errno.EINVAL, "only a regular file can be replaced", os.fspath(path))
    _sweep(folder)
    try:
        fd, readable = _open(folder, hidden)
    except OSError as error:
        raise OSError(error.errno, error.strerror, os.fspath(path)) from None
    try:
        with os.fdopen(fd, "wb") as handle:
            if old is not None:
                _permit(readable, old)
            with _reaching_the_disk(fd):
                yield handle
                handle.flush()
                if check is not None:
                    check(readable)
            os.fsync(fd)
            if readable != hidden:
                _name(readable, target, hidden)
            else:
                if fcntl is None:
                    handle.close()
                os.replace(hidden, target)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(hidden)
        if isinstance(error, OSError) and error.errno in _FULL and error.filename is None:
            error.filename = os.fspath(path)
        raise
    _sync(folder)


@contextmanager
def _reaching_the_disk(fd: int) -> Iterator[None]:
    """The disk writes what there is of a file while the block makes and checks the rest: neither waits for the other.

    An error of the disk is told to the first who asks, and to nobody else, so it is raised at the block's end.
    """
    done = threading.Event()
    failed: list[OSError] = []

    def keep_on() -> None:
        while not done.wait(EVERY):
            try:
                _flush(fd)
            except OSError as error:
                failed.append(error)
                return

    thread = threading.Thread(target=keep_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    if failed:
        raise failed[0]


def _open(folder: str, hidden: str) -> tuple[int, str]:
    """A new, locked file in ``folder``, and the name to read it by: without one of its own where that can be."""
    nameless = getattr(os, "O_TMPFILE", None)
    if nameless is not None and os.path.isdir("/proc/self/fd"):
        with suppress(OSError):
            fd = os.open(folder, nameless | os.O_RDWR, 0o666)
            _lock(fd)
            return fd, f"/proc/self/fd/{fd}"
    while True:
        fd = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
        _lock(fd)
        if os.path.exists(hidden):
            return fd, hidden
        os.close(fd)  # another writer swept it before we had the lock


def _lock(fd: int) -> None:
    with suppress(OSError):
        if fcntl is not None:
            fcntl.flock(fd, fcntl.LOCK_EX)


def _permit(name: str, old: os.stat_result) -> None:
    """Gives the file ``name`` the group, owner and permissions of an old one."""
    if hasattr(os, "chown"):
        for owner in (-1, old.st_gid), (old.st_uid, -1):
            with suppress(OSError):
                os.chown(name, *owner)
    os.chmod(name, stat.S_IMODE(old.st_mode))


def _name(readable: str, target: str, hidden: str) -> None:
    """Gives a nameless file its name: at once where that is free, else by way of the hidden one."""
    here = os.open(os.path.dirname(target), os.O_RDONLY)  # os.link only follows /proc's link when given a folder
    try:
        with suppress(FileExistsError):
            os.link(readable, target, dst_dir_fd=here, follow_symlinks=True)
            return
        os.link(readable, hidden, dst_dir_fd=here, follow_symlinks=True)
        os.replace(hidden, target)
    finally:
        os.close(here)


def _sweep(folder: str) -> None:
    """Removes what writers that died have left in ``folder``: hidden names that nobody holds a lock on."""
    if fcntl is None:
        return
    with suppress(OSError):
        for name in filter(_HIDDEN.fullmatch, os.listdir(folder)):
            with suppress(OSError):
                dead = os.path.join(folder, name)
                fd = os.open(dead, os.O_RDWR | os.O_NOFOLLOW)
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(dead)
                finally:
                    os.close(fd)


def _sync(folder: str) -> None:
    with suppress(OSError):
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
