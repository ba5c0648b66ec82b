"""Layers that bring what passes to a size, in ways that PyTorch's do not."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Normalize(nn.Module):
    """Divides each vector by its ``p``-norm; ``eps`` is added before the root."""

    def __init__(self, p: float, eps: float = 1e-10) -> None:
        super().__init__()
        self.p = p
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        if self.p == math.inf:
            return x / (x.abs().amax(-1, keepdim=True) + self.eps)
        powers = x.square() if self.p == 2 else x.abs().pow(self.p)
        return x / (powers.sum(-1, keepdim=True) + self.eps).pow(1 / self.p)


def total_around(x: Tensor, kernel: Tensor) -> Tensor:
    """The sum of all channels around each place, weighted by the kernel.

    A kernel of one dimension goes along the width, then along the height.
    """
    planes = x.shape[1]
    if kernel.dim() == 2:
        whole = kernel.expand(1, planes, *kernel.shape)
        return F.conv2d(x, whole, padding=(len(kernel) // 2, kernel.shape[1] // 2))
    half = len(kernel) // 2
    row = kernel.view(1, 1, 1, -1).expand(planes, 1, 1, -1)
    column = kernel.view(1, 1, -1, 1).expand(1, planes, -1, 1)
    x = F.conv2d(x, row, padding=(0, half), groups=planes)
    return F.conv2d(x, column, padding=(half, 0))


class SubtractiveNorm(nn.Module):
    """Subtracts the average around each place, over all channels.

    What lies outside the image does not count.
    """

    def __init__(self, *kernel_size: int) -> None:
        super().__init__()
        self.kernel: Tensor
        self.register_buffer("kernel", torch.ones(kernel_size))

    def forward(self, x: Tensor) -> Tensor:
        inside = total_around(torch.ones_like(x[:1]), self.kernel)
        return x - total_around(x, self.kernel) / inside


class DivisiveNorm(nn.Module):
    """Divides by the root of the sum of squares around each place.

    A root that is not above ``threshold`` is replaced by ``value``.
    """

    def __init__(self, *kernel_size: int, threshold: float, value: float) -> None:
        super().__init__()
        self.kernel: Tensor
        self.register_buffer("kernel", torch.ones(kernel_size))
        self.threshold = threshold
        self.value = value

    def forward(self, x: Tensor) -> Tensor:
        inside = total_around(torch.ones_like(x[:1]), self.kernel)
        roots = total_around(x.square(), self.kernel).sqrt() / inside
        return x / F.threshold(roots, self.threshold, self.value)
