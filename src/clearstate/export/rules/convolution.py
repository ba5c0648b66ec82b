"""Convolutions: sizes by axis in PyTorch's order, weights in its shape."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ... import nn
from ..calls import call
from ..values import Value
from .table import Unmapped, rule


def sizes(module: Any, name: str) -> Any:
    """A size for each axis, or one number where they are the same.

    >>> sizes(nn.SpatialConvolution(1, 1, 3, 5), "k"), sizes(nn.SpatialConvolution(1, 1, 3, 3), "k")
    ((5, 3), 3)
    """
    found = tuple(int(size) for size in module.sizes(name))
    return found[0] if len(set(found)) == 1 else found


def unless(usual: Any, value: Any) -> Any:
    """The value, or `None` where it is the usual one: an argument to leave out."""
    return None if value == usual else value


def convolution(
    m: Any, x: Any, to: Any, function: str, weight: Tensor, bias: Tensor | None, planes: tuple[int, int], **named: Any
) -> Any:
    """A convolution of PyTorch's with this module's window, step and padding."""
    inputs, outputs = planes
    stride, padding = sizes(m, "d"), sizes(m, "pad_") if hasattr(m, "pad_w") else 0
    made = call(
        function,
        int(inputs),
        int(outputs),
        sizes(m, "k"),
        stride=unless(1, stride),
        padding=unless(0, padding),
        **named,
        bias=None if bias is not None else False,
    )
    return to.layer(x, made, "conv", weight=weight, bias=bias)


@rule(nn.SpatialConvolution, nn.SpatialConvolutionMM, nn.SpatialDilatedConvolution, becomes="nn.Conv2d")
def spatial(m: Any, x: Value, to: Any) -> Any:
    dilation = sizes(m, "dilation_") if isinstance(m, nn.SpatialDilatedConvolution) else 1
    groups = 1 if isinstance(m, nn.SpatialDilatedConvolution) else m.groups
    planes = (m.n_input_plane, m.n_output_plane)
    return convolution(
        m, x, to, "nn.Conv2d", m.kernels(), m.bias, planes, dilation=unless(1, dilation), groups=unless(1, groups)
    )


@rule(nn.SpatialDepthWiseConvolution, becomes="nn.Conv2d with groups")
def depthwise(m: nn.SpatialDepthWiseConvolution, x: Value, to: Any) -> Any:
    weight = m.kernels().transpose(0, 1).reshape(-1, 1, m.kh, m.kw)
    bias = None if m.bias is None else m.bias.t().reshape(-1)
    planes = (m.n_input_plane, m.n_input_plane * m.n_output_plane)
    return convolution(m, x, to, "nn.Conv2d", weight, bias, planes, groups=m.n_input_plane)


@rule(nn.SpatialConvolutionLocal, becomes="LocalConv2d")
def local(m: nn.SpatialConvolutionLocal, x: Value, to: Any) -> Any:
    made = call(
        "LocalConv2d",
        (m.n_input_plane, m.n_output_plane),
        (m.kh, m.kw),
        (m.oh, m.ow),
        stride=unless((1, 1), tuple(m.sizes("d"))),
        padding=unless((0, 0), tuple(m.sizes("pad_"))),
        bias=None if m.bias is not None else False,
    )
    return to.layer(x, made, "conv", weight=m.weight, bias=m.bias)


@rule(nn.TemporalConvolution, becomes="nn.Conv1d")
def temporal(m: nn.TemporalConvolution, x: Value, to: Any) -> Any:
    weight = m.weight.view(-1, m.kw, m.input_frame_size).transpose(1, 2)
    planes = (m.input_frame_size, m.output_frame_size)
    rows = to.code("{0}.transpose(-1, -2)", x)
    return to.code("{0}.transpose(-1, -2)", convolution(m, rows, to, "nn.Conv1d", weight, m.bias, planes))


@rule(nn.TemporalRowConvolution, becomes="nn.Conv1d with groups")
def temporal_row(m: nn.TemporalRowConvolution, x: Value, to: Any) -> Any:
    rows = x if m.feat_first else to.code("{0}.transpose(-1, -2)", x)
    planes = (m.input_frame_size, m.input_frame_size)
    made = convolution(m, rows, to, "nn.Conv1d", m.weight, m.bias, planes, groups=m.input_frame_size)
    return made if m.feat_first else to.code("{0}.transpose(-1, -2)", made)


@rule(nn.VolumetricConvolution, nn.VolumetricDilatedConvolution, becomes="nn.Conv3d")
def volumetric(m: Any, x: Value, to: Any) -> Any:
    weight = m.weight.view(m.n_output_plane, m.n_input_plane, *m.sizes("k"))
    spread = tuple(m.spread())
    dilation = spread[0] if len(set(spread)) == 1 else spread
    planes = (m.n_input_plane, m.n_output_plane)
    return convolution(m, x, to, "nn.Conv3d", weight, m.bias, planes, dilation=unless(1, dilation))


@rule(nn.SpatialFullConvolution, becomes="nn.ConvTranspose2d")
def spatial_full(m: nn.SpatialFullConvolution, x: Any, to: Any) -> Any:
    return _full(m, x, to, "nn.ConvTranspose2d", 2)


@rule(nn.VolumetricFullConvolution, becomes="nn.ConvTranspose3d")
def volumetric_full(m: nn.VolumetricFullConvolution, x: Any, to: Any) -> Any:
    return _full(m, x, to, "nn.ConvTranspose3d", 3)


def _full(m: Any, x: Any, to: Any, function: str, axes: int) -> Any:
    made = call(
        function,
        m.n_input_plane,
        m.n_output_plane,
        sizes(m, "k"),
        stride=unless(1, sizes(m, "d")),
        padding=unless(0, sizes(m, "pad_")),
        output_padding=unless(0, sizes(m, "adj_")) if isinstance(x, Value) else None,
        bias=None if m.bias is not None else False,
    )
    if isinstance(x, Value):
        return to.layer(x, made, "deconv", weight=m.weight, bias=m.bias)
    if not (isinstance(x, list) and len(x) == 2 and all(isinstance(part, Value) for part in x)):
        raise Unmapped("its input is neither an image nor a pair of an image and another tensor")
    code = f"{{layer}}({{0}}, {{1}}.shape[-{axes}:])"
    return to.layer(x, made, "deconv", code=code, weight=m.weight, bias=m.bias)


@rule(nn.SpatialConvolutionMap, nn.SpatialFullConvolutionMap, becomes="MapConv2d")
def mapped(m: Any, x: Value, to: Any) -> Any:
    made = call(
        "MapConv2d",
        (int(m.n_input_plane), int(m.n_output_plane)),
        len(m.weight),
        tuple(m.sizes("k")),
        stride=unless((1, 1), tuple(m.sizes("d"))),
        transposed=True if isinstance(m, nn.SpatialFullConvolutionMap) else None,
    )
    return to.layer(x, made, "conv", weight=m.weight, bias=m.bias, pairs=m.conn_table.long())
