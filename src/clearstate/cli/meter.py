"""A progress bar on stderr, where that is a terminal and the work takes longer than a second."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING

from .drawing import clean, writable
from .files import bytes_of

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

PATIENCE = 1.0
"""Seconds without a bar."""


class Meter:
    """Counts bytes of the input files as they are done."""

    def __init__(self, paths: Sequence[str]) -> None:
        self._sizes = {path: bytes_of(path) for path in paths}
        self._done = 0
        self._current = 0
        self._name = ""
        self._seen = sys.stderr is not None and sys.stderr.isatty()
        self._over = False
        self._lock = threading.RLock()
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._timer = threading.Timer(PATIENCE, self._show)
        self._timer.daemon = True

    def __enter__(self) -> Meter:
        if self._seen:
            self._timer.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._timer.cancel()
        with self._lock:
            if self._bar is not None:
                self._bar.stop()
                self._bar = None
            self._over = True

    def begin(self, path: str) -> None:
        """The file whose turn it is; the one before is done."""
        self._done += self._current
        self._current = self._sizes.get(path, 0)
        self._name = writable(clean(os.path.basename(path)), sys.stderr) if self._seen else ""
        self._draw(0.0, self._name)

    def done(self, path: str) -> None:
        """A file that was worked on elsewhere is done."""
        self._current = 0
        self._done += self._sizes.get(path, 0)
        self._name = writable(clean(os.path.basename(path)), sys.stderr) if self._seen else ""
        self._draw(0.0, self._name)

    def at(self, done: int, total: int) -> None:
        """How many bytes of the current file's are written."""
        share = done / total if total else 1.0
        self._draw(share, self._name if done < total else f"{self._name} (reading back)")

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Takes the bar away while something is printed."""
        with self._lock:
            if self._bar is not None:
                self._bar.stop()
            try:
                yield
            finally:
                if self._bar is not None:
                    self._bar.start()

    def _draw(self, share: float, name: str) -> None:
        with self._lock:
            if self._bar is not None and self._task is not None:
                self._bar.update(self._task, completed=self._done + share * self._current, description=name)

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

        name = TextColumn("{task.description}", markup=False)
        columns = name, BarColumn(), TaskProgressColumn(), TimeElapsedColumn()
        with self._lock:
            if self._over:
                return
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False)
            self._task = self._bar.add_task(self._name, total=max(sum(self._sizes.values()), 1), completed=self._done)
            self._bar.start()
