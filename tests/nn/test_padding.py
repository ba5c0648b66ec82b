"""Padding, against indices written out by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import clearstate.nn as nn
from clearstate.nn.t7.files import to_graph, to_live


def image(planes: int = 2, height: int = 4, width: int = 5) -> Tensor:
    return torch.randn(planes, height, width, dtype=torch.float64)


def reflected(i: int, size: int) -> int:
    """The element that a mirror at the border shows, the border not repeated."""
    return -i if i < 0 else 2 * (size - 1) - i if i >= size else i


def replicated(i: int, size: int) -> int:
    return min(max(i, 0), size - 1)


def along(input: Tensor, dim: int, before: int, after: int, rule: Any) -> Tensor:
    """The input with each element along a dimension taken by a rule from its place."""
    size = input.shape[dim]
    return input.index_select(dim, torch.tensor([rule(i, size) for i in range(-before, size + after)]))


@pytest.mark.parametrize("borders", [(2, 1, 3, 0), (1, 1, 1, 1), (-1, 2, 0, -2), (-2, -1, -1, -1)])
@pytest.mark.parametrize(
    "kind, rule", [("SpatialReflectionPadding", reflected), ("SpatialReplicationPadding", replicated)]
)
def test_borders_are_the_mirrored_or_the_repeated_image_and_negative_ones_crop(
    kind: str, rule: Any, borders: tuple[int, int, int, int]
) -> None:
    layer = getattr(nn, kind)(*borders)
    input = image()
    left, right, top, bottom = borders
    due = along(along(input, -1, left, right, rule), -2, top, bottom, rule)
    assert torch.equal(layer(input), due)
    assert torch.equal(layer(input[None])[0], due)
    assert torch.equal(layer.forward(input), due)
    weight = torch.randn_like(due)
    copied = input.clone().requires_grad_()
    (grad,) = torch.autograd.grad(along(along(copied, -1, left, right, rule), -2, top, bottom, rule), copied, weight)
    assert torch.allclose(layer.backward(input, weight), grad)


def test_zeros_are_laid_around_an_image_or_it_is_cropped() -> None:
    input = image()
    output = nn.SpatialZeroPadding(2, -1, -1, 3)(input)
    assert output.shape == (2, 6, 6)
    assert torch.equal(output[:, :3, 2:], input[:, 1:, :4])
    assert output[:, 3:].abs().sum() == output[:, :, :2].abs().sum() == 0


def test_a_volume_is_continued_by_its_border_in_three_directions() -> None:
    input = torch.randn(2, 3, 4, 5, dtype=torch.float64)
    output = nn.VolumetricReplicationPadding(1, 2, 0, 3, 2, 1)(input)
    due = along(along(along(input, -1, 1, 2, replicated), -2, 0, 3, replicated), -3, 2, 1, replicated)
    assert torch.equal(output, due)


@pytest.mark.parametrize("kind", ["SpatialZeroPadding", "SpatialReflectionPadding", "SpatialReplicationPadding"])
def test_borders_not_given_are_as_wide_as_the_first(kind: str) -> None:
    layer = getattr(nn, kind)(2)
    assert str(layer) == f"nn.{kind}(l=2, r=2, t=2, b=2)"
    assert layer(image()).shape == (2, 8, 9)
    assert str(getattr(nn, kind)(1, 0)) == f"nn.{kind}(l=1, r=0, t=1, b=1)"


def test_a_volumetric_padding_prints_its_six_borders() -> None:
    layer = nn.VolumetricReplicationPadding(1, 2)
    assert str(layer) == "nn.VolumetricReplicationPadding(left=1, right=2, top=1, bottom=1, front=1, back=1)"


def test_an_image_that_would_vanish_is_refused() -> None:
    with pytest.raises(ValueError, match="a tensor of 2x4x5 is too small"):
        nn.SpatialZeroPadding(-3, -2, 0, 0)(image())


def test_a_mirror_shows_no_more_than_there_is() -> None:
    with pytest.raises((ValueError, RuntimeError), match="less than the corresponding input dimension"):
        nn.SpatialReflectionPadding(5, 0, 0, 0)(image())


@pytest.mark.parametrize("kind", ["SpatialZeroPadding", "SpatialReflectionPadding", "VolumetricReplicationPadding"])
def test_what_came_and_what_is_due_is_said(kind: str) -> None:
    with pytest.raises(ValueError, match=r"of \d or \d dimensions, got a tensor of 4x5"):
        getattr(nn, kind)(1)(torch.ones(4, 5))
    with pytest.raises(TypeError, match="expected a tensor, got a table of 1"):
        getattr(nn, kind)(1)([image()])


@pytest.mark.parametrize(
    "pad, index, due",
    [
        (-2, 0, [9, 9, 1, 2, 3]),
        (2, 0, [1, 2, 3, 9, 9]),
        (-2, 1, [1, 9, 9, 2, 3]),
        (1, 1, [1, 2, 9, 3]),
        (1, 3, [9, 1, 2, 3]),
        (-1, 3, [1, 2, 3, 9]),
        (0, 1, [1, 2, 3]),
    ],
)
def test_entries_are_inserted_from_the_front_or_from_the_back(pad: int, index: int, due: list[float]) -> None:
    layer = nn.Padding(0, pad, None, 9, index)
    assert layer(torch.tensor([1.0, 2.0, 3.0])).tolist() == due


def test_a_dimension_is_one_later_in_a_batch() -> None:
    layer = nn.Padding(0, 2, 2)
    assert layer(torch.ones(3, 4)).shape == (5, 4)
    assert layer(torch.ones(7, 3, 4)).shape == (7, 5, 4)
    assert nn.Padding(-1, 2, 2)(torch.ones(7, 3, 4)).shape == (7, 3, 6)


def test_dimension_and_index_of_a_padding_count_from_one_in_a_file() -> None:
    state = to_graph(nn.Padding(1, -2, 3, 0.5, 4)).state
    assert [state[name] for name in ("dim", "pad", "nInputDim", "value", "index")] == [2, -2, 3, 0.5, 5]
    assert to_graph(nn.Padding(1, -2)).state["index"] == 1
    assert to_live(to_graph(nn.Padding(1, -2, 3, 0.5, 4))).index == 4


def test_a_place_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="index 4 of a dimension of 3"):
        nn.Padding(0, 1, None, 0, 4)(torch.ones(3))
    with pytest.raises(ValueError, match="there is no dimension 2 in a tensor of 3x4"):
        nn.Padding(2, 1)(torch.ones(3, 4))
