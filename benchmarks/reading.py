"""Reading against torchfile 0.1.0: files of many small values, whole files that Torch7 wrote, and how many can be read.

Each reader gets the file's path and gives back its graph. torchfile reads every number into memory; we leave them
mapped, and read them too where it says so.
"""

from __future__ import annotations

import gc
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

import models
from measure import Row, Rows, in_turn, speedup

from clearstate.formats import t7

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO))


def _theirs(path: Path) -> object:
    import torchfile  # type: ignore[import-untyped]

    return torchfile.load(str(path))


def _ours(path: Path) -> object:
    return t7.load(path)


def in_memory(path: Path) -> object:
    """All numbers copied out of the file, as torchfile does."""
    file = t7.open_file(path)
    seen: set[int] = set()
    todo, copies = [file.root], []
    while todo:
        value = todo.pop()
        if isinstance(value, t7.Storage):
            if id(value) not in seen:
                seen.add(id(value))
                copies.append(value.numpy().copy())
        elif isinstance(value, t7.Table | t7.Object | t7.Tensor | t7.Function) and id(value) not in seen:
            seen.add(id(value))
            todo.extend(t7.references(value))
    return file, copies


def _reads(read: Callable[[Path], object], path: Path) -> bool:
    try:
        read(path)
    except Exception:
        return False
    return True


def _job(read: Callable[[Path], object], path: Path) -> Callable[[], object]:
    return lambda: read(path)


def small_values(folder: Path, count: int, rounds: int) -> Rows:
    """Files of ``count`` small values."""
    for name, make in models.SMALL_VALUES.items():
        path = folder / "small.t7"
        t7.save(make(count), path)
        gc.collect()
        ours, theirs = in_turn(rounds, _job(_ours, path), _job(_theirs, path))
        yield speedup(f"{count:,} values: {name}", ours, theirs, "torchfile", 2)
        path.unlink()


def whole_files(rounds: int) -> Rows:
    """Every file that Torch7 wrote, those that both read in turn; then how many each can read."""
    from tests import recordings

    recorded = {recordings.short(path): path for path in recordings.RECORDED}
    recorded |= {recordings.short(path): path for path in sorted(recordings.MORE.glob("packs/**/*.t7"))}
    paths = list(recorded.values())
    readable = [path for path in paths if _reads(_theirs, path)]
    yield from _compared(f"{len(readable)} recorded files", readable, rounds)
    yield _counted("recorded files", paths, len(paths) - len(readable))
    wild = [path for path in recordings.PUBLIC if path.suffix not in (".md", ".lua", ".json")]
    if wild:
        readable = [path for path in wild if _reads(_theirs, path)]
        yield from _compared(f"{len(readable)} files from the wild", readable, rounds)
        yield _counted("files from the wild", wild, len(wild) - len(readable))


def _compared(what: str, paths: list[Path], rounds: int) -> Rows:
    pairs: list[tuple[float, float, float]] = []
    for path in paths:
        jobs = [_job(read, path) for read in (_ours, in_memory, _theirs)]
        taken = in_turn(rounds, *jobs)
        pairs.append((taken[0], taken[1], taken[2]))
    ours, copied, theirs = (sum(column) for column in zip(*pairs, strict=True))
    yield speedup(what, ours, theirs, "torchfile", 1)
    yield speedup("  with all numbers read into memory", copied, theirs, "torchfile", 1)
    gains = sorted(theirs / ours for ours, _, theirs in pairs)
    yield Row("  the median file", "", "torchfile", statistics.median(gains), "x as fast", 1, more=True)
    slower = [gain for gain in gains if gain < 1]
    yield Row(f"  files slower, the worst {gains[0]:.2f} x", str(len(slower)), "", len(slower), "files", None)


def _counted(what: str, paths: list[Path], theirs: int) -> Row:
    broken = [path for path in paths if not _reads(_ours, path)]
    return Row(f"not read, of {len(paths)} {what}", str(len(broken)), f"{theirs} torchfile", len(broken), "files", None)
