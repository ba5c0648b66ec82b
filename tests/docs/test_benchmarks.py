"""The benchmark page shows the last table, says in words what was missed, and names no host, user or folder."""

from __future__ import annotations

import getpass
import importlib
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.pages import DOCS
from tests.recordings import REPO


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module that writes the page, as ``benchmarks/bench.py`` imports it."""
    monkeypatch.syspath_prepend(str(REPO / "benchmarks"))
    yield importlib.import_module("page")
    for name in "page", "measure":
        del sys.modules[name]


def test_a_run_takes_the_place_of_the_last_and_what_was_missed_is_said(page: ModuleType, tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text("# Benchmarks\n\nWords.\n\n<!-- table -->\nold\n<!-- end -->\n\nMore.\n")
    row = page.Row
    rows = [
        row("clearing 2 GB", "2.0 s", "1.0 s cp", 2.004, "x the time", 2),
        row("  the same", "2.0 s", "3.0 s torch", 0.667, "x the time", None),
        row("reading", "1 ms", "4 ms torchfile", 4.0, "x as fast", 2, more=True),
    ]
    page.write(path, rows, quick=False)
    text = path.read_text()
    assert text.startswith("# Benchmarks\n\nWords.\n")
    assert text.endswith("<!-- end -->\n\nMore.\n")
    assert "old" not in text
    assert "| clearing 2 GB | 2.0 s | 1.0 s cp | 2.00 x the time | ≤ 2 | **missed** |" in text
    assert "| … the same | 2.0 s | 3.0 s torch | 0.67 x the time |  |  |" in text
    assert "| reading | 1 ms | 4 ms torchfile | 4.00 x as fast | ≥ 2 | held |" in text
    assert "* clearing 2 GB: 2.00 x the time, where the limit is at most 2.\n" in text
    page.write(path, rows[1:], quick=True)
    assert "No limit was missed." in path.read_text()
    path.write_text("# Benchmarks\n")
    with pytest.raises(ValueError, match="no place for a table"):
        page.write(path, rows, quick=True)


def test_the_machine_is_told_by_its_kind_alone(page: ModuleType) -> None:
    told = page.machine()
    assert f"Python {platform.python_version()}" in told
    assert "cores" in told
    assert platform.node() not in told
    assert getpass.getuser() not in told.split()
    assert "/" not in told.replace("@", "")


def test_the_page_of_the_documentation_shows_a_whole_table() -> None:
    text = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    table = text.partition("<!-- table -->")[2].partition("<!-- end -->")[0]
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    told = " ".join(lines)
    peers = ("torchfile", "torch.nn", "torch.load and save_file", "Ultralytics", "cp and sync")
    assert all(peer in told for peer in peers)
    missed = [line for line in lines if "**missed**" in line]
    assert table.count("\n* ") == len(missed)
    assert bool(missed) is ("Missed:" in table)
