"""fast-neural-style's layers."""

from __future__ import annotations

from typing import Any

from ....nn.packs import fast_neural_style as fns
from ...calls import call
from ...values import Value
from ..convolution import unless
from ..table import rule


@rule(fns.InstanceNormalization, becomes="nn.InstanceNorm2d")
def instance_normalization(m: Any, x: Value, to: Any) -> Any:
    affine = True if m.weight is not None else None
    made = call("nn.InstanceNorm2d", int(m.n_output), eps=unless(1e-5, float(m.eps)), affine=affine)
    return to.layer(x, made, "norm", weight=m.weight, bias=m.bias)


@rule(fns.ShaveImage, becomes="x[:, :, n:-n, n:-n]")
def shave(m: Any, x: Value, to: Any) -> Any:
    size = int(m.size)
    return to.code(f"{{0}}[:, :, {size}:-{size}, {size}:-{size}]", x) if size else x


@rule(fns.TotalVariation, fns.DeepDreamLoss, becomes="nothing: its penalty is for training in Torch7")
def penalty(m: Any, x: Value, to: Any) -> Any:
    return x


@rule(fns.GramMatrix, becomes="x @ x.transpose(-1, -2)")
def gram(m: Any, x: Value, to: Any) -> Any:
    flat = to.code("{0}.flatten(-2)", x)
    products = to.code("{0} @ {0}.transpose(-1, -2)", flat)
    return to.code("{0} / ({1}.shape[-2] * {1}.shape[-1])", products, flat) if m.normalize else products
