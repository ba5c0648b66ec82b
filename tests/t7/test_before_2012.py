"""A file of the layout before 2012 is called what it is, by every command, and a broken one of today never is."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import clearstate as cs
from clearstate.cli import run
from clearstate.errors import FormatError, WrongFormat
from clearstate.formats import t7
from clearstate.formats.sniff import sniff_bytes
from clearstate.formats.t7 import Layout
from tests.recordings import RECORDED

MODES = ("ascii", "<", ">")


class Old:
    """Writes as the nn of August 2011 did: each class its fields in a row, its parents' first."""

    def __init__(self, mode: str) -> None:
        self.mode = mode
        self.data = b""
        self.count = 0

    def _put(self, code: str, values: tuple[float, ...]) -> None:
        if self.mode == "ascii":
            self.data += b" ".join(b"%g" % value for value in values) + b"\n"
        else:
            self.data += struct.pack(f"{self.mode}{len(values)}{code}", *values)

    def ints(self, *values: int) -> None:
        for value in values:
            self._put("i", (value,))

    def text(self, text: bytes) -> None:
        self.ints(len(text))
        self.data += text + (b"\n" if self.mode == "ascii" else b"")

    def table(self, entries: int) -> None:
        self.count += 1
        self.ints(3, self.count, entries)

    def torch(self, name: bytes) -> None:
        self.count += 1
        self.ints(4, self.count)
        self.text(b"V 1")
        self.text(name)

    def tensor(self, *values: float, of_torch_5: bool = False) -> None:
        self.torch(b"torch.Tensor" if of_torch_5 else b"torch.DoubleTensor")
        self.ints(1 if values else 0)
        if values:
            self._put("q", (len(values),))
            self._put("q", (1,))
        self._put("q", (1,))
        if of_torch_5:
            self.ints(1)
        if not values:
            self.ints(0)
            return
        self.torch(b"torch.Storage" if of_torch_5 else b"torch.DoubleStorage")
        self._put("q", (len(values),))
        self._put("d", values)

    def linear(self) -> None:
        self.torch(b"nn.Linear")
        self.tensor()
        self.tensor(1, 2)
        self._put("d", (0.0,))
        for values in ((1, 2), (3,), (0, 0), (0,)):
            self.tensor(*values)

    def modules(self, name: bytes, work: Callable[[], None]) -> None:
        self.torch(name)
        work()
        work()
        self.table(1)
        self.ints(1)
        self._put("d", (1,))
        self.linear()

    def net(self) -> None:
        self.modules(b"nn.Sequential", self.tensor)

    def net_of_tables(self) -> None:
        self.modules(b"nn.ConcatTable", lambda: self.table(0))

    def net_in_a_table(self) -> None:
        self.table(1)
        self.ints(2)
        self.text(b"net")
        self.net()

    def criterion(self) -> None:
        self.torch(b"nn.MSECriterion")
        self.tensor(1)
        self._put("d", (0.5,))
        self.ints(1)

    def net_after_its_count(self) -> None:
        self.ints(12)
        self.net()

    def tensor_of_torch_5(self) -> None:
        self.tensor(1, 2, 3, of_torch_5=True)

    def tensors_of_torch_5(self) -> None:
        self.table(1)
        self.ints(2)
        self.text(b"data")
        self.tensor_of_torch_5()


ROW = "is written in it as a row of fields without names"
OLD: list[tuple[Callable[[Old], None], str]] = [
    (Old.linear, f"a nn.Linear {ROW}"),
    (Old.net, f"a nn.Sequential {ROW}"),
    (Old.net_of_tables, f"a nn.ConcatTable {ROW}"),
    (Old.net_in_a_table, f"a nn.Sequential {ROW}"),
    (Old.criterion, f"a nn.MSECriterion {ROW}"),
    (Old.net_after_its_count, "a number of elements stands in it before their kind"),
    (Old.tensor_of_torch_5, "a torch.Tensor is written in it, which only Torch 5 had"),
    (Old.tensors_of_torch_5, "a torch.Tensor is written in it, which only Torch 5 had"),
]


@pytest.fixture(params=MODES)
def old(request: pytest.FixtureRequest) -> Old:
    return Old(request.param)


@pytest.mark.parametrize("made, what", OLD, ids=[made.__name__ for made, _ in OLD])
def test_a_file_of_before_2012_is_named_with_what_can_be_done(
    old: Old, made: Callable[[Old], None], what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made(old)
    path = tmp_path / "old.net"
    path.write_bytes(old.data)
    said = f"{path} is a Torch7 file of the layout before 2012: {what}. Only the Torch of its day reads it: "
    loads: list[Callable[..., Any]] = [t7.load, cs.load, cs.inspect, lambda p: cs.verify(p, p), cs.clear_file]
    for call in loads:
        with pytest.raises(WrongFormat) as error:
            call(path, tmp_path / "new.t7") if call is cs.clear_file else call(path)
        assert str(error.value).startswith(said), call
    name = str(path)
    for command in (["inspect"], ["clear", "-o", f"{path}.t7"], ["verify", name], ["convert", "-o", f"{path}.py"]):
        assert run([*command, name]) == 2, command
        assert said in capsys.readouterr().err, command


def test_a_broken_file_of_today_is_not_called_old() -> None:
    pick = random.Random(0)
    for path in pick.sample([path for path in RECORDED if path.parts[-3] == "cases"], 40):
        for layout in (Layout(), Layout("ascii"), Layout(long_size=4), Layout(byteorder="big")):
            whole = t7.dumps(t7.load(path), layout)
            at = pick.randrange(1, len(whole))
            for data in (whole[:at], whole + whole[:at], whole[:at] + b"\x03" + whole[at + 1 :]):
                assert sniff_bytes(data).name != "t7-before-2012"
                try:
                    t7.loads(data)
                except FormatError as error:
                    assert not isinstance(error, WrongFormat), (path, layout, at)


def test_lua_that_names_a_tensor_is_no_file_of_torch_5() -> None:
    assert sniff_bytes(b"x = torch.Tensor(3)\n").name != "t7-before-2012"
