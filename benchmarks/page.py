"""The benchmark page of the documentation: the table of a run, the machine, and each missed limit in plain words."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path

from measure import Row

START, END = "<!-- table -->\n", "<!-- end -->"
PEERS = ("numpy", "torch", "safetensors", "torchfile")


def write(path: Path, rows: Sequence[Row], *, quick: bool) -> None:
    """Puts a run's table in place of the one on a page, between its marks; all else on the page stays.

    Raises:
        ValueError: the page has no marks.
    """
    text = path.read_text(encoding="utf-8")
    before, start, rest = text.partition(START)
    _, end, after = rest.partition(END)
    if not start or not end:
        raise ValueError(f"{path} has no place for a table, between {START.strip()} and {END}")
    path.write_text("".join([before, START, "\n", *_page(rows, quick), "\n", END, after]), encoding="utf-8")


def _page(rows: Sequence[Row], quick: bool) -> Iterable[str]:
    yield f"{machine()}; {'`--quick`: smaller files, fewer rounds' if quick else 'full size'}.\n\n"
    yield "| | clearstate | compared with | measured | limit | |\n| --- | --- | --- | --- | --- | --- |\n"
    for row in rows:
        limit = "" if row.limit is None else f"{'≥' if row.more else '≤'} {row.limit:g}"
        verdict = "" if row.limit is None else "held" if row.held else "**missed**"
        cells = (_indented(row.what), row.ours, row.other, row.measured, limit, verdict)
        yield f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |\n"
    missed = [row for row in rows if not row.held]
    if not missed:
        yield "\nNo limit was missed.\n"
        return
    yield "\nMissed:\n\n"
    for row, whole in zip(rows, _named(rows), strict=True):
        if not row.held:
            most = "at least" if row.more else "at most"
            yield f"* {whole}: {row.measured}, where the limit is {most} {row.limit:g}.\n"


def _indented(what: str) -> str:
    return re.sub(r"^ +", "… ", what)


def _named(rows: Iterable[Row]) -> Iterable[str]:
    """What each row is about; of one that goes on from the row above, with that."""
    above = ""
    for row in rows:
        if not row.what.startswith(" "):
            above = row.what
        yield row.what if row.what == above else f"{above}; {row.what.strip()}"


def machine() -> str:
    """The processor, how many of its cores there are, and what runs; no names of people, hosts or folders."""
    name = platform.processor() or platform.machine()
    cpus = Path("/proc/cpuinfo")
    if cpus.exists():
        found = re.search(r"^(?:model name|Hardware)\s*:\s*(.+)$", cpus.read_text(encoding="utf-8"), re.MULTILINE)
        name = found[1].strip() if found else name
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    versions = ", ".join(f"{peer} {version(peer)}" for peer in PEERS)
    return f"{name}, {cores} cores; {platform.system()}, Python {platform.python_version()}, {versions}"
