"""A broken or hostile file gives a `FormatError` that says where; never a crash, a hang, or a large allocation."""

from __future__ import annotations

import resource
import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearstate.errors import FormatError
from clearstate.formats import t7
from clearstate.formats.t7 import Layout, Object, Storage, Table, Tensor
from tests.recordings import FORMATS, ROOT

HEX = bytes.fromhex


def ints(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}i", *values)


def longs(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)


def text(value: bytes) -> bytes:
    return ints(len(value)) + value


def torch_object(index: int, name: bytes) -> bytes:
    return ints(4, index) + text(b"V 1") + text(name)


def tensor(
    size: tuple[int, ...], stride: tuple[int, ...], offset: int, elements: int, claimed: int | None = None
) -> bytes:
    head = torch_object(1, b"torch.DoubleTensor") + ints(len(size)) + longs(*size, *stride, offset)
    count = elements if claimed is None else claimed
    return head + torch_object(2, b"torch.DoubleStorage") + longs(count) + bytes(8 * elements)


HOSTILE: dict[str, tuple[bytes, str]] = {
    "an empty file": (b"", "an empty file"),
    "two bytes": (b"\x03\x00", "type number"),
    "a type number of 9": (ints(9), "type number from 0 to 8, found 9"),
    "a negative type number": (ints(-3), "type number from 0 to 8"),
    "a string longer than the file": (ints(2, 2**31 - 1), r"2147483647 bytes, .*are missing"),
    "a string of negative length": (ints(2, -5), "length of a string, found -5"),
    "a table of more entries than fit": (ints(3, 1, 2**31 - 1), "number of entries .* found 2147483647"),
    "a table of a negative count": (ints(3, 1, -1), "number of entries .* found -1"),
    "a table with a nil key": (ints(3, 1, 1, 0, 0), "key of a table entry, found nil"),
    "a table with a key that is no number": (ints(3, 1, 1, 1) + struct.pack("<d", float("nan")) + ints(0), "NaN"),
    "a boolean that is neither": (ints(5, 7), r"boolean \(0 or 1\), found 7"),
    "a storage of 2^62 elements": (torch_object(1, b"torch.DoubleStorage") + longs(2**62), "end of the file"),
    "a storage of negative size": (torch_object(1, b"torch.DoubleStorage") + longs(-1), "size of a .*, found -1"),
    "a tensor of a million dimensions": (torch_object(1, b"torch.DoubleTensor") + ints(10**6), "number of dimensions"),
    "a tensor of negative size": (tensor((-2,), (1,), 1, 4), "negative"),
    "strides that leave the storage": (tensor((2, 2), (100, 1), 1, 4), "elements 0 to 101 of a storage of 4"),
    "strides of 2^62": (tensor((3,), (2**62,), 1, 4), "of a storage of 4"),
    "strides that go below the storage": (tensor((3,), (-1,), 1, 4), "elements -2 to 0"),
    "negative strides in the storage": (tensor((3,), (-1,), 3, 4), "strides of a tensor, found a negative one: -1"),
    "a stride of 2^61 that nobody takes": (
        tensor((1,), (2**61,), 1, 4),
        "a stride that fits 63 bits .*found 230584300",
    ),
    "the smallest stride": (tensor((1,), (-(2**63),), 1, 4), "a stride that fits 63 bits .*found -922337203685"),
    "sizes whose product leaves 63 bits": (tensor((2**31, 2**31, 2**31), (0, 0, 0), 1, 4), "whose bytes fit 63 bits"),
    "a size of 2^63 - 1": (tensor((2**63 - 1,), (0,), 1, 4), "whose bytes fit 63 bits, found 9223372036854775807"),
    "nothing, 2^62 times": (tensor((0, 2**62), (0, 0), 1, 4), "whose bytes fit 63 bits"),
    "nothing, before the storage": (tensor((0,), (1,), -5, 4), "an offset in the storage, found -6"),
    "nothing, at 2^62": (tensor((0,), (1,), 2**62, 4), "an offset that fits 63 bits"),
    "65 dimensions": (tensor((1,) * 65, (1,) * 65, 1, 4), "number of dimensions of a tensor, found 65"),
    "ascii with a size of 65 bits": (
        b"4\n1\n3\nV 1\n17\ntorch.FloatTensor\n1\n36893488147419103232\n1\n1\n0\n",
        "the sizes of a tensor .*found '36893488147419103232'",
    ),
    "ascii with a stride of 2^62": (
        b"4\n1\n3\nV 1\n17\ntorch.FloatTensor\n1\n1\n4611686018427387904\n1\n"
        b"4\n2\n3\nV 1\n18\ntorch.FloatStorage\n1\n5\n",
        "a stride that fits 63 bits .*found 4611686018427387904",
    ),
    "ascii with a type number of 33 bits": (b"3\n4294967296\n1\n", "the number of an object .*found '4294967296'"),
    "an offset before the storage": (tensor((2,), (1,), -5, 4), "elements -6 to -5"),
    "a storage that claims more": (tensor((2,), (1,), 1, 4, claimed=5), "are missing|end of the file|more bytes"),
    "a tensor on a table": (
        torch_object(1, b"torch.DoubleTensor") + ints(1) + longs(1, 1, 1) + ints(3, 2, 0),
        "torch.DoubleStorage or nil, found Table",
    ),
    "a tensor on a storage of another type": (
        torch_object(1, b"torch.DoubleTensor")
        + ints(1)
        + longs(1, 1, 1)
        + torch_object(2, b"torch.ByteStorage")
        + longs(0),
        "a torch.DoubleStorage or nil",
    ),
    "a table that is referred to as an object": (
        ints(3, 1, 1, 2, 1) + b"x" + ints(4, 1),
        "reference to an object of its own",
    ),
    "a class name that is no text": (ints(4, 1) + text(b"V 1") + text(b"\xff\xfe"), "class name"),
    "bytes after the end": (ints(5, 1) + b"junk", "end of the file, found 4 more bytes"),
    "a vector of too many": (torch_object(1, b"tds.Vec") + longs(2**60 + 99), "number of elements of a tds.Vec"),
    "ascii that stops": (b"4\n1\n3\nV 1\n18\ntorch.FloatStorage\n4\n1 2 3", "4 elements of a torch.FloatStorage"),
    "ascii with words for numbers": (
        b"4\n1\n3\nV 1\n18\ntorch.FloatStorage\n2\n1 zwei\n",
        "which is no part of a number",
    ),
    "ascii with a letter for a type": (b"3\n1\n1\nx\n1\n1\n", "type number .*found 'x'"),
    "ascii with a huge count": (b"3\n1\n99999999999999999999999\n", "number of entries"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_with_what_was_expected_and_found(name: str) -> None:
    data, message = HOSTILE[name]
    with pytest.raises(FormatError, match=message) as caught:
        t7.loads(data)
    assert caught.value.offset is not None
    assert 0 <= caught.value.offset <= len(data)
    assert caught.value.expected
    assert caught.value.found


@pytest.mark.parametrize("long_size", [4, 8])
@pytest.mark.parametrize("value", [-1, 0, 2**31 - 1, 2**31, 2**61, 2**62, 2**63 - 1, 2**63, -(2**63), "its place"])
def test_each_size_stride_and_offset_may_be_any_number_and_is_read_or_refused_with_its_place(
    value: int | str, long_size: Literal[4, 8]
) -> None:
    storage = Storage.of("torch.FloatStorage", range(12))
    shapes: tuple[tuple[tuple[int, ...], tuple[int, ...], int], ...]
    shapes = ((3, 4), (4, 1), 0), ((1, 4, 1), (4, 2, 1), 2), ((4, 2), (0, 1), 5)
    views = [Tensor("torch.FloatTensor", size, stride, offset, storage) for size, stride, offset in shapes]
    whole = t7.dumps(Table.of(views), Layout(long_size=long_size))
    code = {4: "<i", 8: "<q"}[long_size]
    begins = [at + 17 + 4 for at in range(len(whole)) if whole.startswith(b"torch.FloatTensor", at)]
    for begin, view in zip(begins, views, strict=True):
        for number in range(2 * len(view.size) + 1):
            at = begin + number * long_size
            bits = 8 * long_size
            raw = (at if isinstance(value, str) else value) % (1 << bits)
            changed = bytearray(whole)
            changed[at : at + long_size] = struct.pack(code, raw - (raw >> bits - 1 << bits))
            try:
                root = t7.loads(bytes(changed), long_size=long_size)
            except FormatError as error:
                assert error.offset is not None
                assert at <= error.offset < len(whole)
                continue
            for tensor in root.array():
                assert tensor.numpy().shape == tensor.size
            assert not t7.compare(t7.clear(root), t7.loads(bytes(changed), long_size=long_size))
            t7.inspect(root)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 12, 40, 100, 1000])
def test_a_truncated_file_says_how_many_bytes_are_missing_or_what_is(count: int, tmp_path: Path) -> None:
    whole = (ROOT / "cases" / "Linear-1" / "before.t7").read_bytes()
    path = tmp_path / "cut.t7"
    path.write_bytes(whole[:-count] if count else whole[:17])
    with pytest.raises(FormatError, match=f"^{path}: at byte") as caught:
        t7.load(path)
    assert "found" in str(caught.value)


def test_a_cut_storage_names_its_class_its_size_and_what_is_missing() -> None:
    data = t7.dumps(Storage.of("torch.FloatStorage", range(1000)))
    with pytest.raises(
        FormatError, match=r"1000 elements of a torch.FloatStorage \(4000 bytes\).*\(500 bytes are missing\)"
    ):
        t7.loads(data[:-500])


def nest(depth: int, wrap: Callable[[bytes, int], bytes]) -> bytes:
    return b"".join(wrap(b"", i) for i in range(1, depth + 1)) + ints(0)


NESTS: dict[str, Callable[[], bytes]] = {
    "tables as values": lambda: b"".join(ints(3, i, 1, 2, 1) + b"k" for i in range(1, 100_001)) + ints(0),
    "objects": lambda: b"".join(ints(4, i) + text(b"A") for i in range(1, 100_001)) + ints(0),
    "functions": lambda: b"".join(ints(8, i, 0) for i in range(1, 100_001)) + ints(0),
    "vectors": lambda: b"".join(ints(4, i) + text(b"tds.Vec") + longs(1) for i in range(1, 100_001)) + ints(0),
    "tables as keys": lambda: b"".join(ints(3, i, 1) for i in range(1, 100_001)) + ints(5, 1) + ints(0) * 100_000,
}


@pytest.mark.parametrize("name", NESTS)
def test_deep_nests_are_read_cleared_inspected_and_written_without_recursion(name: str) -> None:
    data = NESTS[name]()
    root = t7.loads(data)
    assert t7.dumps(root) == data
    t7.inspect(t7.clear(root))
    assert t7.compare(root, t7.loads(data)) == []


def test_a_file_that_lies_about_sizes_costs_no_memory_beyond_its_own() -> None:
    script = (
        "import resource, sys\n"
        "from clearstate.formats import t7\n"
        "from clearstate.errors import FormatError\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "for data in map(bytes.fromhex, sys.argv[1:]):\n"
        "    try: t7.loads(data)\n"
        "    except FormatError: pass\n"
        "    else: raise SystemExit('read')\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    lies = [data.hex() for data, _ in HOSTILE.values()]
    done = subprocess.run([sys.executable, "-c", script, *lies], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 4096, "more than 4 MB for files of under a kilobyte"


SMALL = [path.read_bytes() for path in FORMATS if path.stat().st_size < 8000]


@given(st.sampled_from(SMALL), st.data())
@settings(max_examples=1500, deadline=None)
def test_a_mutated_file_is_read_or_refused_and_nothing_else(original: bytes, data: st.DataObject) -> None:
    mutated = bytearray(original)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(mutated) - 1))
        action = data.draw(st.sampled_from(["byte", "int", "cut", "insert", "copy"]))
        if action == "byte":
            mutated[at] = data.draw(st.integers(0, 255))
        elif action == "int":
            value = data.draw(st.sampled_from([-1, 0, 1, 2**31 - 1, -(2**31), 4, 3, 8, 10**6]))
            mutated[at : at + 4] = struct.pack("<i", value)
        elif action == "cut":
            del mutated[at : at + data.draw(st.integers(1, 16))]
        elif action == "insert":
            mutated[at:at] = data.draw(st.binary(max_size=8))
        else:
            start = data.draw(st.integers(0, len(original)))
            mutated[at : at + 16] = original[start : start + 16]
        if not mutated:
            return
    try:
        root = t7.loads(bytes(mutated))
    except FormatError as error:
        assert str(error)
        return
    try:
        t7.dumps(t7.clear(root))
        t7.inspect(root)
        t7.compare(root, root)
    except FormatError:
        assert mutated[:1].isdigit(), "only ascii numbers are parsed late"


@given(st.binary(max_size=200))
@settings(max_examples=500)
def test_any_bytes_are_read_or_refused_and_nothing_else(data: bytes) -> None:
    try:
        t7.loads(data)
    except FormatError as error:
        assert str(error)


def test_memory_of_the_process_is_known() -> None:
    """The limit above is in kilobytes, as Linux reports it."""
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss > 10_000


def test_an_error_without_a_place_still_reads_as_a_sentence() -> None:
    assert str(FormatError("a table", "a tensor")) == "expected a table, found a tensor"


def test_hostile_objects_that_look_like_modules_are_cleared_like_any() -> None:
    odd = Object("nn.Linear", Table(modules=3.0, output="text", gradInput=Object("nn.Linear", 7.0), weight=True))
    assert t7.clear(odd)["output"].typename == "torch.DoubleTensor"
    assert t7.dumps(t7.clear(t7.loads(t7.dumps(odd)))) == t7.dumps(odd)


def test_layouts_that_name_a_wrong_long_size_are_refused() -> None:
    data = t7.dumps(Tensor.of([1.0, 2.0]), Layout(long_size=4))
    with pytest.raises(FormatError):
        t7.loads(data, long_size=8)
    assert t7.loads(data, long_size=4).numpy().tolist() == [1, 2]


def test_elements_that_repeat_are_cleared_and_compared_without_being_written_out() -> None:
    many = (2**40, 2, 2**10)
    row = Storage.of("torch.DoubleStorage", [1, 2])
    fields = {name: Tensor("torch.DoubleTensor", many, (0, 1, 0), 0, row) for name in ("weight", "output", "other")}
    windows = Tensor("torch.DoubleTensor", (30,) * 8, (1,) * 8, 0, Storage.of("torch.DoubleStorage", range(300)))
    net = Object("nn.Linear", Table(**fields, windows=windows))
    again = t7.loads(t7.dumps(net))
    t7.inspect(net)
    assert t7.compare(net, again) == []
    assert t7.clear(again)["weight"].size == many
    again["weight"].storage = Storage.of("torch.DoubleStorage", [1, 5])
    assert [difference.path for difference in t7.compare(net, again)] == ["weight"]


def test_a_version_of_more_digits_than_python_reads_is_a_name() -> None:
    data = ints(4, 1) + text(b"V " + b"9" * 5000) + ints(0)
    assert t7.loads(data).version is None
    assert t7.dumps(t7.loads(data)) == data


def test_a_view_of_every_other_element_costs_less_than_twice_the_memory_of_the_file() -> None:
    storage = Storage.of("torch.ByteStorage", np.arange(4_000_000) % 200)
    net = Object("nn.Linear", Table(weight=Tensor("torch.ByteTensor", (2_000_000,), (2,), 0, storage)))
    tracemalloc.start()
    try:
        t7.inspect(net)
        t7.clear(net)
        assert tracemalloc.get_traced_memory()[1] < 8_000_000
    finally:
        tracemalloc.stop()
