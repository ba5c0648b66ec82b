"""Layers that give what they get, and bend the gradient that goes back."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class ReversedGradient(torch.autograd.Function):
    """The input; the gradient is multiplied with ``-factor``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return -ctx.factor * grad, None


class GradientReversal(nn.Module):
    """Gives its input; the gradient is multiplied with ``-factor``."""

    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return x
        return ReversedGradient.apply(x, self.factor)  # type: ignore[no-any-return,no-untyped-call]


class PenalizedGradient(torch.autograd.Function):
    """The input; the gradient of a weighted sum of absolute values is added."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: float, add: bool) -> Tensor:
        ctx.save_for_backward(x)
        ctx.weight, ctx.add = weight, add
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        own = x.sign() * ctx.weight
        return own + grad if ctx.add else own, None, None


class L1Penalty(nn.Module):
    """Gives its input, and penalizes its absolute values in the gradient."""

    def __init__(
        self,
        weight: float,
        size_average: bool = False,
        add: bool = True,
    ) -> None:
        super().__init__()
        self.weight = weight
        self.size_average = size_average
        self.add = add

    def forward(self, x: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return x
        weight = self.weight / x.numel() if self.size_average else self.weight
        return PenalizedGradient.apply(x, weight, self.add)  # type: ignore[no-any-return,no-untyped-call]
