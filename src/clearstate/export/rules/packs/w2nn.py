"""waifu2x's layers."""

from __future__ import annotations

from typing import Any

from ....nn.packs import w2nn
from ...calls import call
from ...values import Value
from ..table import rule
from .dpnn import straight


@rule(w2nn.LeakyReLU, becomes="nn.LeakyReLU")
def leaky_relu(m: Any, x: Value, to: Any) -> Any:
    return to.layer(x, call("nn.LeakyReLU", float(m.negative_scale)), "relu")


@rule(w2nn.InplaceClip01, becomes="x.clamp(0, 1), with the gradient of x")
def clip01(m: Any, x: Value, to: Any) -> Any:
    return straight(x, "clamp(0, 1)", to)


@rule(w2nn.ScaleTable, becomes="x * y")
def scale_table(m: Any, table: Any, to: Any) -> Any:
    return to.code("{0} * {1}", *table)


@rule(w2nn.ShakeShakeTable, becomes="x + y, as in evaluation")
def shake_shake(m: Any, table: Any, to: Any) -> Any:
    return to.code("{0} + {1}", *table)


@rule(w2nn.AuxiliaryLossTable, becomes="an entry of the table, as in evaluation")
def auxiliary(m: Any, table: Any, to: Any) -> Any:
    return table[m.i]


@rule(w2nn.GradWeight, becomes="GradientReversal")
def grad_weight(m: Any, x: Value, to: Any) -> Any:
    return to.layer(x, call("GradientReversal", -float(m.constant_scalar)), "weighted")


@rule(w2nn.Print, w2nn.PrintTable, becomes="nothing: it passes on")
def printed(m: Any, x: Any, to: Any) -> Any:
    return x


@rule(w2nn.DepthExpand2x, becomes="x.unflatten, x.permute, x.flatten")
def depth_expand(m: Any, x: Value, to: Any) -> Any:
    squares = to.code("{0}.unflatten(1, (2, 2, -1)).permute(0, 3, 4, 1, 5, 2)", x)
    return to.code("{0}.flatten(4, 5).flatten(2, 3)", squares)
