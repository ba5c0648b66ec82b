"""nnx's layers of images, and its small functions."""

from __future__ import annotations

from typing import Any

from ....nn.packs import nnx
from ...calls import call, text
from ...values import Value
from ..table import rule


@rule(nnx.SpatialNormalization, becomes="its modules, torch.where", container=True)
def normalization(m: Any, x: Value, to: Any) -> Any:
    image = x if x.ndim == 3 else to.code("{0}.unsqueeze(0)", x)
    inside = to.child(m.convo, "convo", to.code("torch.ones_like({0})", image))
    mean = to.code("{0} / {1}", to.child(m.convo, "convo", image), inside)
    centred = to.code("{0} - {1}", image, mean)
    squares = to.child(m.convostd, "convostd", to.code("{0}.square()", centred))
    deviation = to.code("{0}.sqrt() / {1}", squares, inside)
    if m.fixed_thres is None:
        least = to.code(f"{{0}}.mean().clamp(min={nnx.LEAST})", deviation)
        return to.code("{0} / torch.where({1} > {2}, {1}, {2})", centred, deviation, least)
    fixed = text(float(m.fixed_thres))
    return to.code(f"{{0}} / F.threshold({{1}}, {fixed}, {fixed})", centred, deviation)


@rule(nnx.SpatialPadding, becomes="F.pad")
def padding(m: Any, x: Value, to: Any) -> Any:
    borders = m.borders(x.tensor)
    while borders[-2:] == [0, 0] and len(borders) > 2:
        del borders[-2:]
    value = f", value={text(float(m.val))}" if m.val else ""
    return to.code(f"F.pad({{0}}, {text(tuple(borders))}{value})", x)


@rule(nnx.SpatialClassifier, becomes="its module, at every place", container=True)
def classifier(m: Any, x: Value, to: Any) -> Any:
    scores = to.child(m.classifier, "0", to.code("{0}.flatten(1).t()", x))
    if not m.spatial_output:
        return scores
    return to.code("{0}.t().unflatten(1, {1}.shape[1:])", scores, x)


@rule(nnx.SpatialLinear, becomes="nn.Conv2d")
def linear(m: Any, x: Value, to: Any) -> Any:
    fanout, fanin = m.weight.shape
    return to.layer(x, call("nn.Conv2d", fanin, fanout, 1), "conv", weight=m.weight[:, :, None, None], bias=m.bias)


@rule(nnx.SpatialUpSampling, becomes="x.repeat_interleave")
def up_sampling(m: Any, x: Value, to: Any) -> Any:
    return to.code(
        f"{{0}}.repeat_interleave({int(m.dh)}, {int(m.y_dim)}).repeat_interleave({int(m.dw)}, {int(m.x_dim)})", x
    )


@rule(nnx.SpatialDownSampling, becomes="nn.AvgPool2d")
def down_sampling(m: Any, x: Value, to: Any) -> Any:
    return to.layer(x, call("nn.AvgPool2d", (int(m.rh), int(m.rw))), "pool")


@rule(nnx.SaturatedLU, becomes="torch.where, or x.clamp")
def saturated(m: Any, x: Value, to: Any) -> Any:
    low, below, high, above = (float(v) for v in (m.threshold, m.val, m.threshold2, m.val2))
    if (low, high) == (below, above) and low <= high:
        return to.code(f"{{0}}.clamp({text(low)}, {text(high)})", x)
    raised = to.code(f"torch.where({{0}} < {text(low)}, {text(below)}, {{0}})", x)
    return to.code(f"torch.where({{0}} > {text(high)}, {text(above)}, {{0}})", raised)


@rule(nnx.Minus, becomes="-x")
def minus(m: Any, x: Value, to: Any) -> Any:
    return to.code("-{0}", x)


@rule(nnx.MultiSoftMax, becomes="x.softmax(-1)")
def multi_soft_max(m: Any, x: Value, to: Any) -> Any:
    return to.code("{0}.softmax(-1)", x)
