"""What a user of the format relies on: every variant is read, and written back byte for byte."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearstate.errors import FormatError
from clearstate.formats import t7
from clearstate.formats.t7 import Boolean, Function, Layout, Object, Storage, Table, Tensor
from clearstate.roles import Role
from tests.recordings import FORMATS, PUBLIC, RECORDED, ROOT, paths
from tests.t7.graphs import LAYOUTS, graphs

TORCH7_FILE = {".t7", ".net", ".arm", ".asc", ".txt"}


def same(a: Any, b: Any) -> None:
    """Fails where two graphs are not alike in every value, bit, order and sharing."""
    assert t7.dumps(a) == t7.dumps(b)


@pytest.mark.parametrize("path", paths(RECORDED))
def test_a_recorded_file_is_written_back_byte_for_byte(path: Path) -> None:
    file = t7.open_file(path)
    assert t7.dumps(file.root, file.layout) == path.read_bytes()
    assert t7.written_size(file.root, file.layout) == file.size


@pytest.mark.parametrize("path", paths(p for p in PUBLIC if p.suffix in TORCH7_FILE))
def test_a_file_from_the_wild_is_written_back_byte_for_byte(path: Path) -> None:
    if "deepmask" in str(path):
        with pytest.raises(FormatError, match=r"526337 elements of a torch.CudaStorage .* bytes are missing"):
            t7.load(path)
        return
    file = t7.open_file(path)
    assert t7.dumps(file.root, file.layout) == path.read_bytes()


def six_digits(data: bytes) -> bytes:
    """An ascii file as Torch7 wrote it until April 2014, with C's ``%g``, of one that was written today."""
    number = re.compile(rb"(?<![\w.])-?[0-9]+(?:\.[0-9]+)?(?:e[+-][0-9]+)?(?![\w.])")
    return number.sub(lambda m: b"%g" % float(m[0]) if b"." in m[0] or b"e" in m[0] else m[0], data)


PLAIN = [b"0.00669029", b"1e-06", b"1e+06", b"0.1", b"nan", b"-nan", b"inf", b"-inf", b"-0", b"3", b"4.94066e-324"]
PLAIN += [b"0.10000000000000001", b"1e-006", b"NaN", b"Infinity", b"1.50000", b"+7", b"0.%s1" % (b"0" * 60)]
"""Numbers as one or another Torch7 on one or another machine wrote them."""


def test_the_text_of_numbers_is_written_back_wherever_they_are() -> None:
    many = b" ".join(PLAIN)
    for element in (b"Float", b"Double"):
        storage = b"4\n2\n3\nV 1\n%d\ntorch.%sStorage\n%d\n%s\n" % (len(element) + 13, element, len(PLAIN), many)
        entries = b"".join(b"2\n2\nk%c\n1\n%s\n" % (97 + i, word) for i, word in enumerate(PLAIN))
        keys = b"1\n1e+06\n1\n0.00669029\n1\n0.5\n" + storage
        data = b"3\n1\n%d\n" % (len(PLAIN) + 2) + entries + keys
        root = t7.loads(data)
        assert t7.dumps(root, Layout("ascii")) == data
        assert root[1e6] == 0.00669029
        assert math.copysign(1, root["ki"]) < 0
        assert type(root["ka"] * 2) is float
        assert t7.dumps(root) == t7.dumps(t7.loads(t7.dumps(root))), "binary has no text"


@pytest.mark.parametrize("path", paths(p for p in RECORDED if p.stat().st_size < 200_000 and "formats" not in p.parts))
def test_a_file_of_six_digits_is_written_back_byte_for_byte(path: Path) -> None:
    data = six_digits(t7.dumps(t7.load(path), Layout("ascii")))
    root = t7.loads(data)
    assert t7.dumps(root, Layout("ascii")) == data


def test_what_was_changed_in_a_file_of_six_digits_is_written_whole_and_the_rest_as_it_was() -> None:
    old = Table(rate=1e-6, decay=0.00669029, weight=Tensor.of(np.array([0.25, 1 / 3, 2e-7])))
    data = six_digits(t7.dumps(old, Layout("ascii")))
    root = t7.loads(data)
    root["rate"] = 1 / 3
    written = t7.dumps(root, Layout("ascii"))
    assert written == data.replace(b"\n1e-06\n", b"\n0.33333333333333331\n")
    assert b"\n0.25 0.333333 2e-07\n" in written


def test_what_is_left_of_a_storage_of_six_digits_keeps_its_text() -> None:
    whole = Storage.of("torch.FloatStorage", [0.1, 1e-6, 1 / 3, 4])
    data = six_digits(t7.dumps(Tensor("torch.FloatTensor", (2,), (1,), 1, whole), Layout("ascii")))
    root = t7.clear(t7.loads(data), {Role.SLACK})
    assert t7.dumps(root, Layout("ascii")).endswith(b"\n2\n1e-06 0.333333\n")


def test_all_variants_of_one_object_hold_the_same() -> None:
    files = {path.name: t7.open_file(path) for path in FORMATS if path.name.startswith("sequential")}
    assert {str(file.layout) for file in files.values()} == {
        "binary, 8-byte long",
        "binary, 4-byte long",
        "binary, 8-byte long, big-endian",
        "binary, 4-byte long, big-endian",
        "ascii",
    }
    first = files["sequential.t7"].root
    for name, file in files.items():
        if "unreferenced" not in name:
            assert t7.compare(first, file.root) == [], name


def test_the_two_recordings_of_every_kind_of_value_agree() -> None:
    binary, ascii_ = (t7.load(ROOT / "formats" / name) for name in ("everything.t7", "everything.ascii.t7"))
    only_binary = [(str(d), str(d.role)) for d in t7.compare(binary, ascii_)]
    assert only_binary == [("[19]: missing in the second", "code")]
    assert math.isnan(ascii_[20])
    assert math.copysign(1, ascii_[20]) < 0
    assert [ascii_[21], ascii_[22]] == [math.inf, -math.inf]


@given(graphs(), LAYOUTS)
@settings(max_examples=400)
def test_whatever_is_written_is_read_back_the_same(graph: Any, layout: Layout) -> None:
    data = t7.dumps(graph, layout)
    source = t7.loads(data, long_size=layout.long_size)
    if layout.mode == "binary":
        same(graph, source)
    assert t7.dumps(source, layout) == data


@given(graphs(), LAYOUTS)
@settings(max_examples=200)
def test_the_variant_is_found_out_from_the_file(graph: Any, layout: Layout) -> None:
    data = t7.dumps(graph, layout)
    again = t7.loads(data)
    assert t7.dumps(again, layout) == data


@given(graphs(cyclic=False))
def test_an_unreferenced_file_holds_every_reference_as_a_copy(graph: Any) -> None:
    data = t7.dumps(graph, Layout(referenced=False))
    again = t7.loads(data)
    assert t7.dumps(again) == data


def test_an_unreferenced_file_of_a_cycle_is_refused() -> None:
    table = Table()
    table["self"] = table
    with pytest.raises(ValueError, match="contains itself"):
        t7.dumps(table, Layout(referenced=False))


def test_sharing_in_the_file_is_sharing_in_memory() -> None:
    storage = Storage.of("torch.FloatStorage", range(6))
    a, b = Tensor("torch.FloatTensor", [2], [1], 0, storage), Tensor("torch.FloatTensor", [2, 2], [2, 1], 1, storage)
    table = Table({"a": a, "again": a, "b": b})
    back = t7.loads(t7.dumps(table))
    assert back["a"] is back["again"]
    assert back["a"].storage is back["b"].storage
    assert np.shares_memory(back["a"].numpy(), back["b"].numpy())
    assert back["b"].numpy().tolist() == [[1, 2], [3, 4]]


def test_tables_are_keys_and_cycles_are_cycles() -> None:
    key = Table(name="key")
    table = Table({key: "found", Boolean.TRUE: "true", 1.0: "one"})
    table["me"] = Object("my.Class", table)
    back = t7.loads(t7.dumps(table))
    (object_key,) = (k for k in back if isinstance(k, Table))
    assert back[object_key] == "found"
    assert object_key["name"] == "key"
    assert back[Boolean.TRUE] == "true"
    assert back[1] == "one"
    assert back["me"].state is back


def test_strings_that_are_no_text_stay_bytes() -> None:
    assert t7.loads(t7.dumps("é")) == "é"
    assert t7.loads(t7.dumps(b"\xff\x00")) == b"\xff\x00"
    assert t7.loads(t7.dumps("x" * 10_000)) == "x" * 10_000


def test_files_older_than_class_versions_are_read_and_written_as_they_are() -> None:
    old = Object("nn.Linear", Table(weight=Tensor.of([1.0])), version=None)
    data = t7.dumps(old)
    assert b"V 1\x09" not in data.split(b"weight")[0]
    assert t7.loads(data).version is None


@pytest.mark.parametrize("kind", [6, 7, 8])
def test_functions_of_all_three_kinds_keep_bytecode_and_upvalues(kind: int) -> None:
    function = Function(b"\x1bLJ\x02bytecode", Table.of([Table(name="x", value=1.0)]), kind=kind)
    back = t7.loads(t7.dumps(Table.of([function, function])))
    assert (back[1].kind, back[1].bytecode) == (kind, function.bytecode)
    assert back[1].upvalues[1]["value"] == 1
    assert (back[1] is back[2]) is (kind != 6)


def test_a_generator_of_a_4_byte_machine_and_one_in_a_4_byte_file_are_told_apart() -> None:
    after = Table.of([Tensor.of(np.arange(3.0))])
    plausible = np.zeros(5048 // 4, "<i4")
    plausible[2:4] = 1, 1
    for state in (plausible.tobytes(), bytes(range(1, 201)) * 12 + bytes(144)):
        data = t7.dumps(Table.of([Object("torch.Generator", state), after]), Layout(long_size=4))
        assert t7.loads(data)[1].state == state


@pytest.mark.parametrize("mode", ["binary", "ascii"])
def test_a_timer_holds_nothing_and_what_follows_it_is_not_taken_for_its_state(mode: Any) -> None:
    data = t7.dumps(Table.of([Object("torch.Timer", b""), "after", Object("torch.Timer")]), Layout(mode))
    back = t7.loads(data)
    assert [back[1].typename, back[2], back[3].state] == ["torch.Timer", "after", b""]
    assert data.count(b"after") == 1
    assert t7.dumps(back, Layout(mode)) == data


def test_cuda_tensors_are_read_as_what_they_hold() -> None:
    for name, dtype in (
        ("CudaTensor", "f4"),
        ("CudaHalfTensor", "f2"),
        ("CudaLongTensor", "i8"),
        ("CudaByteTensor", "u1"),
    ):
        tensor = Tensor.of(np.array([1, 2], dtype), f"torch.{name}")
        back = t7.loads(t7.dumps(tensor))
        assert back.typename == f"torch.{name}"
        assert back.storage.typename == f"torch.{name[:-6]}Storage"
        assert back.numpy().dtype == np.dtype(dtype)
        assert back.numpy().tolist() == [1, 2]


def test_numbers_that_do_not_fit_the_variant_are_refused() -> None:
    with pytest.raises(ValueError, match="do not fit a 4-byte long"):
        t7.dumps(Storage.of("torch.LongStorage", [2**40]), Layout(long_size=4))


def test_values_that_torch7_has_no_type_for_are_named() -> None:
    with pytest.raises(TypeError, match=r"no type for builtins\.set"):
        t7.dumps(Table(x=set()))


def test_opening_reads_no_tensor_data_and_numpy_sees_the_file(tmp_path: Path) -> None:
    path = tmp_path / "x.t7"
    t7.save(Tensor.of(np.arange(50_000.0)), path)
    view = t7.load(path).numpy()
    assert not view.flags.owndata
    assert not view.flags.writeable
    assert view[-1] == 49_999


@given(st.lists(st.floats(allow_nan=False), min_size=20, max_size=60), st.integers(0, 59), st.text())
def test_long_lists_of_numbers_survive_whatever_stands_between_them(numbers: list[float], at: int, word: str) -> None:
    values: list[Any] = [*numbers[:at], word, *numbers[at:]]
    assert t7.loads(t7.dumps(Table.of(values))).array() == values


@given(
    st.lists(st.text(max_size=9) | st.binary(max_size=4), min_size=20, max_size=40), st.integers(0, 39), st.booleans()
)
def test_long_lists_of_words_survive_whatever_stands_between_them(words: list[Any], at: int, numbered: bool) -> None:
    values = list(enumerate(words)) if numbered else [(f"{word!r} {i}", i / 7) for i, word in enumerate(words)]
    inner = Table(values)
    mixed = Table([*values[:at], (Boolean.TRUE, inner), (b"\xff", 1.0), *values[at:], ("last", "word"), ("end", None)])
    data = t7.dumps(mixed)
    assert t7.dumps(t7.loads(data)) == data
    for cut in range(0, len(data), 11):
        with pytest.raises(FormatError):
            t7.loads(data[:cut], long_size=8)
