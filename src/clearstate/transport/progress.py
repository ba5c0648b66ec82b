"""How far writing has come: told before each large piece."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import BinaryIO, cast


class Watch:
    """Gives, for each file that is written, one that tells how far all have come: before each large piece."""

    def __init__(self, progress: Callable[[int, int], None] | None, total: int) -> None:
        self.progress = progress
        self.total = total
        self.before = 0
        self.last: _Watched | None = None

    def __call__(self, handle: BinaryIO) -> BinaryIO:
        if self.progress is None:
            return handle
        if self.last is not None:
            self.before += self.last.reached
        self.last = _Watched(handle, self)
        return cast(BinaryIO, self.last)


class _Watched:
    """A file being written that tells its `Watch` how far it has come whenever it is flushed."""

    def __init__(self, handle: BinaryIO, watch: Watch) -> None:
        self.write = handle.write
        self.fileno = handle.fileno
        self.reached = 0
        self._handle = handle
        self._watch = watch

    def flush(self) -> None:
        self._handle.flush()
        self.reached = os.lseek(self.fileno(), 0, os.SEEK_CUR)
        watch = self._watch
        assert watch.progress is not None
        watch.progress(min(watch.before + self.reached, max(watch.total - 1, 0)), watch.total)
