"""Convolutions, where no recording by Torch7 says what is due: they are computed here, element by element."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import clearstate.nn as nn
from clearstate.formats import t7
from clearstate.nn.t7.files import to_graph, to_live

torch.manual_seed(7)


def volume(*size: int) -> Tensor:
    return torch.randn(*size, dtype=torch.float64)


def spread(input: Tensor, weight: Tensor, bias: Tensor | None, step: Any, pad: Any, size: Any) -> Tensor:
    """A full convolution by its definition: each element lays a window, weighted, onto the output."""
    dims = len(step)
    wide = torch.zeros(weight.shape[1], *(s + 2 * p + k for s, p, k in zip(size, pad, weight.shape[2:], strict=True)))
    wide = wide.double()
    for place in itertools.product(*(range(n) for n in input.shape[1:])):
        for i in range(input.shape[0]):
            window = tuple(slice(x * d, x * d + k) for x, d, k in zip(place, step, weight.shape[2:], strict=True))
            wide[(slice(None), *window)] += input[(i, *place)] * weight[i]
    inner = tuple(slice(p, p + s) for p, s in zip(pad, size, strict=True))
    assert bias is not None
    return wide[(slice(None), *inner)] + bias.reshape(-1, *[1] * dims)


def test_a_volumetric_full_convolution_lays_a_window_for_each_element() -> None:
    layer = nn.VolumetricFullConvolution(2, 3, 2, 3, 4, 2, 3, 2, 1, 0, 1, 1, 2, 0).double()
    input = volume(2, 3, 4, 2)
    size = ((3 - 1) * 2 - 2 + 2 + 1, (4 - 1) * 2 - 2 + 4, (2 - 1) * 3 + 3 + 2)
    due = spread(input, layer.weight, layer.bias, (2, 2, 3), (1, 1, 0), size)
    assert layer(input).shape == (3, *size)
    assert torch.allclose(layer(input), due)
    assert torch.allclose(layer(input[None])[0], due)


@pytest.mark.parametrize("batch", [False, True])
def test_a_full_convolution_takes_its_size_from_the_second_entry_of_a_table(batch: bool) -> None:
    layer = nn.SpatialFullConvolution(2, 3, 4, 3, 3, 2, 1, 0).double()
    input = volume(2, 4, 3)
    size = (10, 9)  # one more row, and one more column, than without the table
    due = spread(input, layer.weight, layer.bias, (2, 3), (0, 1), size)
    given = [input[None], torch.empty(5, 1, *size)] if batch else [input, torch.empty(1, *size)]
    output = layer(given)
    assert torch.allclose(output[0] if batch else output, due)


def test_a_full_convolution_of_a_table_gives_the_second_entry_a_gradient_of_zeros() -> None:
    layer = nn.VolumetricFullConvolution(1, 1, 2, 2, 2, 2, 2, 2).double()
    input = [volume(1, 2, 2, 2), volume(1, 5, 4, 5)]
    assert layer.forward(input).shape == (1, 5, 4, 5)
    grads = layer.backward(input, torch.ones(1, 5, 4, 5).double())
    assert torch.equal(grads[1], torch.zeros_like(input[1]))
    assert torch.allclose(grads[0], layer.weight.sum().expand(1, 2, 2, 2))


def test_an_adjustment_of_a_whole_step_is_refused() -> None:
    with pytest.raises(ValueError, match="smaller than the step"):
        nn.SpatialFullConvolution(1, 1, 3, 3, 2, 2, 0, 0, 2, 0)


def test_a_local_convolution_has_a_weight_and_a_bias_for_each_place() -> None:
    layer = nn.SpatialConvolutionLocal(2, 3, 6, 5, 3, 2, 2, 1, 1, 0).double()
    input = volume(2, 5, 6)
    padded = torch.nn.functional.pad(input, (1, 1, 0, 0))
    bias: Any = layer.bias
    output = layer(input)
    assert output.shape == (3, 4, 3)
    for o, y, x in itertools.product(range(3), range(4), range(3)):
        window = padded[:, y : y + 2, 2 * x : 2 * x + 3]
        due = (window * layer.weight[y, x, o]).sum() + bias[o, y, x]
        assert torch.isclose(output[o, y, x], due)
    assert torch.allclose(layer(input[None])[0], output)


def test_a_local_convolution_takes_images_of_its_size_only() -> None:
    with pytest.raises(ValueError, match="dimension -2 is 5"):
        nn.SpatialConvolutionLocal(2, 3, 6, 5, 3, 2)(torch.ones(2, 6, 6))
    with pytest.raises(ValueError, match="larger than the input"):
        nn.SpatialConvolutionLocal(2, 3, 2, 5, 3, 2)


@pytest.mark.parametrize("feat_first", [False, True])
def test_a_row_convolution_convolves_each_feature_by_itself(feat_first: bool) -> None:
    layer = nn.TemporalRowConvolution(3, 2, 2, feat_first).double()
    frames, bias = volume(7, 3), layer.bias
    assert bias is not None
    due = torch.stack([(frames[2 * t : 2 * t + 2].T * layer.weight[:, 0]).sum(1) + bias for t in range(3)])
    output = layer(frames.T if feat_first else frames)
    assert torch.allclose(output.T if feat_first else output, due)
    assert torch.allclose(layer((frames.T if feat_first else frames)[None])[0], output)


def test_a_dilated_volumetric_convolution_spreads_its_window() -> None:
    layer = nn.VolumetricDilatedConvolution(2, 1, 2, 2, 2, 1, 1, 1, 0, 0, 0, 3, 2, 1).double()
    input = volume(2, 5, 4, 4)
    output, bias = layer(input), layer.bias
    assert bias is not None
    assert output.shape == (1, 2, 3, 2)
    due = (input[:, 1:5:3, 2:4:1, 0:3:2] * layer.weight[0]).sum() + bias[0]
    assert torch.isclose(output[0, 1, 2, 0], due)


def test_connections_may_leave_the_last_planes_out_and_repeat() -> None:
    layer = nn.SpatialConvolutionMap([[0, 1], [2, 0], [0, 1]], 2, 2).double()
    input = volume(5, 3, 3)
    output = layer(input)
    one = torch.nn.functional.conv2d(input[2:3][None], layer.weight[1][None, None])[0, 0] + layer.bias[0]
    both = torch.nn.functional.conv2d(input[0:1][None], (layer.weight[0] + layer.weight[2])[None, None])[0, 0]
    assert torch.allclose(output, torch.stack([one, both + layer.bias[1]]))


def test_a_table_of_connections_counts_from_one_in_a_file() -> None:
    layer = nn.SpatialConvolutionMap(nn.tables.one_to_one(2), 3, 3)
    written = to_graph(layer)
    assert written.state["connTable"].typename == "torch.FloatTensor"
    assert written.state["connTable"].numpy().tolist() == [[1, 1], [2, 2]]
    assert torch.equal(to_live(written).conn_table, layer.conn_table)


def test_random_connections_draw_no_plane_again_before_the_others_had_their_turn() -> None:
    table = nn.tables.random(6, 4, 2).reshape(4, 2, 2)
    assert table[:, :, 1].tolist() == [[0, 0], [1, 1], [2, 2], [3, 3]]
    assert sorted(table[:3, :, 0].flatten().tolist()) == [0, 1, 2, 3, 4, 5]
    assert len(set(table[3, :, 0].tolist())) == 2


@pytest.mark.parametrize(
    "layer",
    [
        nn.SpatialConvolution(2, 3, 3, 3),
        nn.SpatialConvolutionMM(2, 3, 3, 3),
        nn.SpatialDepthWiseConvolution(2, 3, 3, 3),
        nn.SpatialDilatedConvolution(2, 3, 3, 3),
        nn.SpatialFullConvolution(2, 3, 3, 3),
    ],
    ids=lambda layer: layer.typename,
)
def test_without_a_bias_the_output_of_zeros_is_zero_and_a_file_has_none(layer: Any) -> None:
    assert layer(torch.zeros(2, 5, 5)).abs().sum() > 0
    assert layer.no_bias() is layer
    assert layer(torch.zeros(2, 5, 5)).abs().sum() == 0
    assert str(layer).endswith(" without bias")
    assert not {"bias", "gradBias"} & set(to_graph(layer).state)
    assert layer.reset().bias is None


def test_convolutions_print_as_torch7_prints_them() -> None:
    printed = [
        str(layer)
        for layer in (
            nn.SpatialConvolution(3, 16, 5, 3),
            nn.SpatialConvolution(3, 16, 5, 3, 2, 1),
            nn.SpatialConvolution(3, 16, 5, 3, 1, 1, 2, 1),
            nn.SpatialDilatedConvolution(3, 16, 5, 3, 1, 1, 0, 0, 2, 4),
            nn.SpatialFullConvolution(3, 16, 4, 4, 2, 2, 1, 1, 1, 0),
            nn.VolumetricConvolution(3, 16, 2, 5, 3, 1, 2, 2),
            nn.SpatialConvolutionLocal(3, 16, 9, 8, 5, 3),
            nn.TemporalConvolution(3, 16, 5),
            nn.TemporalRowConvolution(3, 5, 2),
        )
    ]
    assert printed == [
        "nn.SpatialConvolution(3 -> 16, 5x3)",
        "nn.SpatialConvolution(3 -> 16, 5x3, 2,1)",
        "nn.SpatialConvolution(3 -> 16, 5x3, 1,1, 2,1)",
        "nn.SpatialDilatedConvolution(3 -> 16, 5x3, 2,4)",
        "nn.SpatialFullConvolution(3 -> 16, 4x4, 2,2, 1,1, 1,0)",
        "nn.VolumetricConvolution(3 -> 16, 2x5x3, 1,2,2)",
        "nn.SpatialConvolutionLocal(3 -> 16, 9x8, 5x3)",
        "nn.TemporalConvolution",
        "nn.TemporalRowConvolution(3, 5, 2)",
    ]


@pytest.mark.parametrize(
    "layer, input, said",
    [
        (nn.SpatialConvolution(3, 4, 3, 3), torch.ones(2, 8, 8), "dimension -3 is 3, got a tensor of 2x8x8"),
        (nn.SpatialConvolution(3, 4, 3, 3), torch.ones(8, 8), "3 or 4 dimensions, got a tensor of 8x8"),
        (nn.TemporalConvolution(3, 4, 5), torch.ones(4, 3), "a window of 5 does not fit"),
        (nn.TemporalConvolution(3, 4, 5), torch.ones(7, 2), "last dimension is 3"),
        (nn.VolumetricConvolution(3, 4, 2, 2, 2), torch.ones(3, 8, 8), "4 or 5 dimensions"),
        (nn.SpatialFullConvolution(3, 4, 2, 2), [torch.ones(3, 8, 8)], "a table of 2, got a table of 1"),
        (nn.SpatialConvolutionMap([[3, 0]], 2, 2), torch.ones(3, 8, 8), "dimension -3 is 4"),
    ],
    ids=lambda value: getattr(value, "typename", None),
)
def test_what_came_and_what_is_due_is_said(layer: Any, input: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        layer(input)


def test_a_table_is_no_image() -> None:
    with pytest.raises(TypeError, match="expected a tensor, got a table of 1"):
        nn.SpatialConvolution(3, 4, 3, 3)([torch.ones(3, 8, 8)])


def object_of(layer: Any, drop: str = "", **fields: Any) -> Any:
    """The object of a file as an older version wrote it."""
    made = to_graph(layer)
    for name in drop.split():
        del made.state[name]
    made.state.update(fields)
    return made


def test_the_one_padding_of_old_files_is_that_of_both_axes() -> None:
    layer = nn.SpatialConvolutionMM(2, 3, 3, 3, 1, 1, 2, 2)
    old = to_live(object_of(layer, "padW padH", padding=2.0))
    input = torch.randn(2, 5, 5)
    assert torch.equal(old(input), layer(input))
    assert "padding" not in to_graph(old).state


def test_a_convolution_of_old_files_has_a_weight_of_two_dimensions_and_no_padding() -> None:
    layer = nn.SpatialConvolution(2, 3, 3, 3)
    flat = t7.Tensor.of(layer.weight.detach().reshape(3, -1).numpy())
    old = to_live(object_of(layer, "padW padH", weight=flat, gradWeight=flat))
    input = torch.randn(1, 2, 5, 5)
    assert torch.allclose(old(input), layer(input))
    old.forward(input)
    old.backward(input, torch.ones(1, 3, 3, 3))
    assert old.weight.grad.shape == old.weight.shape == (3, 18)


def test_old_volumetric_full_convolutions_have_outputs_before_inputs_in_the_weight() -> None:
    layer = nn.VolumetricFullConvolution(2, 3, 2, 3, 4, 1, 1, 1, 1, 0, 1)
    turned = t7.Tensor.of(np.ascontiguousarray(layer.weight.detach().transpose(0, 1).numpy()))
    fields = {"weight": turned, "gradWeight": turned, "pT": 1.0, "pW": 0.0, "pH": 1.0}
    old = to_live(object_of(layer, "padT padW padH adjT adjW adjH", **fields))
    input = torch.randn(2, 3, 4, 5)
    assert torch.equal(old(input), layer(input))
    assert to_graph(old).state["padT"] == 1


@pytest.mark.parametrize(
    "layer, fan_in",
    [
        (nn.SpatialConvolution(8, 16, 5, 3), 8 * 15),
        (nn.TemporalConvolution(8, 64, 5), 8 * 5),
        (nn.VolumetricConvolution(8, 16, 2, 5, 3), 8 * 30),
        (nn.SpatialFullConvolution(8, 16, 5, 3), 8 * 15),
    ],
    ids=lambda value: getattr(value, "typename", None),
)
def test_parameters_are_drawn_within_the_root_of_what_makes_one_output(layer: Any, fan_in: int) -> None:
    bound = fan_in**-0.5
    assert 0.95 * bound < layer.weight.abs().max() <= bound
    assert layer.bias.abs().max() <= bound
    layer.reset(1.0)
    assert 1.65 < layer.weight.abs().max() <= 3**0.5


def test_a_convolution_is_compiled_and_exported_as_one_graph() -> None:
    net = nn.Sequential().add(nn.SpatialConvolution(2, 3, 3, 3)).add(nn.SpatialFullConvolution(3, 2, 3, 3))
    input = torch.randn(1, 2, 5, 5)
    exported = torch.export.export(net, (input,))
    assert torch.allclose(exported.module()(input), net(input))
    compiled = torch.compile(net, fullgraph=True, backend="eager")
    assert torch.allclose(compiled(input), net(input))
