"""What Torch7 itself wrote: the recordings in ``recordings.tar.xz``, unpacked once, and more where there are more.

``cases/CLASS-N/{before,after,fresh,io}.t7`` (one configuration of one class of nn), ``formats/`` (one object in
every variant of the format) and ``digits/`` (a trained net) come with the tests. ``packs/`` (the same as cases,
from dpnn and rnn) and ``public/`` (files found in the wild) do not: they are looked for in ``../shared/torch7``,
or where the environment variable CLEARSTATE_RECORDINGS says.

    @pytest.mark.parametrize("name", CASES)
    def test_x(name):
        before = t7.load(case(name) / "before.t7")

    @pytest.mark.parametrize("path", paths(PUBLIC))      # one skipped test where there are none
    def test_y(path): ...
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

REPO = Path(__file__).resolve().parent.parent
EXAMPLES = REPO / "examples"
_ARCHIVE = Path(__file__).with_name("recordings.tar.xz")


def _unpacked() -> Path:
    """The folder of unpacked recordings, made whole under another name first: test runs may overlap."""
    digest = hashlib.sha256(_ARCHIVE.read_bytes()).hexdigest()[:16]
    folder = REPO / ".cache" / f"recordings-{digest}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(exist_ok=True)
    new = Path(tempfile.mkdtemp(dir=folder.parent))
    with tarfile.open(_ARCHIVE) as archive:
        for member in archive:
            data = archive.extractfile(member)
            assert data is not None
            path = new / member.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data.read())
    for name in ("digits.t7", "digits-test.t7"):
        shutil.copyfile(EXAMPLES / name, new / "digits" / name)
    try:
        new.rename(folder)
    except OSError:  # another run was first
        shutil.rmtree(new)
    return folder


ROOT = _unpacked()
MORE = Path(os.environ.get("CLEARSTATE_RECORDINGS", REPO.parent / "shared" / "torch7"))

CASES: list[str] = sorted(path.name for path in (ROOT / "cases").iterdir())
"""Names of the cases: ``Abs-1``, ``AbsCriterion-1``, ..."""
PACKS: list[str] = sorted(f"packs/{path.name}" for path in (MORE / "packs").glob("*-*"))
"""Names of the cases from dpnn and rnn, ``packs/LSTM-1``, ...; empty where there are none."""
FORMATS: list[Path] = sorted((ROOT / "formats").iterdir())
"""One object in every variant, and ``everything.t7``, ``everything.ascii.t7``."""
DIGITS: Path = ROOT / "digits"
"""The folder of ``digits.t7``, ``digits-torch7-clearState.t7`` and ``digits-test.t7``."""
PUBLIC: list[Path] = sorted(path for path in (MORE / "public").rglob("*") if path.is_file())
"""Files found in the wild; empty where there are none."""
RECORDED: list[Path] = sorted(ROOT.rglob("*.t7"))
"""All files that come with the tests."""


def case(name: str) -> Path:
    """The folder of one case, from ``CASES`` or ``PACKS``."""
    return MORE / name if name.startswith("packs/") else ROOT / "cases" / name


def short(path: Path) -> str:
    """A recording's name in a test's name: the path below the recordings."""
    for root in (ROOT, MORE):
        if path.is_relative_to(root):
            return path.relative_to(root).as_posix()
    return path.name


def paths(files: Iterable[Path]) -> Sequence[Any]:
    """Parameters for these files with readable names, or one that skips and says what is missing."""
    return [pytest.param(path, id=short(path)) for path in files] or [_nothing()]


def names(cases: Iterable[str]) -> Sequence[Any]:
    """Like `paths`, for names of cases."""
    return [pytest.param(name, id=name) for name in cases] or [_nothing()]


def _nothing() -> Any:
    reason = f"no recordings in {os.path.relpath(MORE, REPO)} (CLEARSTATE_RECORDINGS names another folder)"
    return pytest.param(None, id="none", marks=pytest.mark.skip(reason=reason))
