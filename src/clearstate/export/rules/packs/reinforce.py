"""dpnn's layers that draw, as in evaluation: what is likeliest, or the mean."""

from __future__ import annotations

from typing import Any

import torch

from ....nn.packs import reinforce
from ...calls import call
from ..table import Unmapped, rule


def _still(m: Any) -> None:
    if m.stochastic:
        raise Unmapped("it draws in evaluation: set stochastic = False")


@rule(reinforce.ReinforceBernoulli, reinforce.ReinforceCategorical, becomes="nothing: it draws in training")
def probabilities(m: Any, x: Any, to: Any) -> Any:
    _still(m)
    return x


@rule(reinforce.ReinforceNormal, becomes="its mean: it draws in training")
def normal(m: Any, input: Any, to: Any) -> Any:
    _still(m)
    return input[0] if isinstance(input, list) else input


@rule(reinforce.ReinforceGamma, becomes="x * scale: it draws in training")
def gamma(m: Any, input: Any, to: Any) -> Any:
    _still(m)
    if isinstance(input, list):
        return to.code("{0} * {1}", *input)
    if isinstance(m.scale, torch.Tensor):
        return to.layer(input, call("Fixed", *m.scale.shape), "scale", code="{0} * {layer}()", value=m.scale)
    return to.code(f"{{0}} * {float(m.scale)!r}", input)
