"""Every file that clearstate reads goes to its reader, by its bytes and whatever its name."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch

from clearstate.formats.readers import kind_of
from clearstate.formats.sniff import sniff
from tests.pt.samples import Net
from tests.recordings import REPO


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "some.file"


@pytest.mark.parametrize(
    "value", [{}, {"w": torch.ones(3)}, torch.ones(100_000), Net()], ids=lambda v: type(v).__name__
)
def test_what_pytorch_writes_is_a_zip(path: Path, value: Any) -> None:
    torch.save(value, path)
    assert kind_of(path) == "zip"


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("value", [{}, {"w": torch.arange(3000.0)}], ids=["empty", "tensor"])
def test_the_stream_format_is_known_in_a_pickle_of_every_protocol(path: Path, value: Any, protocol: int) -> None:
    torch.save(value, path, _use_new_zipfile_serialization=False, pickle_protocol=protocol)
    assert kind_of(path) == "legacy"


@pytest.mark.parametrize("protocol", range(6))
def test_a_plain_pickle_is_one(path: Path, protocol: int) -> None:
    path.write_bytes(pickle.dumps({"epoch": 3, "w": [1.5, None]}, protocol=protocol))
    assert kind_of(path) == "pickle"


def test_a_safetensors_file_is_one_even_if_cut_off(path: Path) -> None:
    data = safetensors.torch.save({"w": torch.ones(5)})
    path.write_bytes(data)
    assert kind_of(path) == "safetensors"
    path.write_bytes(data[:-3])
    assert kind_of(path) == "safetensors"
    path.write_bytes(data[:40])
    assert kind_of(path) == "safetensors"


def test_torch7_files_stay_torch7_files() -> None:
    assert kind_of(REPO / "examples" / "digits.t7") == "t7"


def test_the_tar_format_of_the_first_versions_is_told_from_other_archives(path: Path) -> None:
    for names, kind in ((("sys_info", "pickle", "storages"), "tar"), (("readme", "pickle"), None)):
        with tarfile.open(path, "w") as archive:
            for name in names:
                archive.addfile(tarfile.TarInfo(name))
        assert kind_of(path) == kind


@pytest.mark.parametrize(
    "name",
    [
        "model.safetensors.index.json",
        "pytorch_model.bin.index.json",
        "diffusion_pytorch_model.safetensors.index.fp16.json",
    ],
)
def test_an_index_and_its_folder_are_a_checkpoint_in_shards(tmp_path: Path, name: str) -> None:
    index = tmp_path / name
    index.write_text(json.dumps({"metadata": {"notes": "x" * 10_000}, "weight_map": {}}))
    assert kind_of(index) == "sharded"
    assert kind_of(tmp_path) == "sharded"
    other = tmp_path / "index.json"
    other.write_text('{"weight_map": {}}')
    assert kind_of(other) == "sharded"


def test_what_is_for_no_reader_is_told_from_the_rest(tmp_path: Path, path: Path) -> None:
    assert kind_of(tmp_path) is None
    np.save(tmp_path / "x.npy", np.ones(3))
    assert kind_of(tmp_path / "x.npy") is None
    np.savez(tmp_path / "x.npz", np.ones(3))
    assert kind_of(tmp_path / "x.npz") is None
    for data in (b"", b"<!DOCTYPE html><html>", b'{"a": 1}', b"\xff" * 100, b"hello"):
        path.write_bytes(data)
        assert kind_of(path) is None, data
    with pytest.raises(FileNotFoundError):
        kind_of(tmp_path / "none")


def test_a_file_in_place_of_an_index_is_no_index(tmp_path: Path) -> None:
    page = tmp_path / "model.safetensors.index.json"
    page.write_text("<!DOCTYPE html><title>Sign in</title>")
    assert kind_of(page) is None
    assert sniff(page).name == "html"


def test_asking_costs_neither_numpy_nor_torch() -> None:
    code = "import sys, clearstate.formats.readers; print('numpy' in sys.modules, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["False", "False"]
