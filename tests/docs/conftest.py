"""A folder with the files that the documents' examples have."""

from __future__ import annotations

from pathlib import Path

import pytest

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
