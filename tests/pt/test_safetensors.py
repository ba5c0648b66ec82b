"""safetensors files are read and written as the library itself does, and damaged ones are refused with the place."""

from __future__ import annotations

import io
import json
import random
import tracemalloc
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from clearstate.errors import ClearstateError, FormatError
from clearstate.formats.data import PIECE
from clearstate.formats.pt.container.file import File
from clearstate.formats.pt.container.zip import open_zip, write_zip
from clearstate.formats.pt.pickle.stubs import Global, Ordered, Storage, Tensor
from clearstate.formats.safetensors import DTYPES, open_safetensors, safetensors_size, ties, write_safetensors
from tests.pt.samples import typed

TORCH = [getattr(torch, name) for name in DTYPES.values()]


def saved(tmp_path: Path, value: Any) -> dict[str, Tensor]:
    """The tensors of a dict, as clearstate sees them in a checkpoint that PyTorch wrote."""
    path = tmp_path / "value.pt"
    torch.save(value, path)
    root: dict[str, Tensor] = open_zip(str(path)).root
    return root


def written(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> bytes:
    handle = io.BytesIO()
    write_safetensors(tensors, handle, metadata)
    assert len(handle.getvalue()) == safetensors_size(tensors, metadata)
    return handle.getvalue()


def opened(tmp_path: Path, data: bytes) -> File:
    path = tmp_path / "opened.safetensors"
    path.write_bytes(data)
    return open_safetensors(str(path))


def made(header: Any, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def entry(begin: int, end: int, shape: list[int], dtype: str = "U8") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    flat = (x.contiguous().reshape(-1).view(torch.uint8) for x in (a, b))
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(*flat)


@pytest.mark.parametrize("dtype", TORCH, ids=str)
def test_every_type_is_read_as_the_library_wrote_it_and_written_as_it_does(tmp_path: Path, dtype: torch.dtype) -> None:
    tensor = typed(dtype)
    theirs = safetensors.torch.save({"x": tensor})
    file = opened(tmp_path, theirs)
    assert (file.layout, file.kind, file.size) == ("safetensors", "safetensors file", len(theirs))
    ours = file.root["x"]
    assert (ours.dtype, ours.size) == (str(dtype).removeprefix("torch."), tuple(tensor.shape))
    assert ours.numpy().tobytes() == bytes(tensor.view(torch.uint8).tolist())
    assert written(file.root) == theirs
    assert written(saved(tmp_path, {"x": tensor})) == theirs


def test_a_file_read_becomes_a_checkpoint_that_pytorch_loads_without_running_code(tmp_path: Path) -> None:
    tensors = {str(dtype): typed(dtype) for dtype in TORCH}
    file = opened(tmp_path, safetensors.torch.save(tensors))
    target = tmp_path / "x.pt"
    with open(target, "wb") as handle:
        write_zip(file, handle)
    loaded = torch.load(target, weights_only=True)
    assert loaded.keys() == tensors.keys()
    assert all(same(loaded[name], tensors[name]) for name in tensors)


def test_tensors_stay_in_the_file_until_they_are_looked_at(tmp_path: Path) -> None:
    data = safetensors.torch.save({"big": torch.zeros(4 << 20), "small": torch.ones(3)})
    path = tmp_path / "big.safetensors"
    path.write_bytes(data)
    tracemalloc.start()
    file = open_safetensors(str(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20
    assert file.root["small"].numpy().tolist() == [1, 1, 1]
    assert len(file.storages) == 2


def test_types_go_in_the_order_the_library_puts_them(tmp_path: Path) -> None:
    names = random.Random(3).sample([f"{c}{i}" for c in "aBé\U0001f600" for i in range(12)], 40)
    tensors = {name: typed(TORCH[i % len(TORCH)]) for i, name in enumerate(names)}
    assert written(saved(tmp_path, tensors)) == safetensors.torch.save(tensors)


def test_names_and_metadata_are_escaped_as_the_library_does(tmp_path: Path) -> None:
    names = ["", 'quo"te', "back\\slash", "line\n\r\t\b\f\x00\x1f\x7f", "ü\u2028\ud7ff\U0001f600", "a/b", "dtype"]
    tensors = {name: torch.full((2,), i) for i, name in enumerate(names)}
    metadata = {'k"\\\n': "värde\x01"}
    theirs = safetensors.torch.save(tensors, metadata)
    assert written(saved(tmp_path, tensors), metadata) == theirs
    file = opened(tmp_path, theirs)
    assert dict(file.metadata) == metadata
    assert set(file.root) == set(names)
    assert written(file.root, file.metadata) == theirs


@pytest.mark.parametrize("metadata", [None, {"format": "pt"}], ids=str)
def test_an_empty_file_is_the_librarys(tmp_path: Path, metadata: dict[str, str] | None) -> None:
    theirs = safetensors.torch.save({}, metadata)
    assert written({}, metadata) == theirs
    assert opened(tmp_path, theirs).root == {}


def test_a_file_without_metadata_gets_none(tmp_path: Path) -> None:
    theirs = safetensors.torch.save({"x": torch.ones(2)})
    file = opened(tmp_path, theirs)
    assert dict(file.metadata) == {}
    assert written(file.root, file.metadata) == theirs
    assert json.loads(written({}, {})[8:]) == {}


shapes = st.lists(st.integers(0, 4), max_size=4)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    tensors=st.dictionaries(
        st.text(st.characters(codec="utf-8"), max_size=6), st.tuples(st.sampled_from(TORCH), shapes)
    ),
    metadata=st.dictionaries(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8")), max_size=1),
)
def test_any_dict_of_tensors_gives_the_librarys_bytes_and_comes_back(
    tmp_path: Path, tensors: dict[str, tuple[torch.dtype, list[int]]], metadata: dict[str, str]
) -> None:
    tensors.pop("__metadata__", None)
    generator = torch.Generator().manual_seed(7)
    values = {}
    for name, (dtype, shape) in tensors.items():
        sizes = shape or [1] if dtype is torch.float4_e2m1fn_x2 else shape
        count = int(np.prod(sizes, dtype=int)) * dtype.itemsize
        raw = torch.randint(0, 2 if dtype is torch.bool else 256, (count,), dtype=torch.uint8, generator=generator)
        values[name] = raw.view(dtype).reshape(sizes)
    theirs = safetensors.torch.save(values, metadata or None)
    assert written(saved(tmp_path, values), metadata) == theirs
    file = opened(tmp_path, theirs)
    assert written(file.root, file.metadata) == theirs
    assert {name: tensor.size for name, tensor in file.root.items()} == {n: tuple(v.shape) for n, v in values.items()}


def test_scattered_tensors_are_gathered(tmp_path: Path) -> None:
    whole = torch.arange(120.0).reshape(2, 3, 4, 5)
    views = {
        "permuted": whole.permute(3, 1, 0, 2),
        "steps": torch.arange(50)[3::7],
        "expanded": torch.arange(3).unsqueeze(1).expand(3, 5),
        "number": torch.arange(9)[4],
        "channels": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "windows": torch.arange(24).as_strided((4, 8), (4, 1), 1),
        "half": torch.arange(24).bfloat16().reshape(4, 6).t(),
        "conjugated": torch.randn(3, dtype=torch.complex64).conj(),
        "negated": torch.randn(3, dtype=torch.complex64).conj().imag,
        "none": whole[:, :0].transpose(0, 3),
    }
    loaded = safetensors.torch.load(written(saved(tmp_path, views)))
    assert loaded.keys() == views.keys()
    for name, view in views.items():
        assert same(loaded[name], view.resolve_conj().resolve_neg().contiguous()), name


def test_gathering_a_large_tensor_takes_little_memory(tmp_path: Path) -> None:
    big = torch.arange(12 << 20, dtype=torch.int32).reshape(3, 1024, 4096)
    root = saved(tmp_path, {"wide": big.transpose(0, 2), "tall": big.permute(1, 0, 2), "row": big[:, 5]})
    target = tmp_path / "x.safetensors"
    with open(target, "wb") as handle:
        tracemalloc.start()
        write_safetensors(root, handle)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 3 * PIECE
    loaded = safetensors.torch.load_file(target)
    assert torch.equal(loaded["wide"], big.transpose(0, 2))
    assert torch.equal(loaded["tall"], big.permute(1, 0, 2))
    assert torch.equal(loaded["row"], big[:, 5])


class Tied(torch.nn.Module):
    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.inputs = torch.nn.Embedding(7, 3)
        self.outputs = torch.nn.Linear(3, 7, bias=False)
        self.outputs.weight = self.inputs.weight
        self.between = torch.nn.Linear(3, 3)
        self.register_buffer("flat", self.between.weight.detach().view(-1))


def test_a_tied_model_loads_by_the_librarys_load_model(tmp_path: Path) -> None:
    model, other = Tied(1), Tied(2)
    target = tmp_path / "x.safetensors"
    root = saved(tmp_path, model.state_dict())
    with open(target, "wb") as handle:
        left_out = write_safetensors(root, handle, {"format": "pt"})
    assert left_out == {"outputs.weight": "inputs.weight", "flat": "between.weight"}
    safetensors.torch.load_model(other, target, strict=True)
    assert all(same(a, b) for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True))
    reference = tmp_path / "theirs.safetensors"
    safetensors.torch.save_model(model, str(reference), {"format": "pt"})
    ours, theirs = (open_safetensors(str(path)) for path in (target, reference))
    assert ours.metadata == theirs.metadata
    assert list(ours.root) == list(theirs.root)
    assert target.read_bytes()[-ours.size // 2 :] == reference.read_bytes()[-ours.size // 2 :]


def test_what_the_user_noted_is_not_overwritten_by_a_tie(tmp_path: Path) -> None:
    shared = torch.ones(2)
    root = saved(tmp_path, {"a": shared, "b": shared})
    assert ties(root) == {"b": "a"}
    assert dict(opened(tmp_path, written(root, {"b": "mine"})).metadata) == {"b": "mine"}


def test_tensors_that_overlap_in_part_are_each_written_whole(tmp_path: Path) -> None:
    whole = torch.arange(10.0)
    parts = {
        "all": whole,
        "left": whole[:6],
        "right": whole[4:],
        "first": whole[:0],
    }
    root = saved(
        tmp_path,
        {**parts, "turned": whole.view(2, 5).t(), "steps": whole[::2], "others": whole[1::2], "again": whole[::2]},
    )
    loaded = safetensors.torch.load(written(root))
    assert loaded.keys() == {*parts, "turned", "others", "again"}
    assert all(same(loaded[name], parts[name]) for name in parts)
    assert torch.equal(loaded["turned"], whole.view(2, 5).t())
    assert loaded["again"].tolist() == [0, 2, 4, 6, 8]


@pytest.mark.parametrize(
    "make, word",
    [
        (lambda: torch.zeros(2, dtype=torch.complex128), "complex128"),
        (lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8), "qint8"),
    ],
    ids=["complex128", "quantized"],
)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_what_the_format_has_no_place_for_is_refused_by_name(
    tmp_path: Path, make: Callable[[], torch.Tensor], word: str
) -> None:
    root = saved(tmp_path, {"good": torch.ones(1), "the.bad": make()})
    handle = io.BytesIO()
    with pytest.raises(ClearstateError, match=rf"the\.bad.*{word}"):
        write_safetensors(root, handle)
    assert handle.getvalue() == b""


def test_a_tensor_without_data_is_refused_by_name() -> None:
    storage = Storage("float32", "0", "meta", None, Global("torch", "FloatStorage"))
    tensor = Tensor(storage, 0, (2,), (1,), Global("torch._utils", "_rebuild_tensor_v2"), (False, Ordered()))
    with pytest.raises(ClearstateError, match=r"the\.bad has no data"):
        written({"the.bad": tensor})


@pytest.mark.parametrize("name", ["__metadata__", "\ud800"])
def test_a_name_that_the_format_keeps_for_itself_is_refused(tmp_path: Path, name: str) -> None:
    tensor = saved(tmp_path, {"x": torch.ones(1)})["x"]
    with pytest.raises(ClearstateError, match="no place"):
        written({name: tensor})


GOOD = made({"a": entry(0, 2, [2]), "b": entry(2, 4, [2])}, b"1234")
BROKEN: dict[str, tuple[bytes, int, str]] = {
    "nothing": (b"", 0, "8 bytes"),
    "only a length": (b"\1\0\0\0\0\0\0", 0, "8 bytes"),
    "a header longer than the file": (GOOD[:40], 8, "bytes are missing"),
    "a header longer than allowed": ((100_000_001).to_bytes(8, "little") + b"{", 0, "at most 100000000"),
    "a length that wraps around": (b"\xff" * 8 + b"{}", 0, "at most 100000000"),
    "no object": (made(b"[]"), 8, "begins with '{'"),
    "spaces before the header": (made(b" {}"), 8, "begins with '{'"),
    "no utf-8": (made(b'{"\xff":1}'), 10, "UTF-8"),
    "a cut header": (made(b'{"a":{"dtype":"U8"'), 26, "the end of the header"),
    "no end of a name": (made(b'{"a\\"'), 9, "no end of it"),
    "more behind the header": (made(b"{} {}"), 11, "nothing but spaces"),
    "zeros behind the header": (made(b"{}\0\0"), 10, "nothing but spaces"),
    "a comma too many": (made(b'{"__metadata__":{},}'), 27, "a name in quotes"),
    "a control character in a name": (made(b'{"\n":{}}'), 9, "a name in quotes"),
    "half a surrogate pair": (made(b'{"\\ud800":{}}'), 9, "a name in quotes"),
    "an unknown escape": (made(b'{"\\x":{}}'), 9, "a name in quotes"),
    "a deep nest": (made(b'{"a":' * 1_000_000), 14, "dtype, shape or data_offsets"),
    "a deep list": (made(b'{"a":{"shape":' + b"[" * 1_000_000), 23, "a whole number"),
    "a name twice": (made(b'{"a":%s,"a":%s}' % ((json.dumps(entry(0, 0, [0])).encode(),) * 2)), 67, "'a' twice"),
    "a field twice": (made(b'{"a":{"dtype":"U8","dtype":"U8"}}'), 27, "'dtype' twice"),
    "a text twice": (made(b'{"__metadata__":{"k":"v","k":"v"}}'), 33, "'k' twice"),
    "metadata that is no text": (made(b'{"__metadata__":{"k":1}}'), 29, "a text in quotes"),
    "metadata that is nothing": (made(b'{"__metadata__":null}'), 24, "'{'"),
    "no dtype": (made(b'{"a":{"shape":[],"data_offsets":[0,0]}}'), 9, "no dtype"),
    "no shape": (made(b'{"a":{"dtype":"U8","data_offsets":[0,0]}}'), 9, "no shape"),
    "no offsets": (made(b'{"a":{"dtype":"U8","shape":[]}}'), 9, "no data_offsets"),
    "another field": (made(b'{"a":{"kind":"U8"}}'), 14, "'kind'"),
    "an unknown type": (made({"a": entry(0, 1, [1], "F6_E2M3")}, b"1"), 15, "F6_E2M3"),
    "a size below 0": (made(b'{"a":{"shape":[-1]}}'), 23, "a whole number from 0"),
    "a fraction": (made(b'{"a":{"shape":[1.0]}}'), 23, "a whole number from 0"),
    "an exponent": (made(b'{"a":{"shape":[1e3]}}'), 23, "a whole number from 0"),
    "a number with a 0 before it": (made(b'{"a":{"shape":[01]}}'), 23, "a whole number from 0"),
    "a number of many digits": (made(b'{"a":{"shape":[%s]}}' % (b"9" * 5000)), 23, "a whole number from 0"),
    "sizes that overflow": (made({"a": entry(0, 0, [1 << 40, 1 << 40, 0])}), 30, "a shape of 'a'"),
    "too many sizes": (made({"a": entry(0, 1, [1] * 65)}, b"1"), 232, "at most 64"),
    "three offsets": (made(b'{"a":{"data_offsets":[0,1,2]}}'), 34, "at most 2"),
    "one offset": (made(b'{"a":{"data_offsets":[0]}}'), 14, "begins and ends"),
    "an end before the beginning": (made(b'{"a":{"data_offsets":[2,0]}}'), 14, "begins and ends"),
    "a hole at the beginning": (made({"a": entry(1, 2, [1])}, b"12"), 9, "a hole"),
    "a hole": (made({"a": entry(0, 1, [1]), "b": entry(2, 3, [1])}, b"123"), 69, "a hole"),
    "an overlap": (made({"a": entry(0, 2, [2]), "b": entry(1, 3, [2])}, b"123"), 69, "an overlap"),
    "the same bytes twice": (made({"a": entry(0, 2, [2]), "b": entry(0, 2, [2])}, b"12"), 69, "an overlap"),
    "fewer bytes than the shape": (made({"a": entry(0, 2, [3])}, b"12"), 9, "3 bytes of 'a'"),
    "more bytes than the shape": (made({"a": entry(0, 2, [1], "I8")}, b"12"), 9, "1 bytes of 'a'"),
    "half an element": (made({"a": entry(0, 3, [1], "F32")}, b"123"), 9, "4 bytes of 'a'"),
    "odd rows of 4 bits": (made({"a": entry(0, 1, [3], "F4")}, b"1"), 9, "an even number"),
    "data cut off": (GOOD[:-1], len(GOOD) - 2, "1 bytes are missing"),
    "more behind the data": (GOOD + b"5", len(GOOD), "1 more bytes"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_damaged_file_is_refused_with_the_place(tmp_path: Path, name: str) -> None:
    data, offset, words = BROKEN[name]
    with pytest.raises(FormatError) as caught:
        opened(tmp_path, data)
    assert words in str(caught.value)
    assert caught.value.offset == offset
    assert str(caught.value.path).endswith("opened.safetensors")
    assert opened(tmp_path, GOOD).root["b"].numpy().tobytes() == b"34"


def test_a_header_of_empty_lists_takes_no_memory(tmp_path: Path) -> None:
    bomb = made(b'{"a":[' + b"[]," * (1 << 20) + b"[]]}")
    tracemalloc.start()
    with pytest.raises(FormatError):
        opened(tmp_path, bomb)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * len(bomb)


def test_a_mutated_file_is_read_as_the_library_reads_it_or_refused(tmp_path: Path) -> None:
    generator = random.Random(11)
    sample = safetensors.torch.save({"w": torch.arange(6.0).reshape(2, 3), "b": torch.ones(2)}, {"format": "pt"})
    read = 0
    for _ in range(1500):
        data = bytearray(sample)
        for _ in range(generator.randint(1, 3)):
            at = generator.randrange(len(data))
            data[at] = generator.choice((generator.randrange(256), *b'0123456789"{}[],:\\ '))
        data = data[: generator.choice((len(data), len(data), generator.randrange(len(data))))]
        try:
            file = opened(tmp_path, bytes(data))
        except FormatError as error:
            assert error.offset is not None
            continue
        read += 1
        theirs = dict(safetensors.deserialize(bytes(data)))  # type: ignore[no-untyped-call]
        assert theirs.keys() == file.root.keys()
        for name, tensor in file.root.items():
            assert list(theirs[name]["shape"]) == list(tensor.size)
            assert bytes(theirs[name]["data"]) == tensor.numpy().tobytes()
    assert read > 50
