"""What it takes to open a large file: memory and time, which must not depend on how large its tensors are.

Memory is the peak of everything the process has in memory (``VmHWM``), less that of a process that only imports NumPy.
The peak counts the pages of the mapped file that were touched, though these are the system's to take back at
any time; how much they are is said beside it.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from measure import Row, Rows, in_turn, printed, ratio

from clearstate.formats import t7

_MEMORY = """
import sys, numpy
{work}
status = dict(line.split(":") for line in open("/proc/self/status"))
print(*(int(status[name].split()[0]) * 1024 for name in ("VmHWM", "RssFile")))
"""
_OPEN = "from clearstate.formats import t7; file = t7.open_file(sys.argv[1])"


def _memory(work: str, path: Path) -> list[float]:
    """Bytes: the peak, and pages of files."""
    taken = [printed(_MEMORY.format(work=work), str(path)) for _ in range(3)]
    return [statistics.median(column) for column in zip(*taken, strict=True)]


def opening(large: Path, small: Path, rounds: int) -> Rows:
    sizes = [f"{path.stat().st_size / 1e6:.0f} MB" for path in (large, small)]
    if Path("/proc/self/status").exists():
        (bare, _), (peak, pages), (less, few) = _memory("", large), _memory(_OPEN, large), _memory(_OPEN, small)
        for size, most in zip(sizes, (peak, less), strict=True):
            ours = f"{most / 1e6:.0f} MB"
            other = f"{bare / 1e6:.0f} MB import numpy"
            yield Row(f"peak memory, {size} opened", ours, other, (most - bare) / 1e6, "MB above", 80)
        yield Row("  of it pages of the file", "", f"{sizes[1]} opened", (pages - few) / 1e6, "MB more", None)
    in_turn(1, lambda: t7.open_file(large), lambda: t7.open_file(small))
    slow, quick = in_turn(rounds, lambda: t7.open_file(large), lambda: t7.open_file(small))
    yield ratio(f"opening {sizes[0]}", slow, quick, f"opening {sizes[1]}", 2)
