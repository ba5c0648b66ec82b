"""What the documents' examples work on and in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import clearstate.export
import clearstate.nn.packs  # noqa: F401 - registers its classes
from clearstate import backends, catalog
from clearstate.export.rules.table import RULES
from clearstate.formats.t7.backends import pairs as pairs
from clearstate.formats.t7.meaning import classes
from clearstate.live.bytecode import classes as facts
from clearstate.live.evidence import declared
from clearstate.nn.protocol.stateful import CLASSES
from tests.docs import samples


@pytest.fixture
def sampled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An own folder with the named files in it, and with three that are none of a model."""
    samples.write(tmp_path)
    for name in "model.t7", "last.ckpt":
        whole = (tmp_path / name).read_bytes()
        (tmp_path / {"model.t7": "cut.t7"}.get(name, "cut.pt")).write_bytes(whole[: len(whole) // 2])
    (tmp_path / "page.t7").write_text("<!doctype html><title>Sign in</title>")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def declarations() -> Iterator[None]:
    """What an example declares of classes is forgotten after it."""
    assert catalog.names()
    assert backends.backends()
    tables: list[dict[Any, Any]] = [classes._own, classes._added, classes._resolved, declared._declared, RULES, CLASSES]
    tables += [pairs._ways, pairs._none, pairs._readers]
    before = [dict(table) for table in tables]
    yield
    for table, entries in zip(tables, before, strict=True):
        table.clear()
        table.update(entries)
    facts.forget()
