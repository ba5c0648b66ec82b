"""inn's layers."""

from __future__ import annotations

from typing import Any

from ....nn.packs import inn
from ...calls import call
from ...values import Value
from ..arithmetic import joined
from ..table import rule


@rule(inn.MeanSubtraction, becomes="x - mean")
def mean_subtraction(m: Any, x: Value, to: Any) -> Any:
    mean = (m.mean[0] if m.mean.dim() == 4 else m.mean).reshape(x.shape[-3:])
    return to.layer(x, call("Fixed", *mean.shape), "mean", code="{0} - {layer}()", value=mean)


@rule(inn.ConstAffine, inn.SpatialConstAffine, becomes="a * x + b")
def const_affine(m: Any, x: Value, to: Any) -> Any:
    size = (-1, *[1] * (x.ndim - 2))
    a, b = m.a.view(size), m.b.view(size)
    made = call("Fixed", *a.shape)
    scaled = to.layer(x, made, "scale", code="{0} * {layer}()", value=a)
    return to.layer(scaled, made, "shift", code="{0} + {layer}()", value=b)


@rule(inn.SpatialPyramidPooling, becomes="torch.cat", container=True)
def pyramid(m: Any, x: Value, to: Any) -> Any:
    return joined([to.child(child, name, x) for name, child in m.children_in_order()], x.ndim - 3, to)


@rule(inn.LocalResponseNormalization, becomes="its modules", container=True)
def local_response(m: Any, x: Value, to: Any) -> Any:
    return to.child(m.net, "net", x)


@rule(inn.SpatialStochasticPooling, becomes="StochasticPool2d")
def stochastic_pooling(m: Any, x: Value, to: Any) -> Any:
    return to.layer(x, call("StochasticPool2d", (int(m.kh), int(m.kw)), (int(m.dh), int(m.dw))), "pool")
