"""The command as a person runs it, in this process: what it prints and how it ends."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from clearstate.cli import run
from tests.recordings import EXAMPLES


class Done(NamedTuple):
    """What a command left: its exit code, and what it printed to stdout and to stderr."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    def refused(self) -> str:
        """The one sentence that says why it did nothing; fails where it is anything else."""
        assert self.code == 2, self
        assert self.err.startswith("clearstate: "), self.err
        assert self.err.count("\n") == 1, self.err
        assert "mistake in clearstate" not in self.err
        return self.err.removeprefix("clearstate: ").rstrip("\n")


Command = Callable[..., Done]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    return tmp_path


@pytest.fixture
def command(here: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs ``clearstate`` with these words in the empty folder."""

    def clearstate(*words: str | Path) -> Done:
        capsys.readouterr()
        code = run([os.fspath(word) for word in words])
        return Done(int(code), *capsys.readouterr())

    return clearstate


@pytest.fixture
def net(here: Path) -> str:
    """The example net, as ``net.t7`` in the folder."""
    shutil.copyfile(EXAMPLES / "digits.t7", here / "net.t7")
    return "net.t7"
