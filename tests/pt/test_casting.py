"""``--dtype``: the numbers that PyTorch's own ``to`` gives, bit for bit; what is no floating parameter stays."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

import clearstate as cs
from clearstate.formats.changes import DType

from .programs import PROGRAMS, training
from .samples import sharing
from .test_programs import equal, read

SOURCES = {torch.float64: "f8", torch.float32: "f4", torch.float16: "f2", torch.bfloat16: "u2"}
TARGETS: tuple[DType, ...] = ("float16", "bfloat16", "float32")
PAIRS = [(source, target) for source in SOURCES for target in TARGETS if source is not getattr(torch, target)]


def bits(tensor: torch.Tensor) -> list[int]:
    raw: list[int] = tensor.contiguous().view(torch.int16 if tensor.itemsize == 2 else torch.int32).tolist()
    return raw


def cast(numbers: torch.Tensor, dtype: DType) -> torch.Tensor:
    with tempfile.TemporaryDirectory() as folder:
        old, new = os.path.join(folder, "old.pt"), os.path.join(folder, "new.pt")
        torch.save({"w": numbers}, old)
        cs.clear_file(old, new, dtype=dtype)
        made: torch.Tensor = torch.load(new)["w"]
        return made


def all_of(source: torch.dtype) -> torch.Tensor:
    """All numbers of 16 bits; of the wider types those, and numbers beside the middle between two of them."""
    halves = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    if source.itemsize == 2:
        return halves.view(source)
    wide = torch.cat([halves.view(torch.float16).to(source), halves.view(torch.bfloat16).to(source)])
    if source is torch.float64:
        return torch.cat([wide, wide * (1 + 2**-12), wide * (1 + 2**-9), wide * (1 + 2**-12 + 2**-40)])
    return torch.cat([wide, wide * (1 + 2**-12), wide * (1 + 2**-9), wide * (1 + 2**-12 + 2**-22)])


def fits(numbers: torch.Tensor, target: torch.dtype) -> torch.Tensor:
    return numbers[~(torch.isfinite(numbers) & ~torch.isfinite(numbers.to(target)))]


def agree(made: torch.Tensor, expected: torch.Tensor) -> None:
    """Bit for bit; a number that is none stays none, whatever its bits, which PyTorch itself does not promise."""
    assert made.dtype == expected.dtype
    none = torch.isnan(expected)
    assert torch.equal(torch.isnan(made), none)
    assert bits(made[~none]) == bits(expected[~none])


@pytest.mark.parametrize("source, target", PAIRS, ids=str)
def test_every_number_becomes_what_torch_makes_of_it(source: torch.dtype, target: DType) -> None:
    numbers = fits(all_of(source), getattr(torch, target))
    agree(cast(numbers, target), numbers.to(getattr(torch, target)))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(PAIRS), st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=40))
@example((torch.float64, "float16"), [0x3F10008000000001, 0x3FF0020000000001, 0x3F0FFFFFFFFFFFFF])
@example((torch.float64, "bfloat16"), [0x3FF0100000000001, 0x3FF00FFFFFFFFFFF, 0x0000000000000001])
def test_any_number_becomes_what_torch_makes_of_it(pair: tuple[torch.dtype, DType], raw: list[int]) -> None:
    source, target = pair
    bytes_ = np.array(raw, "u8").astype(f"u{source.itemsize}")
    numbers = fits(torch.from_numpy(bytes_.view(f"i{source.itemsize}")).view(source), getattr(torch, target))
    agree(cast(numbers, target), numbers.to(getattr(torch, target)))


@pytest.mark.parametrize(
    "number, target",
    [(65520.0, "float16"), (-1e5, "float16"), (3.4e38, "float16"), (3.4028235e38, "bfloat16"), (1e39, "float32")],
)
def test_a_number_that_is_too_large_is_named_and_nothing_is_written(
    number: float, target: DType, tmp_path: Path
) -> None:
    torch.save({"a.b": torch.ones(3), "a.w": torch.tensor([1, number, 2], dtype=torch.float64)}, tmp_path / "old.pt")
    for name in ("new.pt", "new.safetensors"):
        with pytest.raises(cs.ClearstateError, match=f"a.w: a number is too large for {target}"):
            cs.clear_file(tmp_path / "old.pt", tmp_path / name, dtype=target)
    assert os.listdir(tmp_path) == ["old.pt"]


def test_the_largest_that_fits_fits() -> None:
    assert cast(torch.tensor([65519.99, float("inf")]), "float16").tolist() == [65504.0, float("inf")]


@pytest.mark.parametrize("target", TARGETS)
def test_running_statistics_and_integers_keep_their_types(target: DType, tmp_path: Path) -> None:
    net = training().net.double()
    torch.save(net.state_dict(), tmp_path / "old.pt")
    report = cs.clear_file(tmp_path / "old.pt", tmp_path / "new.pt", dtype=target)
    before, after = read(tmp_path / "old.pt"), read(tmp_path / "new.pt")
    for name, tensor in before.items():
        kept = name.rpartition(".")[2] in ("running_mean", "running_var", "num_batches_tracked")
        equal(tensor if kept else tensor.to(getattr(torch, target)), after[name], name)
    assert sharing(before) == sharing(after), "ties stay ties"
    assert report.after.size < report.before.size
    assert any(f"parameters were cast to {target}" in text for text in report.done)


def test_of_a_module_all_buffers_keep_their_types_and_parameters_are_parameters(tmp_path: Path) -> None:
    net = training().net
    torch.save(net, tmp_path / "old.pt")
    cs.clear_file(tmp_path / "old.pt", tmp_path / "new.pt", dtype="bfloat16")
    made = read(tmp_path / "new.pt")
    assert made.first.weight is made.tied.weight
    assert isinstance(made.first.weight, torch.nn.Parameter)
    assert made.first.weight.requires_grad
    for name, parameter in net.named_parameters():
        equal(parameter.data.bfloat16(), dict(made.named_parameters())[name].data)
    equal(dict(net.named_buffers()), dict(made.named_buffers()))


def test_views_and_their_overlap_are_cast_together(tmp_path: Path) -> None:
    whole = torch.linspace(-3, 3, 1000)
    value = {"a": whole[10:20], "b": whole[15:30], "t": whole[100:106].view(2, 3).t(), "n": whole[7]}
    torch.save(value, tmp_path / "old.pt")
    cs.clear_file(tmp_path / "old.pt", tmp_path / "new.pt", dtype="float16")
    made = read(tmp_path / "new.pt")
    for name, tensor in value.items():
        equal(tensor.half(), made[name], name)
    assert made["b"].data_ptr() - made["a"].data_ptr() == 10
    cs.clear_file(tmp_path / "old.pt", tmp_path / "whole.pt", dtype="float16", keep=["slack"])
    equal({name: tensor.half() for name, tensor in value.items()}, read(tmp_path / "whole.pt"))


def test_the_optimizer_that_stays_and_the_averaged_copy(tmp_path: Path) -> None:
    torch.save(PROGRAMS["timm"].save(training()), tmp_path / "old.pt")
    cs.clear_file(tmp_path / "old.pt", tmp_path / "new.pt", dtype="float16", keep=["optimizer"])
    before, after = read(tmp_path / "old.pt"), read(tmp_path / "new.pt")
    equal(before["optimizer"], after["optimizer"])
    assert after["state_dict"]["first.weight"].dtype is torch.float16
    assert after["state_dict_ema"]["first.weight"].dtype is torch.float16


@pytest.mark.parametrize("name", ["new.safetensors", "new.pt"])
def test_casting_goes_into_every_format_and_is_the_same_model_there(name: str, tmp_path: Path) -> None:
    torch.save(training().net.state_dict(), tmp_path / "old.pt")
    cs.clear_file(tmp_path / "old.pt", tmp_path / "half.pt", dtype="float16")
    cs.clear_file(tmp_path / "old.pt", tmp_path / name, dtype="float16")
    assert cs.verify(tmp_path / "half.pt", tmp_path / name)
    assert not cs.verify(tmp_path / "old.pt", tmp_path / name)


def test_another_word_than_a_type_is_refused(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(1)}, tmp_path / "old.pt")
    with pytest.raises(ValueError, match="float16, bfloat16, float32"):
        cs.clear_file(tmp_path / "old.pt", tmp_path / "new.pt", dtype="int8")  # type: ignore[arg-type]
