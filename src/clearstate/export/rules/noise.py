"""Layers that draw, and those that bend gradients only."""

from __future__ import annotations

from typing import Any

from ... import nn
from ..calls import call
from ..values import Value
from .table import rule


@rule(nn.Dropout, becomes="nn.Dropout")
def dropout(m: nn.Dropout, x: Value, to: Any) -> Any:
    if not m.p:
        return x
    if not m.v2:
        made = call("UnscaledDropout", m.p, always=True if m.stochastic_inference else None)
        return to.layer(x, made, "dropout")
    return to.layer(x, call("StochasticDropout" if m.stochastic_inference else "nn.Dropout", m.p), "dropout")


@rule(nn.SpatialDropout, nn.VolumetricDropout, becomes="UnscaledDropout")
def spatial_dropout(m: nn.SpatialDropout, x: Value, to: Any) -> Any:
    made = call("UnscaledDropout", m.p, dims=m.space, always=True if m.stochastic_inference else None)
    return to.layer(x, made, "dropout")


@rule(nn.WhiteNoise, becomes="WhiteNoise")
def white_noise(m: nn.WhiteNoise, x: Value, to: Any) -> Any:
    return to.layer(x, call("WhiteNoise", float(m.mean), float(m.std)), "noise")


@rule(nn.RReLU, becomes="nn.RReLU")
def rrelu(m: nn.RReLU, x: Value, to: Any) -> Any:
    return to.layer(x, call("nn.RReLU", float(m.lower), float(m.upper)), "relu")


@rule(nn.GradientReversal, becomes="GradientReversal")
def gradient_reversal(m: nn.GradientReversal, x: Value, to: Any) -> Any:
    return to.layer(x, call("GradientReversal", float(m.lambd)), "reversal")


@rule(nn.L1Penalty, becomes="L1Penalty")
def l1_penalty(m: nn.L1Penalty, x: Value, to: Any) -> Any:
    made = call(
        "L1Penalty",
        float(m.l1weight),
        size_average=True if m.size_average else None,
        add=None if m.provide_output else False,
    )
    return to.layer(x, made, "penalty")


@rule(nn.ZeroGrad, becomes="x.detach()")
def zero_grad(m: nn.ZeroGrad, x: Any, to: Any) -> Any:
    if isinstance(x, list):
        return [zero_grad(m, part, to) for part in x]
    if isinstance(x, dict):
        return {key: zero_grad(m, part, to) for key, part in x.items()}
    return to.code("{0}.detach()", x)
