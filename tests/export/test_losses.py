"""Criterions become PyTorch's losses, alone and as a part of a net."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import clearstate as cs
import clearstate.nn as nn
from clearstate.export.rules.losses import LOSSES
from tests.export.written import imported

WEIGHTS = torch.tensor([0.5, 1.0, 2.0, 0.25])

CRITERIONS: dict[str, tuple[Callable[[], Any], str]] = {
    "AbsCriterion": (nn.AbsCriterion, "L1Loss"),
    "MSECriterion": (nn.MSECriterion, "MSELoss"),
    "WeightedMSECriterion": (lambda: nn.WeightedMSECriterion(WEIGHTS.repeat(3, 1)), "WeightedMSELoss"),
    "SmoothL1Criterion": (nn.SmoothL1Criterion, "SmoothL1Loss"),
    "DistKLDivCriterion": (nn.DistKLDivCriterion, "KLDivergence"),
    "ClassNLLCriterion": (lambda: nn.ClassNLLCriterion(WEIGHTS, ignore_index=2), "NLLLoss"),
    "SpatialClassNLLCriterion": (lambda: nn.SpatialClassNLLCriterion(WEIGHTS), "NLLLoss"),
    "CrossEntropyCriterion": (lambda: nn.CrossEntropyCriterion(WEIGHTS), "CrossEntropyLoss"),
    "BCECriterion": (lambda: nn.BCECriterion(WEIGHTS), "ShiftedBCELoss"),
    "MultiLabelSoftMarginCriterion": (lambda: nn.MultiLabelSoftMarginCriterion(WEIGHTS), "BCEWithLogitsLoss"),
    "SoftMarginCriterion": (nn.SoftMarginCriterion, "SoftMarginLoss"),
    "MarginCriterion": (lambda: nn.MarginCriterion(0.5), "MarginLoss"),
    "HingeEmbeddingCriterion": (lambda: nn.HingeEmbeddingCriterion(0.5), "HingeEmbeddingLoss"),
    "MultiMarginCriterion": (lambda: nn.MultiMarginCriterion(2, WEIGHTS, 0.5), "MultiMarginLoss"),
    "MultiLabelMarginCriterion": (nn.MultiLabelMarginCriterion, "MultiLabelMarginLoss"),
}


def made(name: str, average: bool) -> tuple[Any, Any, Any]:
    """A criterion in double, an input of it and a target."""
    criterion = CRITERIONS[name][0]().double()
    criterion.size_average = average
    input, target = LOSSES[type(criterion)].sample(4)
    return criterion, input.double(), target.double() if target.is_floating_point() else target


def test_every_loss_of_the_table_is_tested() -> None:
    assert {cls.__name__ for cls in LOSSES} == set(CRITERIONS)


@pytest.mark.parametrize("average", [True, False])
@pytest.mark.parametrize("name", CRITERIONS)
def test_a_criterion_becomes_the_loss_with_its_gradients(name: str, average: bool) -> None:
    criterion, input, target = made(name, average)
    loss: Any = cs.to_stock(criterion)
    assert type(loss).__name__ == CRITERIONS[name][1]
    x, y = input.clone().requires_grad_(), input.clone().requires_grad_()
    ours, due = loss(x, target), criterion(y, target)
    ours.backward()
    due.backward()
    torch.testing.assert_close((ours, x.grad), (due, y.grad), rtol=1e-10, atol=1e-12)
    assert torch.equal(copy.deepcopy(loss)(input, target), ours)


@pytest.mark.parametrize("around", [nn.CriterionTable, nn.ModuleFromCriterion])
@pytest.mark.parametrize("name", CRITERIONS)
def test_a_criterion_within_a_net_is_written_with_it(name: str, around: Any, tmp_path: Path) -> None:
    criterion, input, target = made(name, True)
    net = nn.Sequential(nn.ParallelTable().add(nn.MulConstant(0.5)).add(nn.Identity()), around(criterion)).double()
    cs.write_definition(net, tmp_path / "net.py", [input, target])
    loaded = imported(tmp_path / "net.py").load()
    torch.testing.assert_close(loaded([input, target]), net([input, target]), rtol=1e-10, atol=1e-12)


def test_class_numbers_of_any_type_are_taken_within_a_net() -> None:
    x, y = nn.Identity()(), nn.Identity()()
    net = nn.gModule([x, y], [nn.CriterionTable(nn.ClassNLLCriterion())([nn.LogSoftMax()(nn.Linear(3, 4)(x)), y])])
    sample = [torch.randn(2, 3), torch.tensor([1.0, 3.0])]
    torch.testing.assert_close(cs.to_stock(net, sample)(sample), net(sample))


def test_a_loss_that_differs_from_the_criterion_is_refused() -> None:
    with pytest.raises(cs.ConversionError, match=r"nn.ClassNLLCriterion as nn.NLLLoss\(.*\) does not give the same"):
        cs.to_stock(nn.ClassNLLCriterion(ignore_index=1), [torch.randn(1, 3), torch.tensor([1])])
