"""TorchScript programs: inspected, compared, and written again as programs that give the same numbers."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Optional

import numpy as np
import pytest
import safetensors.torch
import torch

import clearstate as cs
from clearstate.errors import FormatError
from clearstate.formats import pt
from clearstate.formats.data import Held
from tests.cli.conftest import Command

pytestmark = pytest.mark.filterwarnings("ignore")

load: Any = torch.jit.load
trace: Any = torch.jit.trace

X = torch.arange(12.0).reshape(3, 4) / 7


def net() -> torch.nn.Module:
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.ReLU()).eval()


class Attributes(torch.nn.Module):
    """A module with attributes of every type that a program has."""

    mask: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        whole = torch.arange(1000.0)
        self.weight = torch.nn.Parameter(whole[:4])
        self.tied = self.weight
        self.many = [torch.ones(4), whole[4:8]]
        self.named = {"a": torch.full((4,), 2.0)}
        self.pair = (3, torch.ones(4, dtype=torch.int64))
        self.perhaps: torch.Tensor | None = None
        self.numbers = [1, 2, 3]
        self.rate = 0.5
        self.name = "x"
        self.register_buffer("mask", torch.tensor([True, False, True, False]), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = self.rate * self.numbers[0] if self.name == "x" else 0.0
        if self.perhaps is None:
            x = x + self.tied + self.named["a"] + self.pair[1] + self.pair[0]
        return scale * x * self.weight * self.mask + self.many[0] + self.many[1] + torch.tensor([1.0, 2.0, 3.0, 4.0])


Attributes.__annotations__ = {  # as types: the compiler does not read those that are texts
    "many": list[torch.Tensor],
    "named": dict[str, torch.Tensor],
    "pair": tuple[int, torch.Tensor],
    "perhaps": Optional[torch.Tensor],  # noqa: UP045
}


class Constant(torch.nn.Module):
    """A module whose weights are constants of its code once it is frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(4, 300)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = self.inner(x).sum(1)
        return made


def saved(program: Any, **how: Any) -> bytes:
    out = io.BytesIO()
    torch.jit.save(program, out, **how)
    return out.getvalue()


PROGRAMS: dict[str, Callable[[], bytes]] = {
    "one layer": lambda: saved(torch.jit.script(torch.nn.Linear(4, 2))),
    "scripted": lambda: saved(torch.jit.script(net())),
    "traced": lambda: saved(trace(net(), X)),
    "frozen": lambda: saved(torch.jit.freeze(torch.jit.script(Constant().eval()))),
    "attributes": lambda: saved(torch.jit.script(Attributes())),
    "extra files": lambda: saved(torch.jit.script(net()), _extra_files={"labels.txt": "cat\ndog\n"}),
    "packed weights": lambda: saved(
        torch.jit.script(torch.ao.quantization.quantize_dynamic(net(), {torch.nn.Linear}))  # type: ignore[no-untyped-call]
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_is_inspected_cleared_and_gives_the_same_numbers(name: str, command: Command, here: Path) -> None:
    Path("old.pt").write_bytes(PROGRAMS[name]())
    shown = command("inspect", "old.pt")
    assert (shown.code, shown.err) == (0, "")
    assert "PyTorch program (TorchScript)" in shown.out
    assert "its code and constants" in shown.out
    assert "weights_only" not in shown.out
    assert command("clear", "old.pt", "-o", "new.pt").code == 0
    assert "Same model" in command("verify", "old.pt", "new.pt").out
    old, new = load("old.pt"), load("new.pt")
    assert torch.equal(old(X), new(X))
    assert old.code == new.code
    assert [tuple(p.shape) for p in old.parameters()] == [tuple(p.shape) for p in new.parameters()]
    assert old.state_dict().keys() == new.state_dict().keys()
    assert Path("new.pt").stat().st_size <= Path("old.pt").stat().st_size
    assert zipfile.ZipFile("new.pt").testzip() is None
    extra: dict[str, Any] = {"labels.txt": ""} if name == "extra files" else {}
    load("new.pt", _extra_files=extra)
    assert all(text == b"cat\ndog\n" for text in extra.values())


def test_bytes_that_no_tensor_of_a_program_sees_go(tmp_path: Path) -> None:
    (tmp_path / "old.pt").write_bytes(PROGRAMS["attributes"]())
    assert cs.inspect(tmp_path / "old.pt").by_role()[cs.Role.SLACK] == 4 * 992
    assert cs.clear_file(tmp_path / "old.pt", tmp_path / "new.pt").freed > 3900
    made = load(tmp_path / "new.pt")
    assert made.weight.data_ptr() == made.tied.data_ptr()


def test_a_programs_tensors_go_by_their_names_with_parameters_told_from_buffers(command: Command, here: Path) -> None:
    Path("old.pt").write_bytes(PROGRAMS["scripted"]())
    roles = {entry.path: str(entry.role) for entry in cs.inspect("old.pt").entries if entry.shape is not None}
    state = net().state_dict()
    assert {name: roles[name] for name in state} == {
        name: "buffer" if name.split(".")[1] in ("running_mean", "running_var", "num_batches_tracked") else "parameter"
        for name in state
    }
    done = command("clear", "old.pt", "-o", "new.safetensors")
    assert "the module's structure is not in the new file" in " ".join(done.out.split())
    made = safetensors.torch.load_file("new.safetensors")
    assert made.keys() == state.keys()
    assert all(torch.equal(made[name], state[name]) for name in state)
    assert command("verify", "old.pt", "new.safetensors").code == 0


def test_programs_with_the_same_weights_and_another_code_are_not_the_same(command: Command, here: Path) -> None:
    Path("a.pt").write_bytes(saved(trace(net(), X)))
    with zipfile.ZipFile("a.pt") as old, zipfile.ZipFile("b.pt", "w") as new:
        for info in old.infolist():
            text = old.read(info)
            if info.filename.endswith("activation.py") or "activation" in info.filename:
                text = text.replace(b"relu", b"tanh")
            new.writestr(info.filename, text, info.compress_type)
    done = command("verify", "a.pt", "b.pt")
    assert done.code == 1
    assert "another text in one than in the other" in done.out
    assert "1 difference" in done.out


@pytest.mark.parametrize("words", [["--plain"], ["--unwrap"], ["--use", "ema"], ["--drop", "*.bias"]], ids=str)
def test_what_would_break_a_programs_code_is_refused(words: list[str], command: Command, here: Path) -> None:
    Path("old.pt").write_bytes(PROGRAMS["scripted"]())
    said = command("clear", "old.pt", "-o", "new.pt", *words).refused()
    assert said.startswith("old.pt is a TorchScript program, whose code asks for each name in it")
    assert not Path("new.pt").exists()


def test_a_program_keeps_running_in_another_type(tmp_path: Path) -> None:
    (tmp_path / "old.pt").write_bytes(PROGRAMS["one layer"]())
    cs.clear_file(tmp_path / "old.pt", tmp_path / "new.pt", dtype="bfloat16")
    made = load(tmp_path / "new.pt")
    assert made(X.bfloat16()).dtype is torch.bfloat16


def lying(full: int | None = None, crc: int | None = None, text: bytes = b"x = 1\n") -> bytes:
    """A program with a deflated member of which the archive says something else than it is."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(PROGRAMS["one layer"]())) as old, zipfile.ZipFile(out, "w") as new:
        for info in old.infolist():
            new.writestr(info.filename, old.read(info), info.compress_type)
        new.writestr(f"{old.namelist()[0].partition('/')[0]}/code/more.py", text, zipfile.ZIP_DEFLATED)
    data = bytearray(out.getvalue())
    at = data.rindex(b"PK\x01\x02")
    if crc is not None:
        data[at + 16 : at + 20] = crc.to_bytes(4, "little")
    if full is not None:
        data[at + 24 : at + 28] = full.to_bytes(4, "little")
    return bytes(data)


def test_code_that_would_unpack_to_gigabytes_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    (tmp_path / "x.pt").write_bytes(lying(full=1 << 30))
    with pytest.raises(FormatError, match=r"at most \d+ bytes in the deflated member"):
        pt.open_zip(str(tmp_path / "x.pt"))


@pytest.mark.parametrize("lie", [{"full": 3}, {"crc": 5}, {"full": 1000}], ids=str)
def test_code_that_is_not_what_the_archive_says_is_refused_when_it_is_compared(
    lie: dict[str, Any], command: Command, here: Path
) -> None:
    Path("a.pt").write_bytes(lying(**lie))
    assert command("inspect", "a.pt").code == 0
    told, whole = pt.open_zip("a.pt"), pt.open_zip("a.pt")
    whole.records = {**whole.records, "code/more.py": Held(np.frombuffer(b"x = 1\n", "u1"))}
    with pytest.raises(FormatError, match=r"code/more.py: expected \d+ bytes in a deflated member"):
        pt.compare(told, whole)
