"""How numbers are taken here: two things done in turn, several times, and the medians compared."""

from __future__ import annotations

import compileall
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import clearstate

PYTHON = sys.executable
CLEARSTATE = str(Path(PYTHON).with_name("clearstate"))


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. ``value`` is held against ``limit``: at most that, or at least where ``more`` is better.

    ``None`` as a limit is a number for information.
    """

    what: str
    ours: str
    other: str
    value: float
    unit: str
    limit: float | None
    more: bool = False

    @property
    def held(self) -> bool:
        return self.limit is None or (self.value >= self.limit if self.more else self.value <= self.limit)

    @property
    def measured(self) -> str:
        return f"{f'{self.value:.2f}' if self.unit.startswith('x ') else f'{self.value:.3g}'} {self.unit}"


Rows = Iterator[Row]


def as_installed() -> None:
    """Leaves the package's bytecode beside it, as pip does: a checkout may have none, and its peers have theirs."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    compileall.compile_dir(Path(clearstate.__file__).parent, quiet=2)


def apart(measurement: Callable[..., Rows], *arguments: object) -> Rows:
    """The rows of a measurement that a process of its own takes: what others left in memory would slow it down."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        yield from pool.submit(_all_of, measurement, *arguments).result()


def _all_of(measurement: Callable[..., Rows], *arguments: object) -> list[Row]:
    return list(measurement(*arguments))


def in_turn(rounds: int, *jobs: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> list[float]:
    """Median seconds of each job. All are done once, then once more, ...: what slows the machine slows all of them."""
    seconds: list[list[float]] = [[] for _ in jobs]
    for _ in range(rounds):
        for job, taken in zip(jobs, seconds, strict=True):
            start = clock()
            job()
            taken.append(clock() - start)
    return [statistics.median(taken) for taken in seconds]


def process(*command: str) -> Callable[[], object]:
    """A job that runs a command to its end and throws its output away."""
    return lambda: subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def printed(code: str, *arguments: str) -> list[float]:
    """The numbers that a Python process prints as its last line."""
    done = subprocess.run([PYTHON, "-c", code, *arguments], check=True, capture_output=True, text=True)
    return [float(word) for word in done.stdout.splitlines()[-1].split()]


def ratio(what: str, ours: float, other: float, name: str, limit: float | None) -> Row:
    """Our time over another's, at most ``limit``."""
    return Row(what, time_text(ours), f"{time_text(other)} {name}", ours / other, "x the time", limit)


def speedup(what: str, ours: float, other: float, name: str, limit: float | None) -> Row:
    """How many times as fast we are, at least ``limit``."""
    return Row(what, time_text(ours), f"{time_text(other)} {name}", other / ours, "x as fast", limit, more=True)


def time_text(seconds: float) -> str:
    """
    >>> time_text(0.00123), time_text(0.5), time_text(12.34)
    ('1.2 ms', '500 ms', '12.3 s')
    """
    if seconds < 0.1:
        return f"{seconds * 1e3:.1f} ms"
    return f"{seconds * 1e3:.0f} ms" if seconds < 2 else f"{seconds:.1f} s"


def table(rows: Sequence[Row]) -> str:
    """The rows as text, one line each under a head."""
    lines = [("", "clearstate", "compared with", "measured", "limit", "")]
    for row in rows:
        limit = "" if row.limit is None else f"{'>=' if row.more else '<='} {row.limit:g}"
        verdict = "" if row.limit is None else "held" if row.held else "MISSED"
        lines.append((row.what, row.ours, row.other, row.measured, limit, verdict))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines)
