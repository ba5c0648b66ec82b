"""Losses that PyTorch has no class for, or computes otherwise."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class ShiftedBCELoss(nn.Module):
    """``nn.BCELoss`` that keeps logarithms finite by adding 1e-12 to probabilities."""

    weight: Tensor | None

    def __init__(self, weight: Tensor | None = None, reduction: str = "mean") -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.reduction = reduction

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        due, other = (x + 1e-12).log(), (1 - x + 1e-12).log()
        losses = -(due * target + other * (1 - target))
        if self.weight is not None:
            losses = losses * self.weight
        return losses.mean() if self.reduction == "mean" else losses.sum()


class MarginLoss(nn.Module):
    """How far the input, times a target of 1 or -1, stays below the margin."""

    def __init__(self, margin: float = 1.0, reduction: str = "mean") -> None:
        super().__init__()
        self.margin = margin
        self.reduction = reduction

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        losses = F.relu(self.margin - x * target)
        return losses.mean() if self.reduction == "mean" else losses.sum()


class KLDivergence(nn.Module):
    """Of log-probabilities from probabilities; the mean is over all elements.

    As ``nn.KLDivLoss``, which warns of this mean.
    """

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = reduction

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        losses = torch.xlogy(target, target) - target * x
        return losses.mean() if self.reduction == "mean" else losses.sum()


class WeightedMSELoss(nn.Module):
    """The squared difference of the input and the target times a weight."""

    weight: Tensor

    def __init__(self, size: tuple[int, ...], reduction: str = "mean") -> None:
        super().__init__()
        self.register_buffer("weight", torch.ones(size))
        self.reduction = reduction

    def forward(self, x: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(x, target * self.weight, reduction=self.reduction)
