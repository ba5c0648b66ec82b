"""What the specification of the format says is true: dumps are what is written, tables agree with the code."""

from __future__ import annotations

import re

import numpy as np

from clearstate.formats import t7
from clearstate.formats.t7.codec import layout
from clearstate.formats.t7.codec.objects import ELEMENT, HEADED, PAYLOADS, element_type
from clearstate.formats.t7.codec.reader import GENERATOR_BYTES
from tests.docs.pages import DOCS, blocks, rows
from tests.recordings import RECORDED

FORMAT = DOCS / "t7-format.md"


def example() -> t7.Table:
    """The value that the format's worked example says it is."""
    tensor = t7.Tensor.of(np.array([0.5, -2], "f4"))
    return t7.Table({"x": tensor, 1: tensor})


def test_the_hex_dump_is_what_is_written_and_what_is_read() -> None:
    ((_, _, dump),) = blocks(FORMAT, "hexdump")
    data = b""
    for line in dump.splitlines():
        offset, spelled = line[:4], re.match(r"(?: [0-9a-f]{2})+", line[5:])
        assert int(offset, 16) == len(data), line
        assert spelled is not None, line
        data += bytes.fromhex(spelled[0])
    assert data == t7.dumps(example())
    back = t7.loads(data)
    assert list(back) == ["x", 1.0]
    assert back["x"] is back[1]
    assert back["x"].numpy().tolist() == [0.5, -2]


def test_the_ascii_example_is_what_is_written_and_what_is_read() -> None:
    ((_, _, text),) = blocks(FORMAT, "ascii")
    assert text.encode() == t7.dumps(example(), t7.Layout("ascii"))
    assert t7.loads(text.encode())["x"].numpy().tolist() == [0.5, -2]


def test_the_type_numbers_are_those_of_the_code() -> None:
    said = {int(number): value for number, value, _ in rows(FORMAT, "number")}
    assert list(said) == list(range(9))
    code = [layout.KIND_NAMES[number].removeprefix("a ") for number in said]
    assert [value.split(",")[0] for value in said.values()] == code


def test_the_element_types_are_those_of_the_code() -> None:
    said = rows(FORMAT, "element")
    assert {name: code for name, _, _, code in said} == ELEMENT
    for name, classes, size, code in said:
        assert classes == f"torch.{name}Tensor, torch.{name}Storage"
        assert np.dtype(code).itemsize == int(size.split()[0])
    for name in set(re.findall(r"torch\.Cuda\w*(?:Tensor|Storage)", FORMAT.read_text(encoding="utf-8"))):
        assert element_type(name).itemsize, name


def test_the_classes_that_write_something_else_are_those_of_the_code() -> None:
    said = {name: contents for names, contents in rows(FORMAT, "class") for name in names.split(", ")}
    assert set(said) == PAYLOADS | set(HEADED)
    assert f"from version {HEADED['nn.DataParallelTable']}" in said["nn.DataParallelTable"]
    text = FORMAT.read_text(encoding="utf-8")
    assert f"{GENERATOR_BYTES[8]} bytes where a long has 8, {GENERATOR_BYTES[4]} where it has 4" in text


def test_the_first_bytes_tell_the_variant_as_the_document_says() -> None:
    for path in RECORDED:
        head = path.read_bytes()[:4]
        written = t7.open_file(path).layout
        if re.match(rb"\s*[0-8]\s", head):
            assert written.mode == "ascii", path
        elif re.match(rb"[\0-\x08]\0\0\0", head):
            assert (written.mode, written.byteorder) == ("binary", "little"), path
        else:
            assert re.match(rb"\0\0\0[\x01-\x08]", head), path
            assert (written.mode, written.byteorder) == ("binary", "big"), path
