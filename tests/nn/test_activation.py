"""Activations where no recording is: in place, at the corners of their definitions, on single vectors, as text."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import clearstate.nn as nn
from clearstate.formats import t7
from clearstate.nn.t7.files import to_graph, to_live
from clearstate.testing import check_gradients, check_io, check_promises


def ramp() -> Tensor:
    return torch.linspace(-2, 2, 24, dtype=torch.float64).view(2, 12)


IN_PLACE = [
    nn.ReLU,
    nn.ReLU6,
    lambda inplace: nn.Threshold(0.5, 0.1, inplace),
    lambda inplace: nn.HardTanh(-0.5, 0.5, inplace),
    lambda inplace: nn.ELU(0.7, inplace),
    lambda inplace: nn.LeakyReLU(0.3, inplace),
]


@pytest.mark.parametrize("make", IN_PLACE)
def test_in_place_writes_over_the_input_of_a_call(make: Any) -> None:
    x = ramp()
    expected = make(False)(ramp())
    assert make(True)(x) is x
    assert torch.equal(x, expected)


@pytest.mark.parametrize("make", IN_PLACE)
def test_in_place_never_changes_the_input_of_the_protocol(make: Any) -> None:
    x, layer = ramp(), make(True)
    assert torch.equal(layer.forward(x), make(False)(ramp()))
    assert torch.equal(x, ramp())
    plain = make(False)
    plain.forward(ramp())
    assert torch.equal(layer.backward(x, ramp()), plain.backward(ramp(), ramp()))
    check_promises(layer, x)


def test_a_negative_slope_is_never_taken_in_place() -> None:
    x = ramp()
    y = nn.LeakyReLU(-0.5, True)(x)
    assert torch.equal(x, ramp())
    assert torch.equal(y, torch.where(x > 0, x, -0.5 * x))


def test_threshold_refuses_an_in_place_value_that_could_not_be_told_from_the_input() -> None:
    with pytest.raises(ValueError, match="must not be above the threshold"):
        nn.Threshold(0, 1, True)


def test_hard_tanh_refuses_an_empty_range() -> None:
    with pytest.raises(ValueError, match="max_value must be above"):
        nn.HardTanh(1, 1)


@pytest.mark.parametrize("layer, at_zero", [(nn.Abs(), 1.0), (nn.Sqrt(), 0.0), (nn.ReLU(), 0.0)])
def test_gradients_at_zero_are_torch7s(layer: nn.Module, at_zero: float) -> None:
    x = torch.zeros(2, requires_grad=True)
    layer(x).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [at_zero, at_zero]


def test_gated_linear_unit_multiplies_one_half_with_the_sigmoid_of_the_other() -> None:
    x = torch.randn(3, 4, 5, dtype=torch.float64)
    first, second = x[:, :2], x[:, 2:]
    assert torch.allclose(nn.GatedLinearUnit(1)(x), first / (1 + torch.exp(-second)))
    check_gradients(nn.GatedLinearUnit(1), x)
    assert torch.equal(nn.GatedLinearUnit()(x[..., :4]), nn.GatedLinearUnit(2)(x[..., :4]))
    with pytest.raises(ValueError, match="even, got a tensor of 3x4x5"):
        nn.GatedLinearUnit(2)(x)
    with pytest.raises(ValueError, match="got a tensor without dimensions"):
        nn.GatedLinearUnit()(x[0, 0, 0])


def test_gated_linear_unit_counts_dimensions_from_1_in_files() -> None:
    written = to_graph(nn.GatedLinearUnit(1))
    assert written.fields["dim"] == 2
    assert to_live(written).dim == 1


@pytest.mark.parametrize("shape", [(3,), (5, 3), (5, 3, 4, 2)])
def test_prelu_has_a_slope_for_each_channel(shape: tuple[int, ...]) -> None:
    layer = nn.PReLU(3).double()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([0.1, 0.2, 0.3]))
    x = torch.randn(shape, dtype=torch.float64)
    slopes = layer.weight.detach().view(-1, *(1,) * (len(shape) - 2)) if len(shape) > 1 else layer.weight.detach()
    assert torch.allclose(layer(x), torch.where(x > 0, x, slopes * x))
    check_gradients(layer, x)
    check_io(layer, x)


def test_prelu_names_the_channels_it_expects() -> None:
    with pytest.raises(ValueError, match="dimension 1 is 3, got a tensor of 2x4"):
        nn.PReLU(3)(torch.zeros(2, 4))


@pytest.mark.parametrize("shape, classes", [((4,), 0), ((3, 4), 1), ((4, 2, 3), 0), ((3, 4, 2, 3), 1)])
def test_soft_maxima_go_over_the_classes(shape: tuple[int, ...], classes: int) -> None:
    x = torch.randn(shape, dtype=torch.float64)
    powers = torch.exp(x)
    expected = powers / powers.sum(classes, keepdim=True)
    for layer in (nn.SoftMax(), nn.SpatialSoftMax()):
        assert torch.allclose(layer(x), expected)
    for logarithm in (nn.LogSoftMax(), nn.SpatialLogSoftMax()):
        assert torch.allclose(logarithm(x), expected.log())
    assert torch.allclose(nn.SoftMin()(-x), expected)


@pytest.mark.parametrize("layer", [nn.SoftMax(), nn.SoftMin(), nn.LogSoftMax()])
def test_soft_maxima_say_which_inputs_they_take(layer: nn.Module) -> None:
    with pytest.raises(ValueError, match="expected a tensor of 1 or 2 or 3 or 4 dimensions, got a tensor of 1x1x1x1x2"):
        layer(torch.zeros(1, 1, 1, 1, 2))
    with pytest.raises(TypeError, match="expected a tensor, got a table of 1"):
        layer([torch.zeros(2)])


@pytest.mark.parametrize(
    "layer, text",
    [
        (nn.ELU(), "nn.ELU (alpha:1.000000)"),
        (nn.LeakyReLU(), "nn.LeakyReLU(0.01)"),
        (nn.ReLU(True), "nn.ReLU"),
    ],
)
def test_activations_print_as_in_torch7(layer: nn.Module, text: str) -> None:
    assert repr(layer) == text


@pytest.mark.parametrize(
    "typename, fields, expected",
    [
        ("nn.HardTanh", {}, [-1.0, 0.5, 1.0]),
        ("nn.Sqrt", {}, [math.nan, math.sqrt(0.5), math.sqrt(2.0)]),
        ("nn.Threshold", {"threshold": 0.0, "val": 0.0}, [0.0, 0.5, 2.0]),
    ],
)
def test_files_of_versions_without_a_field_mean_what_torch7_takes_them_for(
    typename: str, fields: dict[str, Any], expected: list[float]
) -> None:
    live = to_live(t7.Object(typename, t7.Table(fields)))
    assert live(torch.tensor([-2.0, 0.5, 2.0])).tolist() == pytest.approx(expected, nan_ok=True)
