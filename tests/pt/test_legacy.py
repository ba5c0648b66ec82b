"""The stream format from before PyTorch 1.6 and plain pickles: read, written, and read by PyTorch."""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from clearstate.errors import FormatError
from clearstate.formats.data import Mapped
from clearstate.formats.pt.container.file import File
from clearstate.formats.pt.container.stream import MACHINE, MAGIC, VERSION, legacy_size, open_legacy, write_legacy
from clearstate.formats.pt.container.zip import write_zip
from clearstate.formats.pt.pickle.stubs import Global, Tensor

from .samples import SAMPLES, Net, same, sharing

pytestmark = pytest.mark.filterwarnings("default")

LATER = "float8 float4 complex32 uint16 uint32 uint64 bits storages".split()
"""What PyTorch writes as a stream and then cannot read from it."""


def saved(value: Any, path: Path, protocol: int = 2) -> str:
    torch.save(value, path, _use_new_zipfile_serialization=False, pickle_protocol=protocol)
    return str(path)


def written(file: File, path: Path, write: Callable[[File, Any], None] = write_legacy) -> str:
    with open(path, "wb") as handle:
        write(file, handle)
    return str(path)


def load(path: str | Path) -> Any:
    return torch.load(path, weights_only=False)


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("protocol", [2, 4])
def test_a_stream_that_is_read_and_written_is_the_same_to_torch(name: str, protocol: int, tmp_path: Path) -> None:
    value = SAMPLES[name]()
    file = open_legacy(saved(value, tmp_path / "a.pt", protocol))
    assert (file.layout, file.protocol) == ("legacy", protocol)
    assert all(isinstance(storage.data, Mapped) for storage in file.storages)
    copy = written(file, tmp_path / "b.pt")
    assert Path(copy).stat().st_size == legacy_size(file)
    expected, found = (value if any(word in name for word in LATER) else load(tmp_path / "a.pt")), load(copy)
    if name != "storages":
        same(expected, found)
        assert sharing(expected) == sharing(found)
    else:
        assert [bytes(storage.tolist()) for storage in found] == [bytes(storage.tolist()) for storage in expected]


@pytest.mark.parametrize("name", ["views", "ties", "state dicts", "module", "torch.uint16", "torch.bfloat16"])
def test_a_stream_is_written_as_a_zip_file_too(name: str, tmp_path: Path) -> None:
    value = SAMPLES[name]()
    file = open_legacy(saved(value, tmp_path / "a.pt"))
    back = load(written(file, tmp_path / "b.pt", write_zip))
    same(value, back)
    assert sharing(value) == sharing(back)


@pytest.mark.parametrize("protocol", range(1, 6))
def test_streams_of_every_protocol_are_read(protocol: int, tmp_path: Path) -> None:
    value = {"w": torch.arange(3.0), "n": [1, "x"]}
    back = load(written(open_legacy(saved(value, tmp_path / "a.pt", protocol)), tmp_path / "b.pt"))
    same(value, back)


def test_a_stream_of_protocol_0_is_refused_as_torch_refuses_it(tmp_path: Path) -> None:
    path = saved({"w": torch.arange(3.0)}, tmp_path / "a.pt", 0)
    with pytest.raises(AssertionError, match="saved_id must be a tuple"):
        load(path)
    with pytest.raises(FormatError, match="the id of a storage or of a class"):
        open_legacy(path)


def test_source_code_of_modules_stays_with_their_classes(tmp_path: Path) -> None:
    file = open_legacy(saved([Net(), Net], tmp_path / "a.pt"))
    name = Global(Net.__module__, "Net")
    assert "register_buffer" in file.sources[name][1]
    again = open_legacy(written(file, tmp_path / "b.pt"))
    assert again.sources == file.sources
    assert load(tmp_path / "b.pt")[1] is Net


def stream(root: bytes, keys: list[str], *storages: bytes, machine: Any = MACHINE) -> bytes:
    """A stream with a pickle and storages of one's own."""
    head = b"".join(pickle.dumps(value, 2) for value in (MAGIC, VERSION, machine))
    return head + root + pickle.dumps(keys, 2) + b"".join(storages)


def storage(*numbers: float, count: int | None = None) -> bytes:
    """The elements of a storage of 32-bit floats, as a stream has them."""
    return struct.pack(f"<q{len(numbers)}f", len(numbers) if count is None else count, *numbers)


class Named(pickle.Pickler):
    """Pickles `Id` objects as persistent ids."""

    def persistent_id(self, value: Any) -> Any:
        return value.pid if isinstance(value, Id) else None


class Id:
    def __init__(self, *pid: Any) -> None:
        self.pid = pid

    def __reduce__(self) -> Any:
        raise AssertionError("pickled as an id")


class Call:
    def __init__(self, function: Any, *args: Any) -> None:
        self.made = (function, args)

    def __reduce__(self) -> Any:
        return self.made


def rooted(value: Any) -> bytes:
    out = io.BytesIO()
    Named(out, 2).dump(value)
    return out.getvalue()


def tensor(where: Id, offset: int, size: tuple[int, ...], stride: tuple[int, ...]) -> Call:
    return Call(torch._utils._rebuild_tensor_v2, where, offset, size, stride, False, {})


def part(*view: Any, count: int = 6) -> Id:
    return Id("storage", torch.FloatStorage, "7", "cpu", count, view or None)


def test_parts_of_storages_share_them_as_in_torch(tmp_path: Path) -> None:
    piece = part("8", 2, 3)
    root = rooted([tensor(part(), 0, (6,), (1,)), tensor(piece, 1, (2,), (1,)), tensor(piece, 0, (3,), (1,))])
    (tmp_path / "a.pt").write_bytes(stream(root, ["7"], storage(0, 1, 2, 3, 4, 5)))
    file = open_legacy(str(tmp_path / "a.pt"))
    assert [(t.offset, t.storage is file.root[0].storage) for t in file.root] == [(0, True), (3, True), (2, True)]
    back = load(written(file, tmp_path / "b.pt"))
    assert [t.tolist() for t in back] == [[0, 1, 2, 3, 4, 5], [3, 4], [2, 3, 4]]
    assert [t.tolist() for t in load(tmp_path / "a.pt")] == [t.tolist() for t in back]
    assert sharing(back) == [(0, 0), (1, 0), (2, 0)]


def test_a_part_of_a_storage_by_itself_stays_a_part_of_it(tmp_path: Path) -> None:
    root = rooted([tensor(part(), 0, (6,), (1,)), part("8", 2, 3)])
    (tmp_path / "a.pt").write_bytes(stream(root, ["7"], storage(0, 1, 2, 3, 4, 5)))
    whole, piece = load(written(open_legacy(str(tmp_path / "a.pt")), tmp_path / "b.pt"))
    assert piece.tolist() == [2, 3, 4]
    assert piece.data_ptr() == whole.data_ptr() + 8


ONE = rooted(tensor(part(), 0, (6,), (1,)))
GOOD = stream(ONE, ["7"], storage(*range(6)))
OTHER = Id("storage", torch.DoubleStorage, "7", "cpu", 6, None)

WRONG: dict[str, tuple[bytes, str]] = {
    "a big-endian machine": (
        stream(ONE, ["7"], storage(*range(6)), machine={**MACHINE, "little_endian": False}),
        "expected numbers in little-endian order, found those of a big-endian machine",
    ),
    "another version": (
        pickle.dumps(MAGIC, 2) + pickle.dumps(1002, 2),
        "version 1001 of the stream format, found 1002",
    ),
    "no list of keys": (stream(ONE, 7), "the list of the storages' keys, found 7"),  # type: ignore[arg-type]
    "a key too few": (stream(ONE, []), "the keys of the 1 storages"),
    "a key twice": (stream(ONE, ["7", "7"], storage(), storage()), "the keys of the 1 storages"),
    "a strange key": (stream(ONE, ["8"], storage(*range(6))), "among them '7'"),
    "a count that lies": (stream(ONE, ["7"], storage(*range(6), count=2**40)), f"a count of {2**40}"),
    "a negative count": (stream(ONE, ["7"], storage(*range(6), count=-6)), "a count of -6"),
    "bytes too few": (GOOD[:-1], "1 bytes are missing"),
    "bytes too many": (GOOD + b"x", "1 more bytes"),
    "a storage of more than the file": (
        stream(rooted(part(count=2**50)), ["7"], storage(count=2**50)),
        f"{2**50} elements of float32, found a file of",
    ),
    "a negative size": (stream(rooted(part(count=-1)), ["7"], storage()), "size of a storage"),
    "a tensor outside": (
        stream(rooted(tensor(part(), 3, (4,), (1,))), ["7"], storage(*range(6))),
        "sees elements 3 to 6",
    ),
    "a tensor before": (stream(rooted(tensor(part(), -1, (4,), (1,))), ["7"], storage(*range(6))), "sees elements -1"),
    "a part outside": (stream(rooted(part("8", 4, 3)), ["7"], storage(*range(6))), "a part of the 6 elements"),
    "a part that is none": (stream(rooted(part("8", 4)), ["7"], storage(*range(6))), "a part of a storage"),
    "two types": (stream(rooted([part(), OTHER]), ["7"], storage(*range(6))), "as torch.FloatStorage again"),
    "an id of nothing": (stream(rooted(Id()), []), "the id of a storage or of a class"),
    "an id of a list": (stream(b"\x80\x02]Q.", []), "the id of a storage or of a class"),
    "a deep id": (stream(b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b"Q.", []), "the id of a storage"),
    "a wide id": (stream(rooted(Id("storage", "x" * 10**6)), []), "the id of a storage"),
    "a class by id that is none": (stream(rooted(Id("module", 1, 2, 3)), []), "the id of a storage or of a class"),
    "a magic number alone": (pickle.dumps(MAGIC, 2), "the end of the data"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_stream_is_refused_with_where_and_why(name: str, tmp_path: Path) -> None:
    data, message = WRONG[name]
    (tmp_path / "x.pt").write_bytes(data)
    with pytest.raises(FormatError) as caught:
        open_legacy(str(tmp_path / "x.pt"))
    assert message in str(caught.value)
    assert str(tmp_path / "x.pt") in str(caught.value)
    assert caught.value.offset is not None
    assert len(str(caught.value)) < 400 + len(str(tmp_path))


@pytest.mark.parametrize("protocol", range(6))
def test_tensors_in_a_plain_pickle_are_read_and_written(protocol: int, tmp_path: Path) -> None:
    value = {"w": torch.arange(6.0).view(2, 3).t(), "p": torch.nn.Parameter(torch.ones(2)), "n": {1, 2}}
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(value, protocol))
    file = open_legacy(str(tmp_path / "a.pkl"))
    assert (file.layout, len(file.storages)) == ("pickle", 2)
    assert isinstance(file.root["w"], Tensor)
    assert file.root["w"].numpy().tolist() == value["w"].tolist()  # type: ignore[attr-defined]
    back = pickle.loads(Path(written(file, tmp_path / "b.pkl")).read_bytes())
    same(value, back)


@pytest.mark.parametrize("data", [b"nothing", GOOD, pickle.dumps([1])])
def test_a_call_with_bytes_that_are_no_storage_stays_a_call(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(Call(torch.storage._load_from_bytes, data), 4))
    written(open_legacy(str(tmp_path / "a.pkl")), tmp_path / "b.pkl")
    assert (tmp_path / "b.pkl").read_bytes().count(data) == 1


def test_bytes_after_a_plain_pickle_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(1) + pickle.dumps(2))
    with pytest.raises(FormatError, match="the end of the file after its pickle"):
        open_legacy(str(tmp_path / "a.pkl"))
