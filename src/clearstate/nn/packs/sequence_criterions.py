"""rnn's losses over sequences: a criterion applied to each step, with a target each or the same one."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..declarations.bad_input import describe, expect_table
from ..declarations.fields import plain
from ..protocol.module import Criterion


class _OverSteps(Criterion):
    """What both have in common: the criterion, which has no state, and the sum over the steps."""

    fields = plain("criterion")
    criterion: Criterion

    def __init__(self, criterion: Criterion) -> None:
        super().__init__()
        self.criterion = criterion

    def total(self, inputs: Any, targets: Any) -> Any:
        """The sum of the losses of the steps."""
        if not isinstance(inputs, Tensor):
            expect_table(inputs)
        if not len(inputs):
            raise ValueError("expected a sequence of at least one step")
        return sum(self.criterion(input, target) for input, target in zip(inputs, targets, strict=True))


class SequencerCriterion(_OverSteps):
    """The sum of a criterion over the steps of a sequence, each with the target of its own.

    Args:
        criterion: the loss of a step.
        size_average: divide by the number of steps.

    Shapes: tables of as many steps, or tensors whose first dimension they are. Follows rnn's
    ``SequencerCriterion.lua``.

    >>> import torch
    >>> import clearstate.nn as nn
    >>> SequencerCriterion(nn.MSECriterion()).forward(torch.ones(3, 2), torch.zeros(3, 2))
    3.0
    """

    fields = plain("sizeAverage")
    size_average: bool = False

    def __init__(self, criterion: Criterion, size_average: bool = False) -> None:
        super().__init__(criterion)
        self.size_average = size_average

    def update_output(self, input: Any, target: Any = None) -> Any:
        if isinstance(input, Tensor) != isinstance(target, Tensor) or len(input) != len(target):
            raise ValueError(f"expected a target a step, as many as inputs, got {describe(target)}")
        total = self.total(input, target)
        return total / len(input) if self.size_average else total


class RepeaterCriterion(_OverSteps):
    """The sum of a criterion over the steps of a sequence, with one target for all.

    Shapes: a table of steps, or a tensor whose first dimension they are. Follows rnn's ``RepeaterCriterion.lua``.

    >>> import torch
    >>> import clearstate.nn as nn
    >>> RepeaterCriterion(nn.MSECriterion()).forward([torch.ones(2), torch.zeros(2)], torch.zeros(2))
    1.0
    """

    def update_output(self, input: Any, target: Any = None) -> Any:
        return self.total(input, [target] * len(input))
