"""Pooling: maxima, means, sums and norms of windows, each against the windows written out."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import clearstate.nn as nn
from clearstate.formats import t7
from clearstate.nn.layers.windows.adaptive_pooling import exact, windows
from clearstate.nn.protocol.stateful import KEPT
from clearstate.nn.t7.files import to_graph, to_live


def random(*size: int) -> Tensor:
    return torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(size)))


def written(module: Any) -> t7.Table:
    graph = to_graph(module)
    assert isinstance(graph, t7.Object)
    assert isinstance(graph.state, t7.Table)
    return graph.state


def read(typename: str, **fields: Any) -> Any:
    return to_live(t7.Object(typename, t7.Table(fields), version=1))


def each_window(input: Tensor, places: tuple[list[tuple[int, int]], ...], of: Callable[[Tensor], Tensor]) -> Tensor:
    """For each plane and each window (its begin and end along each axis), what ``of`` says of its elements."""
    results = []
    for window in product(*places):
        part = input
        for dim, (begin, end) in enumerate(window, -len(places)):
            part = part.narrow(dim, begin, end - begin)
        results.append(of(part.flatten(-len(places))))
    return torch.stack(results, -1).reshape(*input.shape[: -len(places)], *map(len, places))


def largest(elements: Tensor) -> Tensor:
    return elements.amax(-1)


def mean(elements: Tensor) -> Tensor:
    return elements.mean(-1)


def of_means(size: int, count: int) -> list[tuple[int, int]]:
    """Where THNN's windows of a mean begin and end: single precision only in the last step."""
    edges = [np.float32(i * size) / np.float32(count) for i in range(count + 1)]
    return [(int(np.floor(begin)), int(np.ceil(end))) for begin, end in pairwise(edges)]


@pytest.mark.parametrize("size, count", [(13, 13), (49, 7), (25, 5), (7, 3), (5, 2), (1, 4)])
@pytest.mark.parametrize(
    "kind, at, of",
    [(nn.SpatialAdaptiveMaxPooling, windows, largest), (nn.SpatialAdaptiveAveragePooling, of_means, mean)],
)
def test_adaptive_windows_are_those_of_torch7_which_computes_them_otherwise_for_maxima_and_means(
    kind: Any, at: Any, of: Any, size: int, count: int
) -> None:
    input = random(2, size, 6)
    due = each_window(input, (at(size, count), exact(6, 2)), of)
    layer = kind(2, count)
    torch.testing.assert_close(layer(input), due)
    torch.testing.assert_close(layer(input[None])[0], due)


def test_some_adaptive_windows_are_wider_than_pytorchs() -> None:
    assert windows(7, 3) == exact(7, 3)
    assert windows(49, 7) != exact(49, 7)
    assert all(begin <= a and b <= end for (begin, end), (a, b) in zip(windows(49, 7), exact(49, 7), strict=True))


def test_windows_that_begin_behind_the_end_hold_nothing() -> None:
    input = random(1, 8, 6)
    pooling = nn.SpatialMaxPooling(1, 2, 2, 3).ceil()
    output = pooling(input)
    assert output.shape == (1, 3, 4)
    torch.testing.assert_close(output[..., :3], input[..., [0, 2, 4]].unfold(1, 2, 3).amax(-1))
    assert (output[..., 3] == -math.inf).all()
    assert nn.SpatialAveragePooling(1, 1, 2, 2).ceil()(input)[..., 3].isnan().all()
    assert torch.equal(pooling.forward(input), output)
    assert pooling.floor()(input).shape == (1, 3, 3)


def test_the_mean_counts_the_paddings_zeros_unless_told_not_to() -> None:
    input = torch.ones(1, 4, 4, dtype=torch.float64)
    pooling = nn.SpatialAveragePooling(2, 2, 2, 2, 1, 1)
    corners = [[0.25, 0.5, 0.25], [0.5, 1, 0.5], [0.25, 0.5, 0.25]]
    assert pooling(input).tolist() == [corners]
    assert pooling.set_count_exclude_pad() is pooling
    assert (pooling(input) == 1).all()
    assert not to_live(to_graph(pooling)).count_include_pad
    assert pooling.set_count_include_pad()(input).tolist() == [corners]


def test_average_pooling_of_old_files_is_a_sum() -> None:
    old = read("nn.SpatialAveragePooling", kW=2.0, kH=3.0, dW=2.0, dH=1.0)
    input = random(2, 5, 6)
    places = [(i, i + 3) for i in range(3)], [(i, i + 2) for i in range(0, 6, 2)]
    torch.testing.assert_close(old(input), each_window(input, places, lambda part: part.sum(-1)))
    assert str(old) == "nn.SpatialAveragePooling(2x3, 2,1)"
    assert written(old)["divide"] is False
    assert written(old)["count_include_pad"] is True


@pytest.mark.parametrize("power", [2, 3])
def test_the_norm_of_windows_of_an_image(power: int) -> None:
    input = random(2, 4, 6).abs()
    layer = nn.SpatialLPPooling(2, power, 3, 2).double()
    places = [(0, 2), (2, 4)], [(0, 3), (3, 6)]
    torch.testing.assert_close(layer(input), each_window(input, places, lambda part: part.norm(power, -1)))
    assert written(layer)["kW"] == 3


def test_what_is_inside_a_norm_of_an_old_file_does_not_learn() -> None:
    layer = nn.SpatialLPPooling(2, 2, 3, 2)
    layer[1] = nn.SpatialSubSampling(2, 3, 2, 3, 2)
    old = to_live(to_graph(layer))
    assert isinstance(old[1], nn.SpatialSubSampling)
    assert not any(parameter.requires_grad for parameter in old.parameters())


@pytest.mark.parametrize("batch_mode", [False, True])
@pytest.mark.parametrize("more", [(), (3,), (3, 2)])
def test_the_norm_of_neighbouring_features(batch_mode: bool, more: tuple[int, ...]) -> None:
    input = random(*((4,) if batch_mode else ()), 9, *more).abs()
    layer = nn.FeatureLPPooling(3, 2, 3, batch_mode)
    features = input.movedim(1 if batch_mode else 0, -1)
    due = torch.stack([features[..., i : i + 3].norm(3, -1) for i in (0, 2, 4, 6)], -1)
    torch.testing.assert_close(layer(input), due.movedim(-1, 1 if batch_mode else 0))
    assert to_live(to_graph(layer)).batch_mode is batch_mode


def test_features_that_are_all_zero_have_a_norm_of_zero_and_no_gradient() -> None:
    layer = nn.FeatureLPPooling(2, 2, 2)
    input = torch.tensor([0.0, 0.0, 3.0, 4.0])
    assert layer.forward(input).tolist() == [0, 5]
    torch.testing.assert_close(layer.backward(input, torch.ones(2)), torch.tensor([0, 0, 0.6, 0.8]))


def test_fractional_pooling_takes_the_largest_of_windows_between_the_first_and_the_last() -> None:
    layer: Any = nn.SpatialFractionalMaxPooling(2, 3, 4, 3)
    input = random(2, 1, 9, 11)
    output = layer.forward(input)
    for image, samples in enumerate(layer.random_samples[:, 0].tolist()):
        places = []
        for sample, size, count, width in zip(reversed(samples), (9, 11), (3, 4), (3, 2), strict=True):
            alpha = (size - width) / (count - 1)
            begins = [int((i + sample) * alpha) - int(sample * alpha) for i in range(count - 1)] + [size - width]
            places.append([(begin, begin + width) for begin in begins])
        torch.testing.assert_close(output[image], each_window(input[image], tuple(places), largest))


def test_a_ratio_is_a_share_of_the_input() -> None:
    layer = nn.SpatialFractionalMaxPooling(2, 2, 0.5, 0.75)
    assert layer(torch.ones(1, 8, 9)).shape == (1, 6, 4)
    assert str(layer) == "nn.SpatialFractionalMaxPooling(0.5x0.75, 2,2)"
    assert str(nn.VolumetricFractionalMaxPooling(2, 3, 4, 5, 6, 7)) == (
        "nn.VolumetricFractionalMaxPooling(5x6x7, 2,3,4)"
    )
    again = to_live(to_graph(layer))
    assert again(torch.ones(1, 8, 9)).shape == (1, 6, 4)
    assert "outW" not in written(layer)


def test_regions_are_drawn_anew_until_they_are_fixed() -> None:
    torch.manual_seed(1)
    input = random(1, 40, 40)
    layer = nn.SpatialFractionalMaxPooling(2, 2, 23, 23)
    assert not torch.equal(layer(input), layer(input))
    layer.fix_pooling_regions()
    fixed = layer(input)
    assert torch.equal(layer(input), fixed)
    assert torch.equal(layer.forward(input), fixed)
    assert torch.equal(to_live(to_graph(layer)).forward(input), fixed)  # the file has the samples
    layer.fix_pooling_regions(False)
    last = layer.forward(input).clone()
    assert not torch.equal(last, fixed)
    layer.fix_pooling_regions()
    assert torch.equal(layer.forward(input), last)
    assert layer.clear_state() is layer
    assert "random_samples" not in layer.__dict__
    layer.forward(input)


def test_the_k_largest_keep_their_order_and_get_the_gradient() -> None:
    layer = nn.TemporalDynamicKMaxPooling(1, 0.5)
    input = torch.tensor([[1.0, 9.0], [7.0, 2.0], [3.0, 4.0], [5.0, 6.0], [0.0, 0.0]])
    assert layer.forward(input).tolist() == [[7, 9], [3, 4], [5, 6]]
    grad = layer.backward(input, torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))
    assert grad.tolist() == [[0, 2], [1, 0], [3, 4], [5, 6], [0, 0]]


def test_the_first_of_equal_maxima_gets_the_gradient() -> None:
    input = torch.ones(1, 2, 4)
    for layer in (nn.SpatialMaxPooling(2, 2), nn.SpatialAdaptiveMaxPooling(2, 1), nn.SpatialDilatedMaxPooling(2, 2)):
        output = layer.forward(input)
        assert layer.backward(input, torch.ones_like(output)).tolist() == [[[1, 0, 1, 0], [0, 0, 0, 0]]]


def test_a_plain_call_leaves_nothing_and_the_protocol_leaves_indices_until_they_are_cleared() -> None:
    layer = nn.SpatialMaxPooling(2, 2)
    before = set(layer.__dict__)
    held = layer.indices
    layer(torch.ones(1, 4, 4))
    assert set(layer.__dict__) == before
    assert not layer.indices.numel()
    layer.forward(torch.arange(16.0).view(1, 4, 4))
    assert held.tolist() == [[[5, 7], [13, 15]]]
    assert (layer.iheight, layer.iwidth) == (4, 4)
    assert written(layer)["iheight"] == 4
    layer.clear_state()
    assert layer.indices is held
    assert not held.numel()
    assert {*layer.__dict__, *KEPT} - {"_former"} == before
    assert "iheight" not in written(layer)


def test_steps_are_the_windows_sizes_unless_given() -> None:
    assert str(nn.SpatialMaxPooling(3, 2)) == "nn.SpatialMaxPooling(3x2, 3,2)"
    assert str(nn.SpatialMaxPooling(3, 2, 1, 1, 1, 0)) == "nn.SpatialMaxPooling(3x2, 1,1, 1,0)"
    assert str(nn.SpatialDilatedMaxPooling(3, 2)) == "nn.SpatialDilatedMaxPooling(3x2, 3,2, 1,1)"
    assert str(nn.VolumetricMaxPooling(4, 3, 2)) == "nn.VolumetricMaxPooling(4x3x2, 4,3,2)"
    assert str(nn.VolumetricAveragePooling(4, 3, 2, 1)) == "nn.VolumetricAveragePooling(4x3x2, 1,3,2)"
    assert str(nn.SpatialAveragePooling(3, 2)) == "nn.SpatialAveragePooling(3x2, 1,1)"
    assert nn.TemporalMaxPooling(3).dw == 3


def test_files_from_before_there_was_padding_or_a_ceil_mode() -> None:
    old = read("nn.SpatialMaxPooling", kW=2.0, kH=2.0, dW=2.0, dH=2.0)
    assert old(torch.ones(1, 5, 5)).shape == (1, 2, 2)
    old = read("nn.VolumetricMaxPooling", kT=2.0, kW=2.0, kH=2.0, dT=2.0, dW=2.0, dH=2.0)
    assert old(torch.ones(1, 5, 5, 5)).shape == (1, 2, 2, 2)
    assert written(old)["ceil_mode"] is False


@pytest.mark.parametrize(
    "layer, size",
    [
        (nn.SpatialMaxPooling(2, 2, 2, 2, 1, 1).ceil(), (3, 9, 9)),
        (nn.SpatialDilatedMaxPooling(2, 2, 1, 1, 0, 0, 2, 2), (3, 9, 9)),
        (nn.SpatialAveragePooling(3, 3, 2, 2), (3, 9, 9)),
        (nn.SpatialAdaptiveMaxPooling(3, 2), (3, 9, 9)),
        (nn.SpatialAdaptiveAveragePooling(13, 2), (3, 9, 13)),
        (nn.VolumetricMaxPooling(2, 2, 2), (3, 4, 4, 4)),
        (nn.TemporalMaxPooling(2), (6, 3)),
        (nn.TemporalSubSampling(3, 2), (6, 3)),
        (nn.FeatureLPPooling(2, 1, 2), (6, 3)),
    ],
)
def test_layers_compile_as_one_graph(layer: Any, size: tuple[int, ...]) -> None:
    input = torch.rand(size)
    compiled: Any = torch.compile(layer, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(input), layer(input))


@pytest.mark.parametrize(
    "make, error, text",
    [
        (lambda: nn.SpatialMaxPooling(2, 2)(torch.ones(4, 4)), ValueError, "3 or 4 dimensions, got a tensor of 4x4"),
        (lambda: nn.SpatialMaxPooling(2, 2)([torch.ones(1, 4, 4)]), TypeError, "got a table of 1"),
        (lambda: nn.SpatialMaxPooling(3, 3)(torch.ones(1, 2, 4)), ValueError, "window of 3x3 does not fit"),
        (lambda: nn.VolumetricAveragePooling(2, 2, 2)(torch.ones(4, 4)), ValueError, "4 or 5 dimensions"),
        (lambda: nn.SpatialSubSampling(2, 2, 2)(torch.ones(3, 4, 4)), ValueError, "dimension -3 is 2"),
        (lambda: nn.TemporalSubSampling(2, 3)(torch.ones(2, 2)), ValueError, "window of 3 does not fit"),
        (lambda: nn.TemporalMaxPooling(3)(torch.ones(2, 2)), ValueError, "window of 3 does not fit"),
        (lambda: nn.TemporalDynamicKMaxPooling(3)(torch.ones(2, 2)), ValueError, "3 largest of 2 frames"),
        (lambda: nn.FeatureLPPooling(1, 1, 2), ValueError, "width must be 2 to 16, not 1"),
        (lambda: nn.FeatureLPPooling(2, 5, 2), ValueError, "stride must be 1 to 4, not 5"),
        (lambda: nn.FeatureLPPooling(4, 1, 2)(torch.ones(3)), ValueError, "at least 4 features, got 3"),
        (lambda: nn.SpatialFractionalMaxPooling(1, 2, 3, 3), ValueError, "at least 2 elements"),
        (lambda: nn.SpatialFractionalMaxPooling(2, 2, 0.5, 3), ValueError, "between 0 and 1"),
        (lambda: nn.SpatialFractionalMaxPooling(2, 2, 4, 4)(torch.ones(1, 5, 9)), ValueError, "4 windows of 2"),
        (lambda: nn.SpatialFractionalMaxPooling(2, 2, 0.1, 0.1)(torch.ones(1, 5, 9)), ValueError, "leaves nothing"),
    ],
)
def test_wrong_arguments_and_inputs_are_refused(make: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()
