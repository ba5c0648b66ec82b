"""Poolings that PyTorch has no class for."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class SubSample2d(nn.Module):
    """The sum of each window, times a weight and plus a bias of each plane."""

    def __init__(
        self,
        planes: int,
        kernel_size: tuple[int, int],
        stride: tuple[int, int],
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(planes))
        self.bias = nn.Parameter(torch.zeros(planes))
        self.kernel_size = kernel_size
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        x = F.avg_pool2d(x, self.kernel_size, self.stride)
        x = x * math.prod(self.kernel_size)
        return x * self.weight[:, None, None] + self.bias[:, None, None]


class SubSample1d(nn.Module):
    """The sum of each window of frames, times a weight and plus a bias of each feature.

    Features are the last dimension.
    """

    def __init__(self, features: int, kernel_size: int, stride: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))
        self.kernel_size = kernel_size
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        x = x.unfold(-2, self.kernel_size, self.stride).sum(-1)
        return x * self.weight + self.bias


class CeilPool(nn.Module):
    """A pooling in ceil mode that has windows behind the input's end, too, as Torch7 has.

    Where the step is larger than the window, the last may begin there: it gives
    ``nothing``.
    """

    def __init__(
        self,
        pool: nn.Module,
        kernel_size: tuple[int, ...],
        stride: tuple[int, ...],
        nothing: float,
    ) -> None:
        super().__init__()
        self.pool = pool
        self.kernel_size = kernel_size
        self.stride = stride
        self.nothing = nothing

    def forward(self, x: Tensor) -> Tensor:
        pooled: Tensor = self.pool(x)
        missing: list[int] = []
        for dim in range(-len(self.kernel_size), 0):
            steps = (x.shape[dim] - self.kernel_size[dim] - 1) // self.stride[dim] + 1
            missing = [0, steps + 1 - pooled.shape[dim], *missing]
        return F.pad(pooled, missing, value=self.nothing)


class StochasticPool2d(nn.Module):
    """An element of each window, drawn with the elements as probabilities.

    In evaluation it is their mean, likewise. What is beyond the image is zero.
    """

    def __init__(self, kernel_size: tuple[int, int], stride: tuple[int, int]) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        padding: list[int] = []
        for dim, k, d in zip((-2, -1), self.kernel_size, self.stride, strict=True):
            steps = (x.shape[dim] - k + d - 1) // d
            padding = [0, max(steps * d + k - x.shape[dim], 0), *padding]
        (high, wide), (down, across) = self.kernel_size, self.stride
        windows = F.pad(x, padding).unfold(-2, high, down).unfold(-2, wide, across)
        windows = windows.flatten(-2)
        if not self.training:
            smallest = torch.finfo(torch.float32).tiny
            return windows.square().sum(-1) / (windows.sum(-1) + smallest)
        sums = windows.detach().cumsum(-1)
        drawn = torch.rand_like(sums[..., :1]) * sums[..., -1:]
        first = (sums >= drawn).to(torch.uint8).argmax(-1, keepdim=True)
        return windows.gather(-1, first).squeeze(-1)


class FeatureLPPool(nn.Module):
    """The ``p``-norm over windows of neighbouring features."""

    def __init__(self, p: float, kernel_size: int, stride: int, dim: int) -> None:
        super().__init__()
        self.p = p
        self.kernel_size = kernel_size
        self.stride = stride
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        windows = x.unfold(self.dim, self.kernel_size, self.stride)
        total = windows.pow(self.p).sum(-1)
        nothing = total == 0
        roots = torch.where(nothing, 1, total).pow(1 / self.p)
        return torch.where(nothing, total, roots)


class LargestFrames(nn.Module):
    """The ``k`` largest elements of each feature of a sequence, in their order.

    ``k`` is ``factor`` times the frames, rounded up, and at least ``min_k``. Frames
    are the last dimension but one.
    """

    def __init__(self, min_k: int, factor: float = 0.0) -> None:
        super().__init__()
        self.min_k = min_k
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        k = max(self.min_k, math.ceil(self.factor * x.shape[-2]))
        return x.gather(-2, x.topk(k, -2).indices.sort(-2).values)


class FractionalMaxPool3d(nn.Module):
    """``nn.FractionalMaxPool3d`` that draws for the last dimension first."""

    def __init__(
        self,
        kernel_size: tuple[int, int, int],
        output_size: tuple[int, int, int] | None = None,
        output_ratio: tuple[float, float, float] | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size = kernel_size
        self.output_size = output_size
        self.output_ratio = output_ratio

    def forward(self, x: Tensor) -> Tensor:
        batch = x.shape[0] if x.dim() == 5 else 1
        drawn = torch.rand(batch, x.shape[-4], 3, dtype=x.dtype, device=x.device)
        return F.fractional_max_pool3d(
            x,
            self.kernel_size,
            self.output_size,
            self.output_ratio,
            _random_samples=drawn.flip(-1),
        )


def windows(size: int, count: int) -> list[tuple[int, int]]:
    """Where windows that cover ``size`` elements begin and end.

    They are computed in single precision, as Torch7 does: some are wider by one than
    they need to be.
    """

    def single(number: float) -> float:
        mantissa, exponent = math.frexp(number)
        return math.ldexp(round(mantissa * 2**24), exponent - 24)

    edges = [single(single(i / count) * size) for i in range(count + 1)]
    starts = [math.floor(edge) for edge in edges]
    ends = [min(math.ceil(edge), size) for edge in edges]
    return list(zip(starts[:-1], ends[1:], strict=True))


class WideAdaptiveMaxPool2d(nn.Module):
    """Adaptive max pooling of an image with Torch7's windows."""

    def __init__(self, output_size: tuple[int, int]) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, x: Tensor) -> Tensor:
        rows = windows(x.shape[-2], self.output_size[0])
        columns = windows(x.shape[-1], self.output_size[1])
        lines = []
        for top, end in rows:
            line = x[..., top:end, :]
            parts = [F.max_pool2d(line[..., a:b], (end - top, b - a)) for a, b in columns]
            lines.append(torch.cat(parts, -1))
        return torch.cat(lines, -2)
