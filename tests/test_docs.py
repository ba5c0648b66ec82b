"""What the documents say is true: dumps are what is written, examples do what they show, tables agree with the code."""

from __future__ import annotations

import doctest
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from clearstate.formats import t7
from clearstate.formats.t7 import layout
from clearstate.formats.t7.objects import ELEMENT, HEADED, PAYLOADS, element_type
from clearstate.formats.t7.reader import GENERATOR_BYTES
from tests.recordings import EXAMPLES, RECORDED, REPO

DOCUMENTS = [REPO / "README.md", *sorted((REPO / "docs").glob("*.md"))]
FORMAT = REPO / "docs" / "t7-format.md"
_FENCED = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(path: Path, *languages: str) -> Iterator[tuple[int, str]]:
    """Line and text of a document's fenced blocks in these languages."""
    text = path.read_text(encoding="utf-8")
    for match in _FENCED.finditer(text):
        if match[1] in languages:
            yield text.count("\n", 0, match.start(2)), match[2]


def rows(path: Path, heading: str) -> list[list[str]]:
    """Cells of the table whose first column has this heading, back quotes taken off."""
    lines = iter(path.read_text(encoding="utf-8").splitlines())
    for line in lines:
        if line.startswith(f"| {heading} |"):
            next(lines)
            break
    found = []
    for line in lines:
        if not line.startswith("|"):
            break
        found.append([cell.strip().replace("`", "") for cell in line.strip("|").split("|")])
    assert found, f"{path.name} has no table of {heading}"
    return found


def example() -> t7.Table:
    """The value that the format's worked example says it is."""
    tensor = t7.Tensor.of(np.array([0.5, -2], "f4"))
    return t7.Table({"x": tensor, 1: tensor})


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_the_examples_of_a_document_do_what_they_show(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(EXAMPLES / "digits.t7", tmp_path / "model.t7")
    shutil.copy(EXAMPLES / "digits.t7", tmp_path / "old.t7")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    wrong: list[str] = []
    for line, code in blocks(path, "python", "pycon"):
        if ">>>" in code:
            test = doctest.DocTestParser().get_doctest(code, names, path.name, str(path), line)
            runner.run(test, out=wrong.append, clear_globs=False)
            names = test.globs
        else:
            exec(compile("\n" * line + code, str(path), "exec"), names)
    assert not wrong, "".join(wrong)


def test_the_hex_dump_is_what_is_written_and_what_is_read() -> None:
    ((_, dump),) = blocks(FORMAT, "hexdump")
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
    ((_, text),) = blocks(FORMAT, "ascii")
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
