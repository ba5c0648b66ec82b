"""Looking into a large file elsewhere fetches what says how it is built, and not its numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch
from fsspec.implementations.memory import MemoryFileSystem
from safetensors.torch import save_file

import clearstate as cs

SIZE = 3_000_000


class Elsewhere:
    """fsspec's file system in memory, ``memory://``, with a count of the bytes that are fetched from it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fetched = 0
        self.system = fsspec.filesystem("memory")
        part, whole = MemoryFileSystem.cat_file, MemoryFileSystem.get_file

        def cat_file(system: Any, path: str, *how: Any, **more: Any) -> bytes:
            data: bytes = part(system, path, *how, **more)
            self.fetched += len(data)
            return data

        def get_file(system: Any, path: str, local: str, **how: Any) -> None:
            self.fetched += system.size(path)
            whole(system, path, local, **how)

        monkeypatch.setattr(MemoryFileSystem, "cat_file", cat_file)
        monkeypatch.setattr(MemoryFileSystem, "get_file", get_file)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[Elsewhere]:
    place = Elsewhere(monkeypatch)
    yield place
    place.system.store.clear()


def tensors() -> dict[str, torch.Tensor]:
    return {f"layers.{i}.weight": torch.full((SIZE,), float(i)) for i in range(3)}


def saved(kind: str, path: Path) -> Path:
    if kind == "safetensors":
        save_file(tensors(), path)
    else:
        optimizer = {"state": {0: {"exp_avg": torch.zeros(SIZE)}}, "param_groups": []}
        zipped = kind == "zip"
        torch.save({"model": tensors(), "optimizer": optimizer}, path, _use_new_zipfile_serialization=zipped)
    return path


@pytest.mark.parametrize("kind, most", [("safetensors", 1 << 17), ("zip", 3 << 20)])
def test_inspecting_fetches_structure_only(kind: str, most: int, elsewhere: Elsewhere, tmp_path: Path) -> None:
    path = saved(kind, tmp_path / f"net.{kind}")
    elsewhere.system.pipe("/models/net.pt", path.read_bytes())
    found, here = cs.inspect("memory://models/net.pt"), cs.inspect(path)
    assert found.source == "memory://models/net.pt"
    assert (found.size, found.entries, found.notes) == (here.size, here.entries, here.notes)
    assert 0 < elsewhere.fetched < most < path.stat().st_size


def test_a_file_whose_structure_lies_between_its_numbers_is_fetched_whole(elsewhere: Elsewhere, tmp_path: Path) -> None:
    path = saved("legacy", tmp_path / "net.pt")
    elsewhere.system.pipe("/models/net.pt", path.read_bytes())
    assert cs.inspect("memory://models/net.pt").entries == cs.inspect(path).entries


def test_what_is_cleared_is_fetched_whole_and_its_numbers_are_right(elsewhere: Elsewhere, tmp_path: Path) -> None:
    path = saved("zip", tmp_path / "net.pt")
    elsewhere.system.pipe("/models/net.pt", path.read_bytes())
    cs.clear_file("memory://models/net.pt", "memory://models/small.pt")
    assert cs.verify(path, "memory://models/small.pt")


def test_an_archive_without_its_end_is_refused_by_its_address(elsewhere: Elsewhere, tmp_path: Path) -> None:
    data = saved("zip", tmp_path / "net.pt").read_bytes()
    elsewhere.system.pipe("/models/net.pt", data[: len(data) // 2])
    with pytest.raises(cs.FormatError, match=r"memory://models/net\.pt"):
        cs.inspect("memory://models/net.pt")
