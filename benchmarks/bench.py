"""Measures what clearstate promises, in one table: each line a ratio taken in this run, and the limit it is held to.

    python benchmarks/bench.py [--quick] [--dir FOLDER] [--write docs/benchmarks.md]

Takes about five minutes and 7 GB of disk; ``--quick`` takes a minute and 1 GB, and proves less. ``--write`` puts the
table on a page, with the machine and each missed limit in words. Exit code 1 when a limit is missed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import models
import page
from answering import EXAMPLE, answering
from checkpoints import checkpoints
from clearing import clearing
from measure import Row, apart, as_installed, table
from opening import opening
from reading import small_values, whole_files

from live import live
from nn import modules


def rows(folder: Path, quick: bool) -> Iterator[Row]:
    """All measurements, in the order of the table."""
    yield from answering(5 if quick else 15)
    yield from apart(modules, EXAMPLE, folder, 7 if quick else 25)
    yield from apart(live, 7 if quick else 25)
    large, small = folder / "large.t7", folder / "small-tensors.t7"
    models.write_model(large, 200_000_000 if quick else 2_000_000_000)
    models.write_model(small, 20_000_000)
    yield from opening(large, small, 7 if quick else 15)
    yield from clearing(large, 3)
    large.unlink()
    yield from checkpoints(folder, 200_000_000 if quick else 2_000_000_000, 3)
    yield from small_values(folder, 100_000 if quick else 1_000_000, 3)
    yield from whole_files(1 if quick else 5)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="smaller files, fewer rounds")
    parser.add_argument("--dir", type=Path, help="where temporary files go (on the disk to measure)")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="put the table on this page of the documentation")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="clearstate-bench-", dir=options.dir))
    as_installed()
    start = time.monotonic()
    done: list[Row] = []
    try:
        for row in rows(folder, options.quick):
            done.append(row)
            print(f"\r{time.monotonic() - start:4.0f} s  {row.what:70.70}", end="", file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(folder)
        print(f"\r{'':80}\r", end="", file=sys.stderr)
    print(f"{page.machine()}; {'quick' if options.quick else 'full size'}")
    print(table(done))
    print(f"{time.monotonic() - start:.0f} s")
    if options.write is not None:
        page.write(options.write, done, quick=options.quick)
    return any(not row.held for row in done)


if __name__ == "__main__":
    sys.exit(main())
