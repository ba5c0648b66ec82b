"""Layers that draw, in ways that PyTorch's do not."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class UnscaledDropout(nn.Module):
    """Dropout that scales by ``1 - p`` in evaluation, and not at all in training.

    With ``dims``, the last dimensions of that number are dropped as a whole.
    """

    def __init__(self, p: float = 0.5, dims: int = 0, always: bool = False) -> None:
        super().__init__()
        self.p = p
        self.dims = dims
        self.always = always

    def forward(self, x: Tensor) -> Tensor:
        if not (self.training or self.always):
            return x * (1 - self.p)
        size = (*x.shape[: x.dim() - self.dims], *(1,) * self.dims)
        return x * x.new_empty(size).bernoulli_(1 - self.p)


class StochasticDropout(nn.Module):
    """Dropout that drops in evaluation too."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.p, True)


class WhiteNoise(nn.Module):
    """Adds normal noise in training, its mean in evaluation."""

    def __init__(self, mean: float = 0.0, std: float = 0.1) -> None:
        super().__init__()
        self.mean = mean
        self.std = std

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x + self.mean
        return x + torch.empty_like(x).normal_(self.mean, self.std)
