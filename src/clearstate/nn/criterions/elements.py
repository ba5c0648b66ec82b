"""How far numbers are from the numbers due: losses of each element, added up or averaged; and losses of losses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...formats import t7
from ..declarations.bad_input import describe, expect, expect_table
from ..declarations.fields import plain
from ..protocol.module import Criterion


def expect_alike(input: Any, target: Any) -> None:
    """Checks that input and target are tensors with the same number of elements.

    Raises:
        TypeError: one of them is no tensor.
        ValueError: they have not.
    """
    expect(input)
    expect(target)
    if input.numel() != target.numel():
        raise ValueError(
            f"expected a target of as many elements as the input ({describe(input)}), got {describe(target)}"
        )


class _Averaged(Criterion):
    """A loss that is a sum over elements or samples: ``size_average`` says whether it is divided by their number."""

    fields = plain("sizeAverage")
    size_average: bool = True

    @property
    def reduction(self) -> str:
        """``size_average`` in PyTorch's words."""
        return "mean" if self.size_average else "sum"

    def reduced(self, losses: Tensor) -> Tensor:
        """The mean or the sum of losses."""
        return losses.mean() if self.size_average else losses.sum()


class AbsCriterion(_Averaged):
    """The absolute difference of input and target. Follows Torch7's ``nn/AbsCriterion.lua``.

    >>> AbsCriterion()(torch.tensor([1.0, 5.0]), torch.tensor([2.0, 2.0]))
    tensor(2.)
    """

    def __init__(self, size_average: bool = True) -> None:
        super().__init__()
        self.size_average = size_average

    def update_output(self, input: Tensor, target: Tensor) -> Tensor:
        expect_alike(input, target)
        difference = input - target.reshape_as(input)
        return self.reduced(torch.where(difference >= 0, difference, -difference))


class MSECriterion(_Averaged):
    """The squared difference of input and target. Follows Torch7's ``nn/MSECriterion.lua``.

    >>> MSECriterion()(torch.tensor([1.0, 5.0]), torch.tensor([2.0, 2.0]))
    tensor(5.)
    """

    def __init__(self, size_average: bool = True) -> None:
        super().__init__()
        self.size_average = size_average

    def update_output(self, input: Tensor, target: Any) -> Tensor:
        expect_alike(input, target)
        return F.mse_loss(input, target.reshape_as(input), reduction=self.reduction)


class WeightedMSECriterion(MSECriterion):
    """The squared difference of the input and the target times a weight.

    Shapes: the weight's is that of the target, or of each sample of it. Follows Torch7's
    ``nn/WeightedMSECriterion.lua``.

    >>> WeightedMSECriterion(torch.tensor([1.0, 0.5]))(torch.tensor([1.0, 5.0]), torch.tensor([2.0, 2.0]))
    tensor(8.5000)
    """

    weight: Tensor

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.register_buffer("weight", weight.detach().clone())

    def update_output(self, input: Tensor, target: Any) -> Tensor:
        expect_alike(input, target)
        if self.weight.numel() not in (input.numel(), input[:1].numel()):
            raise ValueError(
                f"the weight is {describe(self.weight)}, not that of the input or of one sample: {describe(input)}"
            )
        shape = input.shape if self.weight.numel() == input.numel() else input.shape[1:]
        return super().update_output(input, target.reshape_as(input) * self.weight.view(shape))


class SpatialAutoCropMSECriterion(MSECriterion):
    """The squared difference of the input and the middle of the target.

    Shapes: ``planes x height x width`` or ``batch x planes x height x width``; the target's height and width are not
    less than the input's. Follows Torch7's ``nn/SpatialAutoCropMSECriterion.lua``.

    >>> target = torch.zeros(1, 3, 3)
    >>> target[0, 1, 1] = 2
    >>> SpatialAutoCropMSECriterion()(torch.zeros(1, 1, 1), target)
    tensor(4.)
    """

    def update_output(self, input: Tensor, target: Any) -> Tensor:
        expect(input, dims=(3, 4))
        expect(target, dims=(input.dim(),))
        height, width = input.shape[-2:]
        if target.shape[-2] < height or target.shape[-1] < width:
            raise ValueError(f"expected a target no smaller than the input ({describe(input)}), got {describe(target)}")
        top, left = (target.shape[-2] - height) // 2, (target.shape[-1] - width) // 2
        return super().update_output(input, target[..., top : top + height, left : left + width].contiguous())


class SmoothL1Criterion(_Averaged):
    """Half the squared difference of input and target where it is below 1, else the difference less a half.

    Follows Torch7's ``nn/SmoothL1Criterion.lua``.

    >>> SmoothL1Criterion()(torch.tensor([1.0, 5.0]), torch.tensor([2.0, 2.0]))
    tensor(1.5000)
    """

    def __init__(self, size_average: bool = True) -> None:
        super().__init__()
        self.size_average = size_average

    def update_output(self, input: Tensor, target: Tensor) -> Tensor:
        expect_alike(input, target)
        return F.smooth_l1_loss(input, target.reshape_as(input), reduction=self.reduction)


class L1Cost(Criterion):
    """The sum of the input's absolute values; it takes no target. Follows Torch7's ``nn/L1Cost.lua``.

    >>> L1Cost()(torch.tensor([1.0, -5.0]))
    tensor(6.)
    """

    def update_output(self, input: Tensor, target: Any = None) -> Tensor:
        expect(input)
        return input.abs().sum()


class DistKLDivCriterion(_Averaged):
    """The Kullback-Leibler divergence of the input, log-probabilities, from the target, probabilities.

    Follows Torch7's ``nn/DistKLDivCriterion.lua``: the average is over elements, not samples.

    >>> p = torch.tensor([0.25, 0.75])
    >>> DistKLDivCriterion()(p.log(), p)
    tensor(0.)
    """

    def update_output(self, input: Tensor, target: Tensor) -> Tensor:
        expect(input)
        expect(target, dims=(input.dim(),), size=dict(enumerate(input.shape)))
        return self.reduced(torch.where(target > 0, target * (target.log() - input), 0))


class _Joint(Criterion):
    """Holds criterions, each with a weight. They count from 0: ``criterion[0]``."""

    fields = plain("criterions weights")

    weights: list[float]

    def __init__(self) -> None:
        super().__init__()
        self.weights = []

    def add(self, criterion: Criterion, weight: float = 1) -> Any:
        """Adds a criterion; its loss counts ``weight`` times. Returns this one."""
        self.add_module(str(len(self.weights)), criterion)
        self.weights.append(weight)
        return self

    @property
    def criterions(self) -> list[Any]:
        """The criterions, in order."""
        return list(self._modules.values())

    @criterions.setter
    def criterions(self, criterions: Iterable[Any]) -> None:
        for i, criterion in enumerate(criterions):
            self.add_module(str(i), criterion)

    def children_in_order(self) -> list[tuple[str, torch.nn.Module]]:
        return []  # files have them in `criterions`

    def __len__(self) -> int:
        return len(self.weights)

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, index: int) -> Any:
        return self.criterions[index]

    def total(self, inputs: Iterable[Any], targets: Iterable[Any]) -> Tensor:
        """The sum of the losses, each times its weight.

        Raises:
            ValueError: there is no criterion.
        """
        parts = zip(self.weights, self.criterions, inputs, targets, strict=False)
        losses = [weight * criterion(input, target) for weight, criterion, input, target in parts]
        if not losses:
            raise ValueError(f"{self.typename} has no criterion: add one")
        return torch.stack([loss.reshape(()) for loss in losses]).sum()


class MultiCriterion(_Joint):
    """Several losses of one input and one target, added up. Follows Torch7's ``nn/MultiCriterion.lua``.

    >>> import clearstate.nn as nn
    >>> both = MultiCriterion().add(nn.MSECriterion()).add(nn.AbsCriterion(), 10)
    >>> both(torch.tensor([3.0]), torch.tensor([1.0]))
    tensor(24.)
    """

    def update_output(self, input: Any, target: Any = None) -> Tensor:
        return self.total([input] * len(self), [target] * len(self))

    @classmethod
    def upgrade(cls, fields: dict[Any, Any], version: int | None) -> None:
        fields["weights"] = t7.Table.of(map(float, fields["weights"].numpy()))

    def to_object(self, obj: Any, writing: Any) -> None:
        super().to_object(obj, writing)
        obj.state["weights"] = t7.Storage.of("torch.DoubleStorage", self.weights)


class ParallelCriterion(_Joint):
    """A loss for each entry of a table, with the target's entry (or all of it: ``repeat_target``), added up.

    Follows Torch7's ``nn/ParallelCriterion.lua``.

    >>> import clearstate.nn as nn
    >>> both = ParallelCriterion().add(nn.MSECriterion()).add(nn.AbsCriterion(), 10)
    >>> both([torch.tensor([3.0]), torch.tensor([2.0])], [torch.tensor([1.0]), torch.tensor([1.0])])
    tensor(14.)
    """

    fields = plain("repeatTarget")
    repeat_target: bool | None = None

    def __init__(self, repeat_target: bool | None = None) -> None:
        super().__init__()
        self.repeat_target = repeat_target

    def update_output(self, input: Any, target: Any = None) -> Tensor:
        expect_table(input, len(self))
        if self.repeat_target:
            return self.total(input, [target] * len(self))
        expect_table(target, len(self))
        return self.total(input, target)
