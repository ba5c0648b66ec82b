"""The zip format: every type PyTorch writes, with its sharing; archives that were changed are refused in words."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clearstate.errors import FormatError
from clearstate.formats import pt
from clearstate.formats.data import Held
from clearstate.formats.pt.container import zip_writing as zipping
from clearstate.formats.pt.container.zip import written_size
from clearstate.formats.pt.container.zip_writing import write_members

from .samples import SAMPLES, same, sharing

pytestmark = pytest.mark.filterwarnings("default")

NAMES = """float64 float32 float16 bfloat16 float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu
complex128 complex64 complex32 int64 int32 int16 int8 uint64 uint32 uint16 uint8 bool"""
DTYPES = [getattr(torch, name) for name in NAMES.split() if hasattr(torch, name)]


def through(value: Any, tmp_path: Path) -> Any:
    torch.save(value, tmp_path / "old.pt")
    file = pt.open_zip(str(tmp_path / "old.pt"))
    with open(tmp_path / "new.pt", "wb") as handle:
        pt.write_zip(file, handle)
    assert written_size(file) == os.path.getsize(tmp_path / "new.pt")
    assert pt.compare(file, pt.open_zip(str(tmp_path / "new.pt"))) == []
    assert zipfile.ZipFile(tmp_path / "new.pt").testzip() is None
    return torch.load(tmp_path / "new.pt", weights_only=False)


def raw(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.contiguous().view(torch.uint8).flatten().tolist()) if tensor.dim() else raw(tensor.reshape(1))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_type_goes_through_bit_for_bit(dtype: torch.dtype, tmp_path: Path) -> None:
    bits = torch.arange(1, 1 + 4 * dtype.itemsize, dtype=torch.uint8)
    tensor = (bits % 2).bool() if dtype is torch.bool else bits.view(dtype)
    back = through({"x": tensor, "part": tensor[1:3]}, tmp_path)
    assert back["x"].dtype is dtype
    assert raw(back["x"]) == raw(tensor)
    assert raw(back["part"]) == raw(tensor[1:3])
    assert back["part"].untyped_storage().data_ptr() == back["x"].untyped_storage().data_ptr()


def test_tensors_of_every_kind_go_through(tmp_path: Path) -> None:
    whole = torch.arange(24.0)
    value: dict[str, Any] = {
        "transposed": whole.view(4, 6).t(),
        "expanded": whole[:3].unsqueeze(1).expand(3, 5),
        "number": whole[5],
        "empty": torch.empty(0, 3),
        "parameter": torch.nn.Parameter(whole[:4].clone()),
        "coo": torch.eye(3).to_sparse(),
        "csr": torch.eye(3).to_sparse_csr(),
        "meta": torch.empty(2, 3, device="meta"),
        "size": torch.Size([1, 2]),
        "dtype": torch.bfloat16,
        "device": torch.device("cpu"),
        "numpy": whole.numpy(),
    }
    back = through(value, tmp_path)
    assert list(back) == list(value)
    for name in ("transposed", "expanded", "number", "empty", "parameter"):
        assert torch.equal(back[name], value[name])
        assert back[name].stride() == value[name].stride()
    assert isinstance(back["parameter"], torch.nn.Parameter)
    assert torch.equal(back["coo"].to_dense(), torch.eye(3))
    assert torch.equal(back["csr"].to_dense(), torch.eye(3))
    assert (back["meta"].device.type, back["size"], back["dtype"]) == ("meta", value["size"], torch.bfloat16)
    assert (back["numpy"] == value["numpy"]).all()


def test_archives_beyond_four_gigabytes_are_written_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zipping, "LIMIT", 100)  # as if 100 bytes were too many for four bytes to count
    with open(tmp_path / "new.pt", "wb") as handle:
        write_members(handle, [(f"m/{i}", Held(np.full(60 * i, i, "u1"))) for i in range(4)])
    data = (tmp_path / "new.pt").read_bytes()
    assert data.count(b"PK\x06\x06") == 1
    end = data.rindex(b"PK\x05\x06")
    fixed = data[: end + 12] + b"\xff" * 8 + data[end + 20 :]
    fixed = fixed.replace((100).to_bytes(4, "little"), b"\xff" * 4)
    with zipfile.ZipFile(io.BytesIO(fixed)) as made:
        assert [made.read(f"m/{i}") for i in range(4)] == [bytes([i]) * 60 * i for i in range(4)]


@pytest.mark.parametrize("name", SAMPLES)
def test_every_sort_of_value_goes_through_with_its_sharing(name: str, tmp_path: Path) -> None:
    back = through(SAMPLES[name](), tmp_path)
    expected = torch.load(tmp_path / "old.pt", weights_only=False)
    same(expected, back)
    assert sharing(expected) == sharing(back)


def archive(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED, only_deflated: str = "") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as made:
        for name, data in members.items():
            made.writestr(name, data, zipfile.ZIP_DEFLATED if name == only_deflated else None)
    return out.getvalue()


def saved() -> bytes:
    out = io.BytesIO()
    torch.save({"w": torch.arange(8.0), "n": [1, "x"]}, out)
    return out.getvalue()


def members() -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(saved())) as made:
        return {name: made.read(name) for name in made.namelist()}


def _twice() -> bytes:
    out = io.BytesIO(archive(members()))
    with zipfile.ZipFile(out, "a") as made, pytest.warns(UserWarning, match="Duplicate"):
        made.writestr("archive/data/0", b"x" * 32)
    return out.getvalue()


def _outside() -> bytes:
    data = bytearray(archive(members()))
    at = data.rindex(b"PK\x01\x02")
    data[at + 42 : at + 46] = (2**31).to_bytes(4, "little")
    return bytes(data)


CHANGED: dict[str, tuple[Callable[[], bytes], str]] = {
    "compressed members": (lambda: archive(members(), zipfile.ZIP_DEFLATED), "stored as it is, found it compressed"),
    "members compressed otherwise": (lambda: archive(members(), zipfile.ZIP_BZIP2), "compressed otherwise"),
    "a compressed storage": (lambda: archive(members(), only_deflated="archive/data/0"), "data/0' stored as it is"),
    "a name twice": (_twice, "twice"),
    "a member outside": (_outside, "found none|directory"),
    "no pickle": (lambda: archive({"archive/version": b"3\n"}), "a member data.pkl"),
    "a storage missing": (lambda: archive({k: v for k, v in members().items() if k != "archive/data/0"}), "data/0"),
    "a storage too short": (lambda: archive({**members(), "archive/data/0": b"1234"}), "8 elements of float32"),
    "numbers the other way round": (lambda: archive({**members(), "archive/byteorder": b"big"}), "little-endian"),
    "bytes after the pickle": (
        lambda: archive({**members(), "archive/data.pkl": members()["archive/data.pkl"] + b"x"}),
        "1 more bytes",
    ),
}


@pytest.mark.parametrize("name", CHANGED)
def test_an_archive_that_was_changed_is_refused_with_what_is_wrong(name: str, tmp_path: Path) -> None:
    make, message = CHANGED[name]
    (tmp_path / "x.pt").write_bytes(make())
    with pytest.raises(FormatError, match=message):
        pt.open_zip(str(tmp_path / "x.pt"))


ORIGINAL = saved()


@given(st.data())
@settings(max_examples=500, deadline=None)
def test_a_mutated_archive_is_read_or_refused_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    mutated = bytearray(ORIGINAL)
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, len(mutated) - 1))
        mutated[at : at + data.draw(st.integers(1, 4))] = data.draw(st.binary(max_size=4))
    path = tmp_path_factory.getbasetemp() / "mutated.pt"
    path.write_bytes(mutated)
    try:
        file = pt.open_zip(str(path))
        pt.inspect_file(file)
        pt.clear(file)
        pt.write_zip(file, io.BytesIO())
    except FormatError as error:
        assert error.expected
