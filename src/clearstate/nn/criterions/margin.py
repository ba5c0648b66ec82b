"""Losses that are zero once a score, a difference or a distance is beyond a margin."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..declarations.bad_input import describe, expect, expect_table
from ..declarations.fields import plain
from ..layers.distance import cosine
from ..protocol.module import Criterion
from .classification import _Weighted, as_classes, expect_classes
from .elements import _Averaged, expect_alike


class MarginCriterion(_Averaged):
    """How far the input, times a target of 1 or -1, stays below the margin.

    Follows Torch7's ``nn/MarginCriterion.lua``.

    >>> MarginCriterion()(torch.tensor([0.5, 2.0]), torch.tensor([1.0, -1.0]))
    tensor(1.7500)
    """

    fields = plain("margin")

    def __init__(self, margin: float = 1) -> None:
        super().__init__()
        self.margin = margin

    def update_output(self, input: Tensor, target: Tensor) -> Tensor:
        expect_alike(input, target)
        return self.reduced(F.relu(self.margin - input * target.reshape_as(input)))


class SoftMarginCriterion(_Averaged):
    """``log(1 + exp(-x y))`` for a target ``y`` of 1 or -1. Follows Torch7's ``nn/SoftMarginCriterion.lua``.

    >>> SoftMarginCriterion()(torch.zeros(3), torch.ones(3)).exp()
    tensor(2.)
    """

    def update_output(self, input: Tensor, target: Tensor) -> Tensor:
        expect_alike(input, target)
        return self.reduced(-F.logsigmoid(input * target.reshape_as(input)))


class MultiMarginCriterion(_Weighted):
    """How far each other class's score, plus the margin, exceeds that of the class due; the mean over classes.

    Shapes: ``classes`` or ``batch x classes`` scores; a class number or ``batch`` of them. Follows Torch7's
    ``nn/MultiMarginCriterion.lua``.

    Args:
        p: 1, or 2 for the square of each.
        weights: one a class.
        margin: see above.

    >>> MultiMarginCriterion()(torch.tensor([0.5, 0.0, 3.0, 1.0]), 2)
    tensor(0.)
    """

    fields = plain("p margin")
    p: int = 1
    margin: float

    def __init__(self, p: int = 1, weights: Tensor | None = None, margin: float = 1.0) -> None:
        super().__init__(weights)
        if p not in (1, 2):
            raise ValueError(f"p is 1 or 2, not {p}")
        self.p = p
        self.margin = margin

    def update_output(self, input: Tensor, target: Any) -> Tensor:
        expect(input, dims=(1, 2))
        classes = as_classes(target, input).reshape(-1)
        batch = input if input.dim() == 2 else input.unsqueeze(0)
        expect(classes, dims=(1,), size={0: len(batch)})
        expect_classes(classes, batch.shape[1])
        return F.multi_margin_loss(batch, classes, self.p, self.margin, self.weights, reduction=self.reduction)


class MultiLabelMarginCriterion(_Averaged):
    """How far each score of a class not due, plus 1, exceeds that of each class due; by the number of classes.

    Shapes: ``classes`` or ``batch x classes`` scores; the target's too: the classes due come first, -1 ends them.
    Follows Torch7's ``nn/MultiLabelMarginCriterion.lua``.

    >>> scores, due = torch.tensor([0.1, 0.2, 0.4, 0.8]), torch.tensor([3, 0, -1, -1])
    >>> MultiLabelMarginCriterion()(scores, due)
    tensor(0.8500)
    """

    def update_output(self, input: Tensor, target: Tensor) -> Tensor:
        expect(input, dims=(1, 2))
        expect(target, dims=(input.dim(),), size=dict(enumerate(input.shape)))
        classes = target.long()
        expect_classes(classes, input.shape[-1], -1)
        if not torch.compiler.is_compiling():
            return F.multilabel_margin_loss(input, classes, reduction=self.reduction)
        return self.reduced(_label_margins(input, classes))


def _label_margins(input: Tensor, classes: Tensor) -> Tensor:
    """The loss of each sample of `MultiLabelMarginCriterion`, for compilers: PyTorch's own rule for them (2.13) counts
    the places after -1."""
    due = (classes >= 0).cumprod(-1).bool()
    index = torch.where(due, classes, 0)
    is_due = torch.zeros_like(input).scatter_add(-1, index, due.to(input.dtype)) > 0
    margins = F.relu(1 - input.gather(-1, index).unsqueeze(-1) + input.unsqueeze(-2))
    counted = due.unsqueeze(-1) & ~is_due.unsqueeze(-2)
    return torch.where(counted, margins, 0).sum((-1, -2)) / input.shape[-1]


def _hinged(distance: Tensor, margin: float, y: Any) -> Tensor:
    """A distance where ``y`` is not -1; where it is, how far it stays below the margin."""
    near = y == -1
    if isinstance(near, Tensor):
        return torch.where(near, (margin - distance).clamp(min=0), distance)
    return (margin - distance).clamp(min=0) if near else distance


class HingeEmbeddingCriterion(_Averaged):
    """A distance where the target is 1; where it is -1, how far the distance stays below the margin.

    Shapes: of the target, the input's; or one number. Follows Torch7's ``nn/HingeEmbeddingCriterion.lua``.

    >>> HingeEmbeddingCriterion()(torch.tensor([0.25, 0.25]), torch.tensor([1, -1]))
    tensor(0.5000)
    """

    fields = plain("margin")

    def __init__(self, margin: float = 1) -> None:
        super().__init__()
        self.margin = margin

    def update_output(self, input: Tensor, target: Any) -> Tensor:
        expect(input)
        if isinstance(target, Tensor) and target.numel() != 1:
            expect_alike(input, target)
            target = target.reshape_as(input)
        return self.reduced(_hinged(input, self.margin, target))


class L1HingeEmbeddingCriterion(Criterion):
    """The L1 distance of two tensors where the target is 1; where it is -1, how far it stays below the margin.

    Shapes: a table of two tensors of one shape; one number. Follows Torch7's ``nn/L1HingeEmbeddingCriterion.lua``, save
    that elements that are equal have the gradient 0, not 1 or -1 at random.

    >>> L1HingeEmbeddingCriterion(2)([torch.ones(3), torch.zeros(3)], 1)
    tensor(3.)
    """

    fields = plain("margin")

    def __init__(self, margin: float = 1) -> None:
        super().__init__()
        self.margin = margin

    def update_output(self, input: Any, target: Any) -> Tensor:
        first, second = _two(input)
        distance = (first - second).abs().sum()
        return _hinged(distance, self.margin, _one(target))


class CosineEmbeddingCriterion(_Averaged):
    """1 less the cosine of two vectors where the target is 1; where it is -1, how far the cosine exceeds the margin.

    Shapes: a table of two ``n`` or two ``batch x n``; a number, or ``batch`` of them. Follows Torch7's
    ``nn/CosineEmbeddingCriterion.lua``.

    >>> CosineEmbeddingCriterion()([torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])], 1)
    tensor(1.)
    """

    fields = plain("margin")

    def __init__(self, margin: float = 0) -> None:
        super().__init__()
        self.margin = margin

    def update_output(self, input: Any, target: Any) -> Tensor:
        first, second = _two(input)
        expect(first, dims=(1, 2))
        y = target if isinstance(target, Tensor) else first.new_tensor([target])
        expect(y, dims=(1,), size={0: 1 if first.dim() == 1 else len(first)})
        near = cosine(first, second).reshape(-1)
        losses = torch.where(y == -1, F.relu(near - self.margin), torch.where(y == 1, 1 - near, near))
        return self.reduced(torch.where(losses > 0, losses, losses.detach()))


class MarginRankingCriterion(_Averaged):
    """How far the first input, plus the margin, stays below the second (target 1), or the other way round (-1).

    Shapes: a table of two tensors of one element and a number; or of two tensors of one shape, and one such for the
    target; the average is over its first size. Follows Torch7's ``nn/MarginRankingCriterion.lua``.

    >>> MarginRankingCriterion()([torch.tensor([3.0]), torch.tensor([2.5])], 1)
    tensor(0.5000)
    """

    fields = plain("margin")

    def __init__(self, margin: float = 1) -> None:
        super().__init__()
        self.margin = margin

    def update_output(self, input: Any, target: Any) -> Tensor:
        first, second = _two(input)
        if not isinstance(target, Tensor):
            short: Tensor = self.margin - target * (first.reshape(-1)[0] - second.reshape(-1)[0])
            return short.clamp(min=0)
        expect_alike(first, target)
        loss = (self.margin - target.reshape_as(first) * (first - second)).clamp(min=0).sum()
        return loss / len(target) if self.size_average else loss


class DistanceRatioCriterion(_Averaged):
    """``-log(exp(-x) / (exp(-x) + exp(-y)))``: of distances ``x`` of what is alike, and ``y`` of what is not.

    Shapes: a table of two tensors of one shape; there is no target; the average is over the first size. Follows
    Torch7's ``nn/DistanceRatioCriterion.lua``.

    >>> DistanceRatioCriterion()([torch.ones(3, 1), torch.ones(3, 1)]).exp()
    tensor(2.)
    """

    def __init__(self, size_average: bool = True) -> None:
        super().__init__()
        self.size_average = size_average

    def update_output(self, input: Any, target: Any = None) -> Tensor:
        alike, other = _two(input)
        loss = (alike + torch.logaddexp(-alike, -other)).sum()
        return loss / len(alike) if self.size_average else loss


def _two(input: Any) -> tuple[Tensor, Tensor]:
    """Two tensors of one shape, from a table."""
    expect_table(input, 2)
    first, second = input
    expect(first)
    expect(second)
    if first.shape != second.shape:
        raise ValueError(f"expected two tensors of one shape, got {describe(first)} and {describe(second)}")
    return first, second


def _one(target: Any) -> Any:
    """A target that is one number, or a tensor of it."""
    if isinstance(target, Tensor):
        if target.numel() != 1:
            raise ValueError(f"expected one number as the target, got {describe(target)}")
        return target.reshape(())
    return target
