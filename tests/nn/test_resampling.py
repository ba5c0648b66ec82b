"""Resampling: elements repeated, interpolated as Torch7 does it, and planes spread over pixels."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import clearstate.nn as nn
from clearstate.formats import t7
from clearstate.nn.t7.files import to_graph, to_live


def random(*size: int) -> Tensor:
    return torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(size)))


def interpolated(line: list[float], size: int) -> list[float]:
    """A line of numbers stretched to a size; places between elements are computed in single precision."""
    step = np.float32(len(line) - 1) / np.float32(size - 1) if size > 1 else np.float32(0)
    output = []
    for i in range(size):
        place = np.float32(step * np.float32(i))
        lower = int(place)
        weight = float(place - np.float32(lower))
        upper = min(lower + 1, len(line) - 1)
        output.append((1 - weight) * line[lower] + weight * line[upper])
    return output


def stretched(input: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """The last dimensions stretched, one after the other."""
    for dim, size in enumerate(sizes, -len(sizes)):
        lines = input.movedim(dim, -1)
        flat = [interpolated(line, size) for line in lines.reshape(-1, lines.shape[-1]).tolist()]
        input = torch.tensor(flat, dtype=torch.float64).view(*lines.shape[:-1], size).movedim(-1, dim)
    return input


@pytest.mark.parametrize("factor", [1, 2, 3, 7, 13])
def test_each_element_is_repeated_exactly(factor: int) -> None:
    input = random(2, 3, 4)
    due = input.repeat_interleave(factor, 1).repeat_interleave(factor, 2)
    assert torch.equal(nn.SpatialUpSamplingNearest(factor)(input), due)
    assert torch.equal(nn.UpSampling(factor)(input[None])[0], due)
    volume = random(1, 2, 2, 3, 4)
    due = volume.repeat_interleave(factor, 2).repeat_interleave(factor, 3).repeat_interleave(factor, 4)
    assert torch.equal(nn.UpSampling(factor)(volume), due)


def test_an_element_gets_the_sum_of_the_gradients_of_its_copies() -> None:
    layer = nn.SpatialUpSamplingNearest(3)
    input = random(2, 3, 4)
    grad_output = random(2, 9, 12)
    layer.forward(input)
    due = grad_output.view(2, 3, 3, 4, 3).sum((2, 4))
    torch.testing.assert_close(layer.backward(input, grad_output), due)


@pytest.mark.parametrize("size", [(5, 9), (7, 5), (1, 3), (4, 4), (2, 11)])
def test_images_are_interpolated_with_corners_on_corners(size: tuple[int, int]) -> None:
    input = random(2, 5, 4)
    layer = nn.SpatialUpSamplingBilinear({"oheight": size[0], "owidth": size[1]})
    torch.testing.assert_close(layer(input), stretched(input, size), rtol=1e-14, atol=1e-14)
    batch = torch.stack([input, -input])
    torch.testing.assert_close(layer(batch)[0], layer(input))
    torch.testing.assert_close(layer(input.float()).double(), stretched(input, size), rtol=1e-5, atol=1e-5)
    linear = nn.UpSampling({"oheight": size[0], "owidth": size[1]}, "bilinear")
    torch.testing.assert_close(linear(batch), layer(batch))


def test_volumes_are_interpolated_along_three_dimensions() -> None:
    input = random(2, 1, 3, 2, 4)
    layer = nn.UpSampling({"odepth": 5, "oheight": 3, "owidth": 7}, "trilinear")
    torch.testing.assert_close(layer(input), stretched(input, (5, 3, 7)), rtol=1e-14, atol=1e-14)
    torch.testing.assert_close(layer(input.float()).double(), layer(input), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(nn.UpSampling(2, "linear")(input), stretched(input, (6, 4, 8)), rtol=1e-14, atol=1e-14)


def test_interpolation_has_its_derivative() -> None:
    layer = nn.SpatialUpSamplingBilinear(2)
    assert torch.autograd.gradcheck(layer, random(1, 3, 2).requires_grad_())


def test_planes_are_spread_over_squares_of_pixels() -> None:
    input = random(2, 18, 2, 4)
    output = nn.PixelShuffle(3)(input)
    assert output.shape == (2, 2, 6, 12)
    for plane, y, x in product(range(2), range(6), range(12)):
        source = input[:, plane * 9 + (y % 3) * 3 + x % 3, y // 3, x // 3]
        assert torch.equal(output[:, plane, y, x], source)


@pytest.mark.parametrize(
    "layer, text",
    [
        (nn.SpatialUpSamplingBilinear(2), "nn.SpatialUpSamplingBilinear(2)"),
        (nn.SpatialUpSamplingBilinear({"owidth": 3, "oheight": 4}), "nn.SpatialUpSamplingBilinear(4, 3)"),
        (nn.UpSampling(2), "nn.UpSampling(2x, nearest)"),
        (nn.UpSampling({"owidth": 3, "oheight": 4}, "linear"), "nn.UpSampling(4x3, linear)"),
        (nn.UpSampling({"odepth": 5, "owidth": 3, "oheight": 4}, "linear"), "nn.UpSampling(5x4x3, linear)"),
    ],
)
def test_layers_print_as_in_torch7_and_are_the_same_after_a_file(layer: Any, text: str) -> None:
    assert str(layer) == text
    assert str(to_live(to_graph(layer))) == text


def test_what_is_not_set_is_not_in_the_file() -> None:
    graph = to_graph(nn.SpatialUpSamplingBilinear(2))
    assert isinstance(graph, t7.Object)
    assert isinstance(graph.state, t7.Table)
    assert graph.state["scale_factor"] == 2
    assert "owidth" not in graph.state


ANY: Any = nn.SpatialUpSamplingBilinear


@pytest.mark.parametrize(
    "make, error, text",
    [
        (lambda: nn.SpatialUpSamplingNearest(0), ValueError, "an integer of at least 1, not 0"),
        (lambda: ANY(1.5), ValueError, "an integer of at least 1, not 1.5"),
        (lambda: nn.SpatialUpSamplingBilinear({"owidth": 3}), ValueError, "owidth and oheight are due, got owidth"),
        (lambda: ANY("2"), TypeError, "got str"),
        (lambda: nn.UpSampling({"owidth": 3, "oheight": 3}), ValueError, "takes a scale factor"),
        (lambda: nn.SpatialUpSamplingNearest(2)(torch.ones(3, 3)), ValueError, "3 or 4 dimensions"),
        (lambda: nn.UpSampling(2)(torch.ones(3, 3, 3)), ValueError, "4 or 5 dimensions"),
        (
            lambda: nn.UpSampling({"owidth": 3, "oheight": 3}, "linear")(torch.ones(1, 1, 2, 2, 2)),
            ValueError,
            "no odepth",
        ),
        (lambda: nn.PixelShuffle(2)(torch.ones(6, 2, 2)), ValueError, "multiple of 4, got a tensor of 6x2x2"),
    ],
)
def test_wrong_arguments_and_inputs_are_refused(make: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()
