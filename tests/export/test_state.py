"""A state dict as a file: what the libraries themselves read, with what is shared still shared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import safetensors
import safetensors.torch
import torch

import clearstate as cs
import clearstate.nn as nn


def net() -> Any:
    made: Any = nn.Sequential(nn.Linear(4, 4), nn.BatchNormalization(4), nn.Linear(4, 4))
    made[2].share(made[0], "weight")
    return made


def test_a_net_goes_into_safetensors_by_name_and_comes_back(tmp_path: Path) -> None:
    model = net()
    cs.save(model, tmp_path / "x.safetensors")
    again = net()
    missing, unexpected = safetensors.torch.load_model(again, tmp_path / "x.safetensors")
    assert not missing
    assert not unexpected
    for name, tensor in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name
    assert again[2].weight.data_ptr() == again[0].weight.data_ptr()


def test_what_is_shared_is_written_once_and_named_in_the_metadata(tmp_path: Path) -> None:
    cs.save(net(), tmp_path / "x.safetensors")
    with safetensors.safe_open(tmp_path / "x.safetensors", "pt") as file:
        assert "2.weight" not in set(file.keys())
        assert file.metadata() == {"format": "pt", "2.weight": "0.weight"}


@pytest.mark.parametrize("name", ["x.pt", "x.pth", "x.bin", "X.PT"])
def test_a_net_goes_into_pytorchs_own_file(name: str, tmp_path: Path) -> None:
    model = net()
    cs.save(model, tmp_path / name)
    state = torch.load(tmp_path / name)
    assert state.keys() == model.state_dict().keys()
    assert all(torch.equal(state[key], tensor) for key, tensor in model.state_dict().items())
    assert state["0.weight"].data_ptr() == state["2.weight"].data_ptr()


DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.uint8,
    torch.bool,
    torch.complex64,
    torch.float8_e4m3fn,
    torch.uint16,
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_type_of_number_is_kept_bit_for_bit(dtype: torch.dtype, tmp_path: Path) -> None:
    tensor = torch.arange(12).reshape(3, 4).to(dtype)
    cs.save({"x": tensor, "rows": tensor[1:], "empty": tensor[:0]}, tmp_path / "x.safetensors")
    state = safetensors.torch.load_file(tmp_path / "x.safetensors")
    assert state["x"].dtype is dtype
    assert torch.equal(state["x"].view(torch.uint8), tensor.view(torch.uint8))
    assert torch.equal(state["rows"].view(torch.uint8), tensor[1:].contiguous().view(torch.uint8))
    assert state["empty"].shape == (0, 4)


def test_views_that_are_turned_conjugated_or_of_a_flat_vector_are_written_as_they_are_seen(tmp_path: Path) -> None:
    flat = torch.arange(24, dtype=torch.float32)
    number = torch.complex(torch.randn(3), torch.randn(3))
    tensors = {"turned": flat.view(4, 6).t(), "part": flat[6:12].view(2, 3), "conjugated": number.conj()}
    cs.save(tensors, tmp_path / "x.safetensors")
    state = safetensors.torch.load_file(tmp_path / "x.safetensors")
    for name, tensor in tensors.items():
        assert torch.equal(state[name], tensor.resolve_conj()), name


def test_a_net_with_flat_parameters_is_written_without_its_neighbours(tmp_path: Path) -> None:
    model = net()
    flat, _ = model.get_parameters()
    cs.save(model, tmp_path / "x.safetensors")
    size = (tmp_path / "x.safetensors").stat().st_size
    cs.save(model[0], tmp_path / "y.safetensors")
    assert size < 4 * flat.numel() + 1200
    assert (tmp_path / "y.safetensors").stat().st_size < 4 * 20 + 300


def test_a_part_of_a_net_with_flat_parameters_goes_into_pytorchs_file_alone(tmp_path: Path) -> None:
    model = net()
    model.get_parameters()
    cs.save(nn.Sequential(model[0], model[0]), tmp_path / "x.pt")
    state = torch.load(tmp_path / "x.pt")
    assert (
        sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in state.values()}.values()) == 4 * 20
    )
    assert state["0.weight"].data_ptr() == state["1.weight"].data_ptr()
    assert torch.equal(state["0.weight"], model[0].weight)


def test_what_has_no_place_is_refused_and_the_old_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    cs.save({"x": torch.ones(2)}, path)
    old = path.read_bytes()
    for wrong, text in (
        ({"x": 1}, "x is no tensor"),
        ({"x": torch.ones(2, device="meta")}, "x is on the meta device"),
        ({"x": torch.eye(2).to_sparse()}, "x is sparse"),
        ({"x": torch.ones(2, dtype=torch.complex128)}, "complex128"),
    ):
        with pytest.raises(cs.ClearstateError, match=text):
            cs.save(wrong, path)
    with pytest.raises(TypeError, match="a layout is for Torch7 files"):
        cs.save(net(), path, layout=cast_layout())
    assert path.read_bytes() == old
    assert [each.name for each in tmp_path.iterdir()] == ["x.safetensors"]


def cast_layout() -> Any:
    from clearstate.formats import t7

    return t7.Layout()


def test_every_other_name_is_a_torch7_file(tmp_path: Path) -> None:
    for name in ("net.t7", "net.th", "net"):
        cs.save(nn.Linear(3, 2), tmp_path / name)
        assert isinstance(cs.load(tmp_path / name), nn.Linear)
