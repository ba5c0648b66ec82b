"""Criterions: PyTorch's losses, where these are equal, else small classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ... import nn
from ..calls import Call, call
from .convolution import unless
from .table import Unmapped, rule


class Loss(NamedTuple):
    """What a class of criterions becomes.

    Attributes:
        name: the class of the loss.
        options: its arguments besides the weight and the reduction.
        sample: an input of the criterion and a target, for a number of classes.
        classes: whether the target is class numbers, which PyTorch takes as whole numbers only.
    """

    name: str
    sample: Callable[[int], tuple[Any, Any]]
    options: Callable[[Any], dict[str, Any]] = lambda m: {}
    classes: bool = False


def _numbers(n: int) -> tuple[Any, Any]:
    return torch.randn(3, n), torch.randn(3, n)


def _probabilities(n: int) -> tuple[Any, Any]:
    return torch.rand(3, n), torch.randint(2, (3, n)).float()


def _divergence(n: int) -> tuple[Any, Any]:
    return torch.randn(3, n).log_softmax(-1), torch.randn(3, n).softmax(-1)


def _classes(n: int) -> tuple[Any, Any]:
    return torch.randn(n, n).log_softmax(-1), torch.randperm(n)


def _places(n: int) -> tuple[Any, Any]:
    return torch.randn(2, n, 3, 4).log_softmax(1), torch.arange(2 * 3 * 4).view(2, 3, 4) % n


def _signs(n: int) -> tuple[Any, Any]:
    return torch.randn(3, n), torch.randint(2, (3, n)).float() * 2 - 1


def _labels(n: int) -> tuple[Any, Any]:
    due = torch.full((3, n), -1)
    due[:, 0] = torch.arange(3) % n
    return torch.randn(3, n), due


def _ignored(m: Any) -> dict[str, Any]:
    return {"ignore_index": unless(-100, m.ignore_index)}


LOSSES: dict[type, Loss] = {
    nn.AbsCriterion: Loss("nn.L1Loss", _numbers),
    nn.MSECriterion: Loss("nn.MSELoss", _numbers),
    nn.WeightedMSECriterion: Loss("WeightedMSELoss", _numbers),
    nn.SmoothL1Criterion: Loss("nn.SmoothL1Loss", _numbers),
    nn.DistKLDivCriterion: Loss("KLDivergence", _divergence),
    nn.ClassNLLCriterion: Loss("nn.NLLLoss", _classes, _ignored, True),
    nn.SpatialClassNLLCriterion: Loss("nn.NLLLoss", _places, classes=True),
    nn.CrossEntropyCriterion: Loss("nn.CrossEntropyLoss", _classes, lambda m: _ignored(m.nll), True),
    nn.BCECriterion: Loss("ShiftedBCELoss", _probabilities),
    nn.MultiLabelSoftMarginCriterion: Loss("nn.BCEWithLogitsLoss", _probabilities),
    nn.SoftMarginCriterion: Loss("nn.SoftMarginLoss", _signs),
    nn.MarginCriterion: Loss("MarginLoss", _signs, lambda m: {"margin": unless(1, m.margin)}),
    nn.HingeEmbeddingCriterion: Loss("nn.HingeEmbeddingLoss", _signs, lambda m: {"margin": unless(1, m.margin)}),
    nn.MultiMarginCriterion: Loss(
        "nn.MultiMarginLoss", _classes, lambda m: {"p": unless(1, m.p), "margin": unless(1, m.margin)}, True
    ),
    nn.MultiLabelMarginCriterion: Loss("nn.MultiLabelMarginLoss", _labels, classes=True),
}
"""What criterions become, by class."""


def loss_of(m: Any) -> Loss:
    """What a criterion becomes.

    Raises:
        Unmapped: nothing.
    """
    if type(m) not in LOSSES:
        raise Unmapped(f"there is no rule for the criterion {getattr(m, 'typename', type(m).__name__)}")
    return LOSSES[type(m)]


def loss_call(m: Any) -> tuple[Call, dict[str, Tensor | None]]:
    """The constructor of a loss, and its weight."""
    loss, parts = loss_of(m), getattr(m, "nll", m)
    if isinstance(m, nn.WeightedMSECriterion):
        return call(loss.name, tuple(m.weight.shape), reduction=_reduction(m)), {"weight": m.weight}
    weight: Tensor | None = getattr(parts, "weights", None)
    made: dict[str, Any] = {
        **loss.options(m),
        "weight": None if weight is None else Call("torch.ones", (str(len(weight)),)),
        "reduction": _reduction(parts),
    }
    return call(loss.name, **made), {"weight": weight}


def _reduction(m: Any) -> str | None:
    return None if m.size_average else "sum"


@rule(nn.CriterionTable, nn.ModuleFromCriterion, becomes="nn.NLLLoss, nn.MSELoss, ...")
def criterion_table(m: Any, table: Any, to: Any) -> Any:
    input, target = table
    if isinstance(input, list | dict) or isinstance(target, list | dict):
        raise Unmapped("its criterion's input or target is a table")
    made, state = loss_call(m.criterion)
    due = "{1}"
    if loss_of(m.criterion).classes:
        due = "{1}" if target.tensor.dtype is torch.long else "{1}.long()"
    elif target.shape != input.shape:
        due = "{1}.reshape_as({0})"
    loss = to.layer(input, made, "loss", target, code=f"{{layer}}({{0}}, {due})", **state)
    return to.code("{0}.reshape(1)", loss) if isinstance(m, nn.ModuleFromCriterion) else loss
