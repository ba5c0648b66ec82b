"""Weights that no plain value stands for: ``--plain`` refuses them in words, and is not proposed where it would."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import clearstate as cs
from clearstate.formats import pt
from clearstate.formats.pt.meaning.plain import make_plain
from tests.cli.conftest import Command

from .samples import SAMPLES
from .test_plain import OBJECTS

pytestmark = pytest.mark.filterwarnings("ignore")


class Int8(torch.Tensor):
    """A quantized tensor as torchao has them: a wrapper that has no storage, with its numbers as attributes."""

    qdata: torch.Tensor
    scale: torch.Tensor

    @staticmethod
    def __new__(cls, qdata: torch.Tensor, scale: torch.Tensor) -> Int8:
        made: Any = torch.Tensor._make_wrapper_subclass(cls, qdata.shape, dtype=scale.dtype)
        made.qdata, made.scale = qdata, scale
        return made  # type: ignore[no-any-return]

    def __init__(self, qdata: torch.Tensor, scale: torch.Tensor) -> None:
        pass

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        if function is torch.ops.aten.detach.default:
            return args[0]
        raise NotImplementedError(function)


def int8() -> Int8:
    return Int8(torch.arange(12, dtype=torch.int8).reshape(3, 4), torch.ones(3, 1))


class Scaled(torch.Tensor):
    """A subclass with a second tensor among its attributes."""

    scale: torch.Tensor


def scaled() -> Any:
    made = torch.ones(3).as_subclass(Scaled)
    made.scale = torch.full((3,), 0.5)
    return made


def quantized() -> Any:
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
    quantize: Any = torch.ao.quantization.quantize_dynamic
    return quantize(net, {torch.nn.Linear})


def jagged() -> Any:
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)


WITHOUT: dict[str, tuple[Callable[[], Any], str]] = {
    "a wrapper of numbers of another type": (lambda: {"0.weight": int8()}, "Int8 (0.weight)"),
    "a subclass with a tensor of its own": (lambda: {"0.weight": scaled()}, "Scaled (0.weight)"),
    "a quantized module": (quantized, "packed parameters of a quantized layer (0._packed_params._packed_params)"),
    "a quantized module among others": (
        lambda: {"net": quantized()},
        "packed parameters of a quantized layer (net.0._packed_params._packed_params)",
    ),
    "a jagged nested tensor": (lambda: {"j": jagged()}, "NestedTensor (j)"),
}


@pytest.mark.parametrize("name", WITHOUT)
def test_weights_that_no_plain_value_stands_for_are_named_and_nothing_is_written(
    name: str, command: Command, here: Path
) -> None:
    make, culprit = WITHOUT[name]
    torch.save(make(), "old.pt")
    said = command("clear", "old.pt", "-o", "new.pt", "--plain").refused()
    assert said.startswith("no plain value stands for ")
    assert culprit in said
    assert not Path("new.pt").exists()
    assert "--plain" not in command("inspect", "old.pt").out
    assert command("clear", "old.pt", "-o", "new.pt").code == 0
    assert command("verify", "old.pt", "new.pt").code == 0


def test_plain_is_not_proposed_where_all_of_the_file_is_to_go(command: Command, here: Path) -> None:
    state = {"random_state": (3,), "numpy_random_seed": np.random.get_state(), "torch_manual_seed": torch.ones(3)}
    torch.save(state, "random_states_0.pkl")
    out = command("inspect", "random_states_0.pkl").out
    assert "weights_only=True" in out
    assert "--plain" not in out


@pytest.mark.parametrize("name", [*SAMPLES, *OBJECTS])
def test_plain_is_proposed_where_it_works_and_nowhere_else(name: str, tmp_path: Path) -> None:
    value = SAMPLES[name]() if name in SAMPLES else OBJECTS[name][0]
    torch.save([value, slice(3)] if name == "objects" else {"x": value}, tmp_path / "x.pt")
    file = pt.open_zip(str(tmp_path / "x.pt"))
    proposed = any("--plain" in note for note in pt.inspect_file(file).notes)
    refused = any("weights_only=True" in note for note in pt.inspect_file(file).notes)
    try:
        make_plain(file.root)
    except cs.ClearstateError:
        assert not proposed
    else:
        assert proposed is refused


def test_a_pickle_of_arrays_becomes_a_file_that_torch_load_reads_with_weights_only(
    command: Command, here: Path
) -> None:
    arrays = {"0.weight": np.arange(6, dtype="f4").reshape(2, 3), "0.bias": np.ones(2)}
    Path("np.pkl").write_bytes(pickle.dumps(arrays))
    assert "--plain mends that" in " ".join(command("inspect", "np.pkl").out.split())
    done = command("clear", "np.pkl", "-o", "new.pkl", "--plain")
    assert done.code == 0
    assert "The new file is a zip as torch.save writes it" in done.out
    made = torch.load("new.pkl", weights_only=True)
    assert made.keys() == arrays.keys()
    assert all(torch.equal(made[name], torch.from_numpy(array)) for name, array in arrays.items())
    Path("numbers.pkl").write_bytes(pickle.dumps({"epochs": [1, 2]}))
    assert command("clear", "numbers.pkl", "-o", "numbers.pt", "--plain").code == 0
    assert torch.load("numbers.pt", weights_only=True) == {"epochs": [1, 2]}


def roles(path: str) -> dict[str, str]:
    return {entry.path: str(entry.role) for entry in cs.inspect(path).entries if entry.shape is not None}


@pytest.mark.parametrize("state", [{"0.weight": int8()}, {"0.weight": int8(), "0.bias": torch.ones(3)}], ids=len)
def test_the_numbers_of_a_quantized_weight_are_weights_whatever_their_type(
    state: dict[str, Any], command: Command, here: Path
) -> None:
    torch.save(state, "old.pt")
    found = roles("old.pt")
    assert {path.rpartition(".")[2] for path in found} >= {"qdata", "scale"}
    assert set(found.values()) == {"parameter"}
    assert "Int8" in {entry.type.rpartition(".")[2] for entry in cs.inspect("old.pt").entries}
    assert command("clear", "old.pt", "-o", "new.pt", "--dtype", "float16").code == 0
    made = pt.open_zip("new.pt")
    inside = made.root["0.weight"].args[3]
    assert [inside[name].dtype for name in ("qdata", "scale")] == ["int8", "float32"]


def test_a_quantized_weight_that_safetensors_has_no_place_for_is_called_by_its_class(
    command: Command, here: Path
) -> None:
    torch.save({"0.weight": int8(), "0.bias": torch.ones(3)}, "old.pt")
    said = command("clear", "old.pt", "-o", "new.safetensors").refused()
    assert said.startswith("0.weight is a tensor of the class ")
    assert "Int8 (quantized" in said
    assert "weight.dequantize()" in said
    assert command("clear", "old.pt", "-o", "new.safetensors", "--drop", "*0.weight").code == 0


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_a_state_dict_of_arrays_holds_weights(protocol: int, command: Command, here: Path) -> None:
    state = {"bn.running_mean": np.ones(3, "f4"), "bn.weight": np.ones((3, 5), "f4"), "bn.steps": np.ones(1, "i8")}
    Path("np.pkl").write_bytes(pickle.dumps({"model": state, "mean": np.ones(3)}, protocol))
    found = {entry.path: entry for entry in cs.inspect("np.pkl").entries if entry.shape is not None}
    told = {path: (str(entry.role), entry.bytes, entry.shape, entry.dtype) for path, entry in found.items()}
    assert told == {
        "model.bn.running_mean": ("buffer", 12, (3,), "float32"),
        "model.bn.weight": ("parameter", 60, (3, 5), "float32"),
        "model.bn.steps": ("buffer", 8, (1,), "int64"),
    }
    assert command("clear", "np.pkl", "-o", "new.pkl").code == 0
    assert Path("new.pkl").read_bytes()
    assert pickle.loads(Path("new.pkl").read_bytes())["model"].keys() == state.keys()
