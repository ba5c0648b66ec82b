"""Convolutions that PyTorch has no class for."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class MapConv2d(nn.Module):
    """A convolution between some pairs of planes only, with a kernel for each pair.

    ``pairs`` has a row ``from, to`` for each kernel.
    """

    def __init__(
        self,
        planes: tuple[int, int],
        kernels: int,
        kernel_size: tuple[int, int],
        stride: tuple[int, int] = (1, 1),
        transposed: bool = False,
    ) -> None:
        super().__init__()
        self.planes = planes
        self.stride = stride
        self.transposed = transposed
        self.weight = nn.Parameter(torch.randn(kernels, *kernel_size))
        self.bias = nn.Parameter(torch.zeros(planes[1]))
        self.pairs: Tensor
        self.register_buffer("pairs", torch.zeros(kernels, 2, dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        first, second = self.pairs.unbind(1)
        inputs, outputs = self.planes
        if self.transposed:
            full = self.weight.new_zeros(inputs, outputs, *self.weight.shape[1:])
            full = full.index_put((first, second), self.weight, accumulate=True)
        else:
            full = self.weight.new_zeros(outputs, inputs, *self.weight.shape[1:])
            full = full.index_put((second, first), self.weight, accumulate=True)
        x = x[..., :inputs, :, :]
        convolve = F.conv_transpose2d if self.transposed else F.conv2d
        return convolve(x, full, self.bias, self.stride)


class LocalConv2d(nn.Module):
    """A convolution with weights of its own for each place of the image."""

    def __init__(
        self,
        planes: tuple[int, int],
        kernel_size: tuple[int, int],
        output_size: tuple[int, int],
        stride: tuple[int, int] = (1, 1),
        padding: tuple[int, int] = (0, 0),
        bias: bool = True,
    ) -> None:
        super().__init__()
        inputs, outputs = planes
        weight = torch.randn(*output_size, outputs, inputs, *kernel_size)
        self.weight = nn.Parameter(weight)
        self.bias = nn.Parameter(torch.zeros(outputs, *output_size)) if bias else None
        self.kernel_size = kernel_size
        self.output_size = output_size
        self.stride = stride
        self.padding = padding

    def forward(self, x: Tensor) -> Tensor:
        parts = F.unfold(x, self.kernel_size, 1, self.padding, self.stride)
        places = math.prod(self.output_size)
        weight = self.weight.reshape(places, self.weight.shape[2], -1)
        y = torch.einsum("lok,...kl->...ol", weight, parts)
        y = y.reshape(*y.shape[:-1], *self.output_size)
        return y if self.bias is None else y + self.bias
