"""Functions of each element, and the soft maxima."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import nn
from ...nn.layers.activation import classes_of
from ..calls import Call, call, text
from ..values import Value
from .convolution import unless
from .table import rule

MODULES: dict[type, tuple[str, str | None]] = {
    nn.ReLU6: ("nn.ReLU6", None),
    nn.Sigmoid: ("nn.Sigmoid", "torch.sigmoid({0})"),
    nn.LogSigmoid: ("nn.LogSigmoid", "F.logsigmoid({0})"),
    nn.Tanh: ("nn.Tanh", "torch.tanh({0})"),
    nn.TanhShrink: ("nn.Tanhshrink", None),
    nn.SoftSign: ("nn.Softsign", "F.softsign({0})"),
}
"""Classes without parameters: their module, and the function where one stands alone."""

CODES: dict[type, str] = {
    nn.Abs: "{0}.abs()",
    nn.Exp: "{0}.exp()",
    nn.Log: "{0}.log()",
    nn.Square: "{0}.square()",
    nn.Sqrt: "{0}.sqrt()",
}
"""Classes that are a method of the tensor."""


def _module(made: Call, function: str | None) -> Callable[[Any, Value, Any], Any]:
    def convert(m: Any, x: Value, to: Any) -> Any:
        return to.layer(x, made, made.function.removeprefix("nn.").lower(), function=function)

    return convert


def _code(code: str) -> Callable[[Any, Value, Any], Any]:
    def convert(m: Any, x: Value, to: Any) -> Any:
        return to.code(code, x)

    return convert


for _cls, (_name, _function) in MODULES.items():
    rule(_cls, becomes=_name)(_module(Call(_name), _function))
for _cls, _method in CODES.items():
    rule(_cls, becomes=_method.format("x"))(_code(_method))


@rule(nn.Threshold, nn.ReLU, becomes="nn.Threshold, nn.ReLU")
def threshold(m: nn.Threshold, x: Value, to: Any) -> Any:
    if not m.threshold and not m.val:
        return to.layer(x, Call("nn.ReLU"), "relu", function="F.relu({0})")
    return to.layer(x, call("nn.Threshold", float(m.threshold), float(m.val)), "threshold")


@rule(nn.HardTanh, nn.Clamp, becomes="nn.Hardtanh")
def hard_tanh(m: nn.HardTanh, x: Value, to: Any) -> Any:
    ends = (float(m.min_val), float(m.max_val))
    made = call("nn.Hardtanh", *(ends if ends != (-1, 1) else ()))
    return to.layer(x, made, "hardtanh")


@rule(nn.HardShrink, becomes="nn.Hardshrink")
def hard_shrink(m: nn.HardShrink, x: Value, to: Any) -> Any:
    return to.layer(x, call("nn.Hardshrink", *_unless(0.5, m.lambd)), "hardshrink")


@rule(nn.SoftShrink, becomes="nn.Softshrink")
def soft_shrink(m: nn.SoftShrink, x: Value, to: Any) -> Any:
    return to.layer(x, call("nn.Softshrink", *_unless(0.5, m.lambd)), "softshrink")


@rule(nn.ELU, becomes="nn.ELU")
def elu(m: nn.ELU, x: Value, to: Any) -> Any:
    return to.layer(x, call("nn.ELU", *_unless(1, m.alpha)), "elu")


@rule(nn.LeakyReLU, becomes="nn.LeakyReLU")
def leaky_relu(m: nn.LeakyReLU, x: Value, to: Any) -> Any:
    return to.layer(x, call("nn.LeakyReLU", *_unless(0.01, m.negval)), "relu")


@rule(nn.PReLU, becomes="nn.PReLU")
def prelu(m: nn.PReLU, x: Value, to: Any) -> Any:
    made = call("nn.PReLU", *_unless(1, m.weight.numel()))
    if m.n_output_plane and x.ndim == 1:
        batch = to.code("{0}.unsqueeze(0)", x)
        return to.code("{0}.squeeze(0)", to.layer(batch, made, "prelu", weight=m.weight))
    return to.layer(x, made, "prelu", weight=m.weight)


@rule(nn.SoftPlus, becomes="nn.Softplus")
def soft_plus(m: nn.SoftPlus, x: Value, to: Any) -> Any:
    made = call("nn.Softplus", *_unless(1, m.beta), threshold=unless(20, m.threshold))
    return to.layer(x, made, "softplus")


@rule(nn.Power, becomes="x.pow(power)")
def power(m: nn.Power, x: Value, to: Any) -> Any:
    return to.code(f"{{0}}.pow({text(m.pow)})", x)


@rule(nn.SoftMax, nn.SpatialSoftMax, becomes="nn.Softmax")
def soft_max(m: Any, x: Value, to: Any) -> Any:
    return to.layer(x, call("nn.Softmax", dim=classes_of(x.tensor)), "softmax")


@rule(nn.SoftMin, becomes="nn.Softmin")
def soft_min(m: Any, x: Value, to: Any) -> Any:
    return to.layer(x, call("nn.Softmin", dim=classes_of(x.tensor)), "softmin")


@rule(nn.LogSoftMax, nn.SpatialLogSoftMax, becomes="nn.LogSoftmax")
def log_soft_max(m: Any, x: Value, to: Any) -> Any:
    return to.layer(x, call("nn.LogSoftmax", dim=classes_of(x.tensor)), "softmax")


@rule(nn.GatedLinearUnit, becomes="nn.GLU")
def gated(m: nn.GatedLinearUnit, x: Value, to: Any) -> Any:
    return to.layer(x, call("nn.GLU", *_unless(-1, -1 if m.dim is None else m.dim)), "glu")


def _unless(usual: float, value: float) -> tuple[float, ...]:
    return () if value == usual else (value,)
