"""Losses for classes: log-probabilities, scores or probabilities against the classes due, which count from 0."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..declarations.bad_input import describe, expect
from ..declarations.fields import plain
from ..layers.activation import LogSoftMax, Sigmoid
from ..protocol.module import Criterion, Module
from .elements import MSECriterion, _Averaged, expect_alike


class _Weighted(_Averaged):
    """A loss with a weight for each class, or for each element of a sample; ``None`` where all count the same."""

    weights: Tensor | None

    def __init__(self, weights: Tensor | None = None, size_average: bool = True) -> None:
        super().__init__()
        if weights is not None:
            expect(weights, dims=(1,))
            weights = weights.detach()
        self.register_buffer("weights", weights)
        self.size_average = size_average

    def loaded(self) -> None:
        if not hasattr(self, "weights"):
            self.register_buffer("weights", None)


def as_classes(target: Any, input: Tensor) -> Tensor:
    """Class numbers as PyTorch takes them: a number, or a tensor of any type of number."""
    return (target if isinstance(target, Tensor) else torch.tensor([target], device=input.device)).long()


def expect_classes(target: Tensor, count: int, ignored: int | None = None) -> None:
    """Checks the range of class numbers, on the CPU: elsewhere PyTorch's own kernels do.

    Raises:
        ValueError: a number that is no class.
    """
    if torch.compiler.is_compiling() or target.device.type != "cpu":
        return
    outside = (target < 0) | (target >= count)
    if ignored is not None:
        outside &= target != ignored
    if outside.any():
        raise ValueError(f"expected classes from 0 to {count - 1}, got {target[outside][0].item()}")


def likelihood(
    input: Tensor, target: Tensor, weights: Tensor | None, size_average: bool, ignored: int = -100
) -> Tensor:
    """Minus the log-probabilities of the classes due, by the sum of their weights: 0 where that is 0."""
    count = input.shape[1]
    if weights is not None and len(weights) != count:
        raise ValueError(f"there are weights for {len(weights)} classes, the input is {describe(input)}")
    kernel = torch.ops.aten.nll_loss_forward if input.dim() == 2 else torch.ops.aten.nll_loss2d_forward
    loss: Tensor
    try:
        loss, total = kernel(input, target, weights, SUM, ignored)
    except IndexError:
        expect_classes(target, count, ignored)
        raise
    return loss / total.clamp(min=torch.finfo(total.dtype).tiny) if size_average else loss


SUM = 2
"""The kernels' number for adding up."""


class ClassNLLCriterion(_Weighted):
    """Minus the log-probability of the class due.

    Shapes: ``classes`` or ``batch x classes`` log-probabilities; a class number or ``batch`` of them. Follows Torch7's
    ``nn/ClassNLLCriterion.lua``.

    Args:
        weights: one a class; the average is by the sum of the weights of the classes due.
        size_average: whether to average.
        ignore_index: a target that counts nothing.

    >>> log_probabilities = torch.tensor([[0.25, 0.75], [0.5, 0.5]]).log()
    >>> ClassNLLCriterion()(log_probabilities, torch.tensor([1, 0])).exp()
    tensor(1.6330)
    >>> ClassNLLCriterion()(log_probabilities, torch.tensor([1, 2]))
    Traceback (most recent call last):
    ValueError: expected classes from 0 to 1, got 2
    """

    fields = plain("", ignoreIndex="ignore_number")
    ignore_number: int = -100
    """``ignore_index`` as files have it: from 1, and 0 or negative for one that is no class."""

    def __init__(self, weights: Tensor | None = None, size_average: bool = True, ignore_index: int = -100) -> None:
        super().__init__(weights, size_average)
        self.ignore_index = ignore_index

    @property
    def ignore_index(self) -> int:
        """The target that counts nothing. Torch7's 0, which is no class there, is -1 here."""
        return self.ignore_number - 1 if self.ignore_number >= 0 else self.ignore_number

    @ignore_index.setter
    def ignore_index(self, index: int) -> None:
        self.ignore_number = index + 1 if index >= 0 else index

    def update_output(self, input: Tensor, target: Any) -> Tensor:
        expect(input, dims=(1, 2))
        classes = as_classes(target, input)
        batch = input if input.dim() == 2 else input.unsqueeze(0)
        if classes.dim() > 1 or classes.numel() != batch.shape[0]:
            raise ValueError(f"expected a class for each sample of {describe(input)}, got {describe(target)}")
        return likelihood(batch, classes.reshape(-1), self.weights, self.size_average, self.ignore_index)


class SpatialClassNLLCriterion(_Weighted):
    """Minus the log-probability of the class due, at each place of a picture.

    Shapes: ``batch x classes x height x width`` log-probabilities; ``batch x height x width`` class numbers. Follows
    Torch7's ``nn/SpatialClassNLLCriterion.lua``.

    Args:
        weights: one a class; the average is by the sum of the weights of the classes due.
        size_average: whether to average.

    >>> log_probabilities = torch.tensor([0.25, 0.75]).log().view(1, 2, 1, 1).expand(1, 2, 3, 4)
    >>> SpatialClassNLLCriterion()(log_probabilities, torch.ones(1, 3, 4)).neg().exp()
    tensor(0.7500)
    """

    def update_output(self, input: Tensor, target: Any) -> Tensor:
        expect(input, dims=(4,))
        expect(target, dims=(3,), size={0: input.shape[0], 1: input.shape[2], 2: input.shape[3]})
        classes = target.long()
        expect_classes(classes, input.shape[1])
        return likelihood(input, classes, self.weights, self.size_average)


class CrossEntropyCriterion(Criterion):
    """Minus the log of the probability that a softmax of the scores gives the class due.

    Shapes: ``classes`` or ``batch x classes`` scores; a class number or ``batch`` of them. Dimensions of size 1 are
    dropped first. ``lsm`` and ``nll`` are the `LogSoftMax` and the `ClassNLLCriterion` it is made of. Follows Torch7's
    ``nn/CrossEntropyCriterion.lua``.

    >>> CrossEntropyCriterion()(torch.zeros(4), 2).neg().exp()
    tensor(0.2500)
    """

    fields = plain("lsm nll", sizeAverage="said", oldSizeAverage="said_before")

    lsm: Module
    nll: ClassNLLCriterion
    said: bool | None
    """``sizeAverage`` of Torch7: the next call hands it to ``nll`` where it is not what it was in the last one."""
    said_before: bool | None

    def __init__(self, weights: Tensor | None = None, size_average: bool = True) -> None:
        super().__init__()
        self.lsm = LogSoftMax()
        self.nll = ClassNLLCriterion(weights, size_average)
        self.said = self.said_before = size_average

    @property
    def size_average(self) -> bool:
        """Whether to average: that of ``nll``."""
        return self.nll.size_average if self.said == self.said_before else bool(self.said)

    @size_average.setter
    def size_average(self, average: bool) -> None:
        self.nll.size_average = self.said = self.said_before = average

    def update_output(self, input: Tensor, target: Any) -> Tensor:
        if self.said != self.said_before:
            self.size_average = bool(self.said)
        expect(input)
        scores = input.squeeze()
        if isinstance(target, Tensor):
            target = target.squeeze().reshape(-1) if scores.dim() < 2 else target.squeeze()
        result: Tensor = self.nll(self.lsm(scores), target)
        return result


class ClassSimplexCriterion(MSECriterion):
    """The squared difference of the input and the corner of a simplex that stands for the class due.

    Shapes: ``n_classes`` or ``batch x n_classes`` in; a class number or ``batch`` of them. The corners, ``simplex``,
    are ``n_classes x n_classes``, of length 1 and all as far from each other. Follows Torch7's
    ``nn/ClassSimplexCriterion.lua``.

    >>> criterion = ClassSimplexCriterion(3)
    >>> criterion(criterion.simplex, torch.tensor([0, 1, 2]))
    tensor(0.)
    >>> criterion.get_top_prediction(criterion.simplex)
    tensor([0, 1, 2])
    """

    fields = plain("nClasses")
    simplex: Tensor

    def __init__(self, n_classes: int) -> None:
        super().__init__()
        if n_classes < 2:
            raise ValueError(f"a simplex needs 2 classes at least, not {n_classes}")
        self.n_classes = n_classes
        corners = torch.zeros(n_classes, n_classes, dtype=torch.float64)
        for k in range(n_classes - 1):
            corners[k, k] = last = math.sqrt(1 - float(corners[k, :k].square().sum()))
            corners[k + 1 :, k] = (last**2 - 1 - 1 / (n_classes - 1)) / last
        self.register_buffer("simplex", corners.to(torch.get_default_dtype()))

    def update_output(self, input: Tensor, target: Any) -> Tensor:
        expect(input, dims=(1, 2), size={-1: self.n_classes})
        classes = as_classes(target, input)
        expect(classes, dims=(1,), size={0: 1 if input.dim() == 1 else len(input)})
        expect_classes(classes, self.n_classes)
        return super().update_output(input, self.simplex[classes])

    def get_predictions(self, input: Tensor) -> Tensor:
        """How near the input is to each class: ``batch x n_classes`` inner products with the corners."""
        return (input if input.dim() == 2 else input.unsqueeze(0)) @ self.simplex.t()

    def get_top_prediction(self, input: Tensor) -> Tensor:
        """The class that each sample is nearest to: ``batch`` numbers from 0."""
        return self.get_predictions(input).argmax(-1)


class BCECriterion(_Weighted):
    """Binary cross-entropy: of probabilities and targets from 0 to 1.

    Shapes: of the target, the input's; ``weights`` are as many as a sample has elements. Follows Torch7's
    ``nn/BCECriterion.lua``.

    Args:
        weights: one an element of a sample.
        size_average: whether to average.

    >>> BCECriterion()(torch.tensor([0.25, 0.5]), torch.tensor([0.0, 1.0])).neg().exp()
    tensor(0.6124)
    """

    def update_output(self, input: Tensor, target: Tensor) -> Tensor:
        expect_alike(input, target)
        due = target.reshape_as(input)
        losses = -((input + 1e-12).log() * due + (1 - input + 1e-12).log() * (1 - due))
        return self.reduced(losses if self.weights is None else losses * self.weights)


class MultiLabelSoftMarginCriterion(_Weighted):
    """Binary cross-entropy of scores, whose sigmoids are probabilities, and targets 0 or 1, class by class.

    Shapes: ``classes`` or ``batch x classes``, the target's too. Follows Torch7's
    ``nn/MultiLabelSoftMarginCriterion.lua``.

    Args:
        weights: one a class.
        size_average: whether to average, over samples and classes.

    >>> MultiLabelSoftMarginCriterion()(torch.zeros(2), torch.tensor([0.0, 1.0])).neg().exp()
    tensor(0.5000)
    """

    fields = plain("sigmoid")

    def __init__(self, weights: Tensor | None = None, size_average: bool = True) -> None:
        super().__init__(weights, size_average)
        self.sigmoid = Sigmoid()

    def update_output(self, input: Tensor, target: Tensor) -> Tensor:
        expect_alike(input, target)
        due = target.reshape_as(input).to(input.dtype)
        return F.binary_cross_entropy_with_logits(input, due, self.weights, reduction=self.reduction)
