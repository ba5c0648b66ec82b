"""The tar format from before PyTorch 0.1.10: made as PyTorch made it then, read by PyTorch of today and by us."""

from __future__ import annotations

import io
import pickle
import struct
import tarfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clearstate.errors import FormatError
from clearstate.formats.data import Mapped
from clearstate.formats.pt.container.tar import open_tar
from clearstate.formats.pt.container.zip import write_zip

from .samples import same, sharing
from .test_legacy import Id, load

MACHINE = {"protocol_version": 1000, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}


class Numbered(pickle.Pickler):
    """Pickles `Id` objects as the number of a tensor or a storage, as text."""

    def persistent_id(self, value: Any) -> Any:
        return value.pid[0] if isinstance(value, Id) else None


def tensor(key: int, storage: int, size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> bytes:
    n = len(size)
    return pickle.dumps((key, storage, torch.FloatTensor), 2) + struct.pack(
        f"<ii{2 * n + 1}q", n, 0, *size, *stride, offset
    )


def members(**other: bytes) -> dict[str, bytes]:
    """Two storages, a part of the first, and four tensors."""
    root = io.BytesIO()
    Numbered(root, 2).dump({"all": Id("11"), "t": Id("12"), "part": Id("13"), "int": Id("14"), "t again": Id("12")})
    storages = [
        pickle.dumps(2, 2),
        pickle.dumps((1, "cpu", torch.FloatStorage), 2) + struct.pack("<q6f", 6, *range(6)),
        pickle.dumps((2, "cpu", torch.LongStorage), 2) + struct.pack("<q2q", 2, -1, 7),
        pickle.dumps([(3, 1, 2, 3)], 2),
    ]
    tensors = [
        pickle.dumps(4, 2),
        tensor(11, 1, (6,), (1,), 0),
        tensor(12, 1, (3, 2), (1, 3), 0),
        tensor(13, 3, (2,), (1,), 1),
        tensor(14, 2, (2,), (1,), 0),
    ]
    made = {
        "sys_info": pickle.dumps(MACHINE, 2),
        "pickle": root.getvalue(),
        "tensors": b"".join(tensors),
        "storages": b"".join(storages),
    }
    return {**made, **other}


def tar(parts: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:", format=tarfile.PAX_FORMAT) as made:
        for name, data in parts.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(data), 1.5  # a time with a fraction needs an extended header
            made.addfile(info, io.BytesIO(data))
    return out.getvalue()


def test_tensors_and_their_sharing_are_those_that_torch_reads(tmp_path: Path) -> None:
    (tmp_path / "a.pt").write_bytes(tar(members()))
    file = open_tar(str(tmp_path / "a.pt"))
    assert [type(storage.data) for storage in file.storages] == [Mapped, Mapped]
    with open(tmp_path / "b.pt", "wb") as handle:
        write_zip(file, handle)
    expected, found = load(tmp_path / "a.pt"), load(tmp_path / "b.pt")
    assert found["part"].tolist() == [3, 4]
    assert [item.tolist() for item in expected.values()] == [item.tolist() for item in found.values()]
    assert sharing(found) == [(0, 0), (1, 0), (2, 0), (3, 1), (1, 0)]
    same({key: expected[key] for key in ("all", "t", "int")}, {key: found[key] for key in ("all", "t", "int")})


BIG = pickle.dumps({**MACHINE, "little_endian": False}, 2)
ONE = pickle.dumps(1, 2)
FLOATS = pickle.dumps((1, "cpu", torch.FloatStorage), 2)

WRONG: dict[str, tuple[dict[str, bytes], str]] = {
    "a big-endian machine": (members(sys_info=BIG), "little-endian order"),
    "a storage that lies": (
        members(storages=ONE + FLOATS + struct.pack("<q", 2**60)),
        f"{2**60} elements of st",
    ),
    "a negative storage": (members(storages=ONE + FLOATS + struct.pack("<q", -4)), "-4 elements of storage 1"),
    "a storage without a size": (members(storages=ONE + FLOATS), "a number of 8 bytes"),
    "a million storages": (members(storages=pickle.dumps(10**6, 2)), "the end of the data"),
    "a tensor outside": (members(tensors=ONE + tensor(11, 1, (7,), (1,), 0)), "sees elements 0 to 6"),
    "a tensor on nothing": (members(tensors=ONE + tensor(11, 9, (7,), (1,), 0)), "one of a storage"),
    "a tensor of many dimensions": (
        members(tensors=ONE + pickle.dumps((11, 1, None), 2) + struct.pack("<q", 2**31)),
        f"{2**31} dimensions",
    ),
    "bytes after the tensors": (members(tensors=members()["tensors"] + b"x"), "1 more bytes"),
    "a number of nothing": (members(tensors=pickle.dumps(0, 2)), "the number of a tensor or a storage"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_archive_is_refused_with_where_and_why(name: str, tmp_path: Path) -> None:
    parts, message = WRONG[name]
    (tmp_path / "x.pt").write_bytes(tar(parts))
    with pytest.raises(FormatError) as caught:
        open_tar(str(tmp_path / "x.pt"))
    assert message in str(caught.value)
    assert caught.value.offset is not None


def test_a_member_that_is_not_there_is_named(tmp_path: Path) -> None:
    parts = members()
    del parts["tensors"]
    (tmp_path / "x.pt").write_bytes(tar(parts))
    with pytest.raises(FormatError, match="a member tensors in the archive, found none"):
        open_tar(str(tmp_path / "x.pt"))


ORIGINAL = tar(members())


@pytest.mark.parametrize("step", range(4))
def test_a_file_cut_anywhere_is_refused(step: int, tmp_path: Path) -> None:
    end = ORIGINAL.rindex(members()["storages"]) + len(members()["storages"])
    for length in range(step, end, 4):
        (tmp_path / "x.pt").write_bytes(ORIGINAL[:length])
        with pytest.raises(FormatError):
            open_tar(str(tmp_path / "x.pt"))


@given(st.data())
@settings(max_examples=400, deadline=None)
def test_a_mutated_archive_is_read_or_refused_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    mutated = bytearray(ORIGINAL)
    for _ in range(data.draw(st.integers(1, 5))):
        at = data.draw(st.integers(0, len(mutated) - 1))
        mutated[at : at + data.draw(st.integers(1, 4))] = data.draw(st.binary(max_size=4))
    path = tmp_path_factory.getbasetemp() / "mutated.tar"
    path.write_bytes(mutated)
    try:
        write_zip(open_tar(str(path)), io.BytesIO())
    except FormatError as error:
        assert error.path == str(path)
