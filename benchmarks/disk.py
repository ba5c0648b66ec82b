"""Making files in turn, each from nothing until it is on the disk.

A number is the least of its rounds. On a virtual machine, memory and blocks that are handed out for the first time take
several times as long as others, and whom that meets is chance; nothing makes them faster than they are.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from measure import process


class Made(NamedTuple):
    """A file, and the job that makes it."""

    path: Path
    job: Callable[[], object]

    @classmethod
    def by(cls, path: Path, *command: str) -> Made:
        """What a command makes."""
        return cls(path, process(*command))

    @classmethod
    def copy(cls, path: Path, source: Path) -> Made:
        """A copy by ``cp``."""
        return cls.by(path, "cp", str(source), str(path))


def made_in_turn(rounds: int, *files: Made) -> list[float]:
    """The least seconds in which each file was made and on the disk. They are gone afterwards."""
    seconds: list[list[float]] = [[] for _ in files]
    for _ in range(rounds):
        for file, taken in zip(files, seconds, strict=True):
            file.path.unlink(missing_ok=True)
            os.sync()
            start = time.perf_counter()
            file.job()
            _wait_for(file.path)
            taken.append(time.perf_counter() - start)
    for file in files:
        file.path.unlink()
    return list(map(min, seconds))


def _wait_for(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
