"""Layers with a learned tensor that PyTorch has no class for."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Shift(nn.Module):
    """Adds a learned tensor."""

    def __init__(self, *size: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(size))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.bias


class Scale(nn.Module):
    """Multiplies with a learned tensor."""

    def __init__(self, *size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


class Fixed(nn.Module):
    """Holds a tensor that is given, not learned, and returns it."""

    def __init__(self, *size: int) -> None:
        super().__init__()
        self.value: Tensor
        self.register_buffer("value", torch.zeros(size))

    def forward(self) -> Tensor:
        return self.value


class WeightNormLinear(nn.Module):
    """A linear layer whose weight is direction and length: ``g * v / |v|``, row by row."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        bias: bool = True,
        eps: float = 1e-16,
    ) -> None:
        super().__init__()
        self.v = nn.Parameter(torch.randn(outputs, inputs))
        self.g = nn.Parameter(torch.ones(outputs, 1))
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        length = torch.linalg.vector_norm(self.v, 2, 1, keepdim=True)
        weight = self.v * (self.g / length.clamp(min=self.eps))
        return F.linear(x, weight, self.bias)


class WeightNorm(nn.Module):
    """A layer whose weight is direction and length, along one of its dimensions.

    A little is added to the length's square, so it never is zero.
    """

    def __init__(self, layer: nn.Module, dim: int = 0, eps: float = 1e-4) -> None:
        super().__init__()
        weight = layer.weight.movedim(dim, 0)  # type: ignore[operator]
        self.v = nn.Parameter(weight.detach().clone())
        self.g = nn.Parameter(torch.ones(len(weight), *[1] * (weight.dim() - 1)))
        layer.register_parameter("weight", None)
        self.layer = layer
        self.dim = dim
        self.eps = eps

    def forward(self, x: Tensor) -> Any:
        rows = self.v.flatten(1).pow(2).sum(1).view_as(self.g)
        weight = (self.v * (self.g / (rows + self.eps).sqrt())).movedim(0, self.dim)
        weights = {"weight": weight}
        return torch.func.functional_call(self.layer, weights, (x,), strict=False)


class PartialLinear(nn.Module):
    """A linear layer of which only the outputs in ``partition`` are computed."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        chosen: int,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None
        self.partition: Tensor
        self.register_buffer("partition", torch.arange(chosen))

    def forward(self, x: Tensor) -> Tensor:
        bias = None if self.bias is None else self.bias[self.partition]
        return F.linear(x, self.weight[self.partition], bias)


class Cosine(nn.Module):
    """The cosine of the angle between the input and each row of the weight."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs))

    def forward(self, x: Tensor) -> Tensor:
        rows = torch.linalg.vector_norm(self.weight, 2, 1)
        own = torch.linalg.vector_norm(x, 2, -1, keepdim=True)
        cosines: Tensor = x @ self.weight.t() / (rows + 1e-12) / (own + 1e-12)
        return cosines


class Euclidean(nn.Module):
    """The distance from the input to each column of the weight."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs))

    def forward(self, x: Tensor) -> Tensor:
        apart = x.unsqueeze(-1) - self.weight
        return torch.linalg.vector_norm(apart, 2, -2)  # type: ignore[no-any-return]


class WeightedEuclidean(nn.Module):
    """The distance to each column of the weight, with a scale for each coordinate."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs))
        self.scale = nn.Parameter(torch.ones(inputs, outputs))

    def forward(self, x: Tensor) -> Tensor:
        apart = (x.unsqueeze(-1) - self.weight) * self.scale
        return torch.linalg.vector_norm(apart, 2, -2)  # type: ignore[no-any-return]


class SparseLinear(nn.Module):
    """A linear layer whose input is the features that are not zero, and their values.

    The weight has a row for each feature. With ``counts``, the number of features of
    each sample, samples lie one behind the other.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(
        self,
        features: Tensor,
        values: Tensor,
        counts: Tensor | None = None,
    ) -> Tensor:
        rows = self.weight[features.long()] * values.unsqueeze(-1).to(self.weight)
        if counts is None:
            return rows.sum(-2) + self.bias
        samples = torch.arange(len(counts), device=counts.device)
        samples = samples.repeat_interleave(counts.long())
        sums = self.bias.new_zeros(len(counts), len(self.bias))
        return sums.index_add(0, samples, rows) + self.bias
