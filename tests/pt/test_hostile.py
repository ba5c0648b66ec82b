"""Files that mean harm, and whole ones that were damaged: nothing runs, nothing is written, memory stays in bounds."""

from __future__ import annotations

import io
import os
import pickle
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import clearstate as cs
from clearstate.errors import FormatError
from clearstate.formats import pt
from clearstate.formats.pt.container.file import File
from clearstate.formats.pt.container.stream import open_legacy, write_legacy
from clearstate.formats.pt.pickle.read import unpickle
from clearstate.formats.pt.pickle.stubs import Stub
from clearstate.formats.pt.pickle.write import dumps

from .samples import SAMPLES
from .test_legacy import stream

pytestmark = pytest.mark.filterwarnings("default")

Format = tuple[Callable[[bytes], bytes], Callable[[str], File], Callable[[File, Any], None]]


def zipped(root: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("archive/data.pkl", root)
        archive.writestr("archive/version", b"3\n")
    return out.getvalue()


FORMATS: dict[str, Format] = {
    "zip": (zipped, pt.open_zip, pt.write_zip),
    "stream": (lambda root: stream(root, []), open_legacy, write_legacy),
    "pickle": (lambda root: root, open_legacy, write_legacy),
}


def through(data: bytes, path: Path, form: Format) -> bytes:
    """Opens, lists, clears and writes a file: all that is done with one."""
    path.write_bytes(data)
    _, read, write = form
    file = read(str(path))
    pt.inspect_file(file)
    pt.clear(file)
    out = io.BytesIO()
    write(file, out)
    return out.getvalue()


class Attack:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize("form", FORMATS)
def test_a_call_in_a_file_is_told_and_written_back_and_never_made(form: str, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    data = FORMATS[form][0](pickle.dumps({"w": Attack(marker)}, 2))
    (tmp_path / "x.pt").write_bytes(data)
    file = FORMATS[form][1](str(tmp_path / "x.pt"))
    assert isinstance(file.root["w"], Stub)
    assert any("DANGEROUS" in note and "system" in note for note in pt.inspect_file(file).notes)
    assert str(marker).encode() in through(data, tmp_path / "x.pt", FORMATS[form])
    assert not marker.exists()
    if form != "zip":
        return
    torch.load(io.BytesIO(data), weights_only=False)
    assert marker.exists(), "the attack is a real one"


NESTS: dict[str, Callable[[int], bytes]] = {
    "lists": lambda n: b"]" * n + b"N" + b"a" * n,
    "tuples": lambda n: b"N" + b"\x85" * n,
    "dicts": lambda n: b"}K\x01" * n + b"N" + b"s" * n,
    "ordered": lambda n: b"ccollections\nOrderedDict\n)RK\x01" * n + b"N" + b"s" * n,
    "arguments": lambda n: b"cx\ny\n" * n + b"N" + b"\x85R" * n,
    "functions": lambda n: b"cx\ny\n" + b")R" * n,
    "states": lambda n: b"cx\ny\n)R" * n + b"N" + b"b" * n,
    "marks": lambda n: b"(" * n + b"t" * n,
}
"""Pickles of values in values, so many levels deep."""


@pytest.mark.parametrize("name", NESTS)
def test_a_nest_a_million_deep_is_read_and_written(name: str) -> None:
    depth = 10**6 if name in ("lists", "tuples", "dicts", "marks") else 10**5
    value, _ = unpickle(NESTS[name](depth) + b".")
    again = dumps(value)
    del value
    assert dumps(unpickle(again)[0]) == again


@pytest.mark.parametrize("name", NESTS)
def test_a_deep_nest_is_listed_and_cleared(name: str, tmp_path: Path) -> None:
    form = FORMATS["pickle"]
    again = through(b"\x80\x02" + NESTS[name](20_000) + b".", tmp_path / "x.pkl", form)
    assert through(again, tmp_path / "x.pkl", form) == again


def test_sharing_that_doubles_a_hundred_times_takes_no_time(tmp_path: Path) -> None:
    doubling = b"\x80\x02]q\x00" + b"".join(b"(h%ch%cl" % (i, i) + b"q%c" % (i + 1) for i in range(100)) + b"."
    assert len(through(doubling, tmp_path / "x.pkl", FORMATS["pickle"])) < 3000


BOMBS: dict[str, bytes] = {
    "a memo of 2^31": b"Nr\xff\xff\xff\x7f.",
    "a memo of 2^32 numbers": b"Np4294967295\n.",
    "a memo in digits": b"Np" + b"9" * 3000 + b"\n.",
    "bytes of 2^32": b"B\xff\xff\xff\xff.",
    "bytes of 2^63": b"\x8e" + b"\xff" * 7 + b"\x7f.",
    "a bytearray of 2^63": b"\x96" + b"\xff" * 7 + b"\x7f.",
    "a number of 2^31 bytes": b"\x8b\xff\xff\xff\x7f.",
    "a negative number of bytes": b"\x8b\xff\xff\xff\xff.",
    "a frame of 2^63": b"\x80\x04\x95" + b"\xff" * 7 + b"\x7fN.",
    "a tensor of 2^60": b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(NK\x00\x8a\x08"
    + b"\xff" * 7
    + b"\x0f\x85K\x01\x85tR.",
    "a bytearray by a call": b"\x80\x02c__builtin__\nbytearray\n\x8a\x08" + b"\xff" * 7 + b"\x7f\x85R.",
    "a range": b"\x80\x02c__builtin__\nlist\nc__builtin__\nrange\nJ\xff\xff\xff\x7f\x85R\x85R.",
}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", BOMBS)
def test_sizes_in_a_pickle_cost_no_memory(name: str, form: str, tmp_path: Path) -> None:
    data = FORMATS[form][0](BOMBS[name])
    tracemalloc.start()
    try:
        through(data, tmp_path / "x.pt", FORMATS[form])
    except FormatError as error:
        assert error.path == str(tmp_path / "x.pt")
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 2 << 20


def _with_geometry(size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> bytes:
    """A file of a tensor of these numbers, on four floats."""
    head = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\n"
    head += b"X\x01\0\0\x000X\x03\0\0\0cpuK\x04tQ"
    rest = b"\x89ccollections\nOrderedDict\n)RtR."
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        numbers = b"".join(dumps(number)[2:-1] for number in (offset, size, stride))
        archive.writestr("archive/data.pkl", head + numbers + rest)
        archive.writestr("archive/data/0", bytes(16))
    return out.getvalue()


GEOMETRIES: dict[str, tuple[tuple[int, ...], tuple[int, ...], int]] = {
    "a stride of 2^61 that nobody takes": ((1,), (2**61,), 0),
    "a stride of 2^63": ((1,), (2**63,), 0),
    "negative strides in the storage": ((3,), (-1,), 2),
    "sizes whose product leaves 63 bits": ((2**31,) * 3, (0,) * 3, 0),
    "a size of 2^62": ((2**62,), (0,), 0),
    "nothing, 2^61 times": ((0, 2**61), (1, 1), 0),
    "nothing, before the storage": ((0,), (1,), -1),
    "nothing, at 2^63": ((0,), (1,), 2**63),
    "65 dimensions": ((1,) * 65, (1,) * 65, 0),
    "a size of 1600 bits": ((2**1600,), (0,), 0),
    "negative sizes": ((-3, -1), (1, 1), 0),
}


@pytest.mark.parametrize("name", GEOMETRIES)
def test_sizes_strides_and_offsets_that_no_tensor_has_are_refused_with_their_place(name: str, tmp_path: Path) -> None:
    data = _with_geometry(*GEOMETRIES[name])
    (tmp_path / "x.pt").write_bytes(data)
    with pytest.raises(FormatError) as caught:
        pt.open_zip(str(tmp_path / "x.pt"))
    assert caught.value.offset is not None
    assert 0 < caught.value.offset < len(data)
    (tmp_path / "x.pt").write_bytes(_with_geometry((2, 2), (2, 1), 0))
    assert pt.open_zip(str(tmp_path / "x.pt")).root.size == (2, 2), "these numbers alone are wrong"


def test_a_member_with_bytes_that_says_it_is_a_folder_is_refused(tmp_path: Path) -> None:
    data = bytearray(saved(True))
    at = next(at for at in range(len(data)) if data[at : at + 4] == b"PK\x01\x02" and b"data/0" in data[at : at + 70])
    data[at + 38] |= 0x10
    (tmp_path / "x.pt").write_bytes(data)
    with pytest.raises(FormatError, match="found a folder"):
        pt.open_zip(str(tmp_path / "x.pt"))


def test_a_number_of_more_digits_than_python_writes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.pkl").write_bytes(b"\x80\x02\x8b" + (2000).to_bytes(4, "little") + b"\x7f" * 2000 + b".")
    with pytest.raises(FormatError, match="a number of 2000 bytes"):
        open_legacy(str(tmp_path / "x.pkl"))


def test_elements_that_repeat_are_compared_once_and_not_written_out(tmp_path: Path) -> None:
    for name, last in (("a", 2.0), ("b", 3.0)):
        torch.save({"w": torch.tensor([1.0, last]).expand(2**36, 2)}, tmp_path / f"{name}.pt")
    assert cs.verify(tmp_path / "a.pt", tmp_path / "a.pt")
    assert not cs.verify(tmp_path / "a.pt", tmp_path / "b.pt")
    assert cs.clear_file(tmp_path / "a.pt", tmp_path / "c.pt").after.size < 2000
    with pytest.raises(cs.ClearstateError, match="repeat"):
        cs.clear_file(tmp_path / "a.pt", tmp_path / "c.safetensors")
    assert not (tmp_path / "c.safetensors").exists()


IDS: dict[str, Any] = {
    "nothing": None,
    "a text": "storage",
    "a list": ["storage"],
    "too little": ("storage",),
    "no class": ("storage", "FloatStorage", "0", "cpu", 1),
    "a class that is none": ("storage", os.getpid, "0", "cpu", 1),
    "a number as key": ("storage", torch.FloatStorage, 0, "cpu", 1),
    "a way out": ("storage", torch.FloatStorage, "../../data.pkl", "cpu", 1),
    "a lie": ("storage", torch.FloatStorage, "0", "cpu", 2**60),
    "less than nothing": ("storage", torch.FloatStorage, "0", "cpu", -1),
    "a device of numbers": ("storage", torch.FloatStorage, "0", 5, 1),
    "true": ("storage", torch.FloatStorage, "0", "cpu", True),
    "a deep key": ("storage", torch.FloatStorage, [[[[[[[]]]]]]] * 1000, "cpu", 1),
}


@pytest.mark.parametrize("name", IDS)
def test_an_id_that_is_no_storage_s_is_refused_in_words(name: str, tmp_path: Path) -> None:
    root = pickle.dumps(IDS[name], 2)[:-1] + b"Q."
    for form in FORMATS.values():
        with pytest.raises(FormatError) as caught:
            through(form[0](root), tmp_path / "x.pt", form)
        assert caught.value.offset is not None
        assert len(str(caught.value)) < 400 + len(str(tmp_path))


def test_a_zip_bomb_is_refused_without_being_unpacked(tmp_path: Path) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"N" * (50 << 20))
    (tmp_path / "x.pt").write_bytes(out.getvalue())
    tracemalloc.start()
    with pytest.raises(FormatError, match=r"archive/data\.pkl"):
        pt.open_zip(str(tmp_path / "x.pt"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


def test_members_that_share_bytes_are_refused(tmp_path: Path) -> None:
    data = bytearray(saved(True))
    entries = [at for at in range(len(data)) if data[at : at + 4] == b"PK\x01\x02"]
    one, other = (next(at for at in entries if name in data[at : at + 100]) for name in (b"data/0", b"data/1"))
    data[other + 42 : other + 46] = data[one + 42 : one + 46]
    (tmp_path / "x.pt").write_bytes(data)
    with pytest.raises(FormatError, match="overlap") as caught:
        pt.open_zip(str(tmp_path / "x.pt"))
    assert caught.value.offset is not None


def saved(zip_format: bool) -> bytes:
    out = io.BytesIO()
    value = {"w": torch.arange(3.0), "p": torch.nn.Parameter(torch.ones(1)), "n": [1, ("x", None)]}
    torch.save(value, out, _use_new_zipfile_serialization=zip_format)
    return out.getvalue()


@pytest.mark.parametrize("form, data", [("zip", saved(True)), ("stream", saved(False))])
def test_a_file_cut_at_any_byte_is_refused(form: str, data: bytes, tmp_path: Path) -> None:
    for length in range(len(data)):
        with pytest.raises(FormatError) as caught:
            through(data[:length], tmp_path / "x.pt", FORMATS[form])
        assert caught.value.path == str(tmp_path / "x.pt")


@pytest.mark.parametrize("form, data", [("zip", saved(True)), ("stream", saved(False))])
def test_a_file_with_any_byte_changed_is_read_or_refused(form: str, data: bytes, tmp_path: Path) -> None:
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1 << at % 8
        try:
            through(bytes(changed), tmp_path / "x.pt", FORMATS[form])
        except FormatError as error:
            assert error.path == str(tmp_path / "x.pt")


def _seed(name: str, zip_format: bool) -> bytes:
    out = io.BytesIO()
    torch.save(SAMPLES[name](), out, _use_new_zipfile_serialization=zip_format)
    return out.getvalue()


NAMES = ["views", "ties", "sparse", "quantized", "numpy", "objects", "state dicts", "module"]


@pytest.mark.parametrize("form", ["zip", "stream"])
@given(name=st.sampled_from(NAMES), data=st.data())
@settings(max_examples=300, deadline=None)
def test_a_mutated_file_is_read_or_refused(
    form: str, tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject
) -> None:
    mutated = bytearray(_cached(name, form == "zip"))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(mutated) - 1))
        piece = data.draw(st.one_of(st.binary(max_size=4), st.sampled_from([b"\xff" * 4, b"q\x00", b"R", b"(", b"u."])))
        same_length = data.draw(st.booleans())
        mutated[at : at + (len(piece) if same_length else data.draw(st.integers(0, 4)))] = piece
    path = tmp_path_factory.getbasetemp() / "mutated.pt"
    try:
        through(bytes(mutated), path, FORMATS[form])
    except FormatError as error:
        assert error.path == str(path)


CACHE: dict[tuple[str, bool], bytes] = {}


def _cached(name: str, zip_format: bool) -> bytes:
    if (name, zip_format) not in CACHE:
        CACHE[name, zip_format] = _seed(name, zip_format)
    return CACHE[name, zip_format]
