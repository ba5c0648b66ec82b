"""Poolings and what puts back what they took: sizes by axis in PyTorch's order."""

from __future__ import annotations

import math
from typing import Any

from ... import nn
from ...nn.layers.windows.adaptive_pooling import exact, windows
from ..calls import Call, call
from ..values import Value
from .convolution import sizes, unless
from .table import Unmapped, rule


def _ceil(m: Any, pool: Call, nothing: float) -> Call:
    """The pooling with the windows that Torch7 has behind the end; where steps are not larger than windows, itself."""
    kernel, step = m.reach(), tuple(m.sizes("d"))
    if not m.ceil_mode or m.any_is_not("pad_", 0) or all(d <= k for k, d in zip(kernel, step, strict=True)):
        return pool
    return call("CeilPool", pool, kernel, step, nothing)


@rule(
    nn.SpatialMaxPooling,
    nn.SpatialDilatedMaxPooling,
    nn.VolumetricMaxPooling,
    nn.VolumetricDilatedMaxPooling,
    becomes="nn.MaxPool2d, nn.MaxPool3d",
)
def max_pooling(m: Any, x: Value, to: Any) -> Any:
    kernel, dilated = sizes(m, "k"), hasattr(m, "dilation_w")
    made = call(
        f"nn.MaxPool{len(m.axes)}d",
        kernel,
        stride=unless(kernel, sizes(m, "d")),
        padding=unless(0, sizes(m, "pad_")),
        dilation=unless(1, sizes(m, "dilation_")) if dilated else None,
        return_indices=True if m.unpooled else None,
        ceil_mode=True if m.ceil_mode else None,
    )
    if not m.unpooled:
        return to.layer(x, _ceil(m, made, -math.inf), "pool")
    output, indices = to.layer(x, made, "pool", results=2)
    to.pooled[id(m)] = (indices, x.now)
    return output


@rule(nn.SpatialMaxUnpooling, nn.VolumetricMaxUnpooling, becomes="nn.MaxUnpool2d, nn.MaxUnpool3d")
def unpooling(m: Any, x: Value, to: Any) -> Any:
    if id(m.pooling) not in to.pooled:
        raise Unmapped("the pooling it belongs to is not run before it in this net")
    indices, pooled = to.pooled[id(m.pooling)]
    axes = len(m.pooling.axes)
    made = call(f"nn.MaxUnpool{axes}d", sizes(m.pooling, "k"), padding=unless(0, sizes(m.pooling, "pad_")))
    code = f"{{layer}}({{0}}, {{1}}, {{2}}.shape[-{axes}:])"
    return to.layer(x, made, "unpool", indices, pooled, code=code)


@rule(nn.SpatialAveragePooling, becomes="nn.AvgPool2d")
def average(m: nn.SpatialAveragePooling, x: Value, to: Any) -> Any:
    kernel, padded = sizes(m, "k"), m.any_is_not("pad_", 0)
    made = call(
        "nn.AvgPool2d",
        kernel,
        stride=unless(kernel, sizes(m, "d")),
        padding=unless(0, sizes(m, "pad_")),
        ceil_mode=True if m.ceil_mode else None,
        count_include_pad=None if m.count_include_pad or not (padded or m.ceil_mode) else False,
    )
    mean = to.layer(x, _ceil(m, made, math.nan), "pool")
    return mean if m.divide else to.code(f"{{0}} * {math.prod(m.sizes('k'))}", mean)


@rule(nn.VolumetricAveragePooling, becomes="nn.AvgPool3d")
def volumetric_average(m: nn.VolumetricAveragePooling, x: Value, to: Any) -> Any:
    kernel = sizes(m, "k")
    return to.layer(x, call("nn.AvgPool3d", kernel, stride=unless(kernel, sizes(m, "d"))), "pool")


@rule(nn.SpatialAdaptiveMaxPooling, becomes="nn.AdaptiveMaxPool2d")
def adaptive_max(m: nn.SpatialAdaptiveMaxPooling, x: Value, to: Any) -> Any:
    size = (int(m.h), int(m.w))
    pairs = list(zip(x.shape[-2:], size, strict=True))
    if size == (1, 1) or all(windows(n, count) == exact(n, count) for n, count in pairs):
        return _adaptive(m, x, to, "nn.AdaptiveMaxPool2d")
    return to.layer(x, call("WideAdaptiveMaxPool2d", size), "pool")


@rule(nn.SpatialAdaptiveAveragePooling, becomes="nn.AdaptiveAvgPool2d")
def adaptive_average(m: nn.SpatialAdaptiveAveragePooling, x: Value, to: Any) -> Any:
    return _adaptive(m, x, to, "nn.AdaptiveAvgPool2d")


def _adaptive(m: Any, x: Value, to: Any, function: str) -> Any:
    size = (int(m.h), int(m.w))
    return to.layer(x, call(function, size[0] if size[0] == size[1] else size), "pool")


@rule(nn.TemporalMaxPooling, becomes="nn.MaxPool1d")
def temporal_max(m: nn.TemporalMaxPooling, x: Value, to: Any) -> Any:
    rows = to.code("{0}.transpose(-1, -2)", x)
    pooled = to.layer(rows, call("nn.MaxPool1d", int(m.kw), stride=unless(int(m.kw), int(m.dw))), "pool")
    return to.code("{0}.transpose(-1, -2)", pooled)


@rule(nn.TemporalDynamicKMaxPooling, becomes="LargestFrames")
def largest_frames(m: nn.TemporalDynamicKMaxPooling, x: Value, to: Any) -> Any:
    return to.layer(x, call("LargestFrames", int(m.min_k), unless(0, m.factor) or 0.0), "pool")


@rule(nn.SpatialSubSampling, becomes="SubSample2d")
def spatial_sub_sampling(m: nn.SpatialSubSampling, x: Value, to: Any) -> Any:
    made = call("SubSample2d", m.n_input_plane, tuple(m.sizes("k")), tuple(m.sizes("d")))
    return to.layer(x, made, "pool", weight=m.weight, bias=m.bias)


@rule(nn.TemporalSubSampling, becomes="SubSample1d")
def temporal_sub_sampling(m: nn.TemporalSubSampling, x: Value, to: Any) -> Any:
    return to.layer(x, call("SubSample1d", m.input_frame_size, m.kw, m.dw), "pool", weight=m.weight, bias=m.bias)


@rule(nn.FeatureLPPooling, becomes="FeatureLPPool")
def feature_lp(m: nn.FeatureLPPooling, x: Value, to: Any) -> Any:
    return to.layer(x, call("FeatureLPPool", m.power, m.width, m.stride, 1 if m.batch_mode else 0), "pool")


@rule(nn.SpatialFractionalMaxPooling, becomes="nn.FractionalMaxPool2d")
def fractional(m: Any, x: Value, to: Any) -> Any:
    return _fractional(m, x, to, "nn.FractionalMaxPool2d")


@rule(nn.VolumetricFractionalMaxPooling, becomes="FractionalMaxPool3d")
def volumetric_fractional(m: Any, x: Value, to: Any) -> Any:
    return _fractional(m, x, to, "FractionalMaxPool3d")


def _fractional(m: Any, x: Value, to: Any, function: str) -> Any:
    if m.new_random_pool:
        raise Unmapped("its regions are fixed")
    by_size = m.ratio_w is None
    size, ratio = (tuple(m.sizes("out_")), None) if by_size else (None, tuple(m.sizes("ratio_")))
    made = call(function, tuple(m.sizes("pool_size_")), output_size=size, output_ratio=ratio)
    return to.layer(x, made, "pool")
