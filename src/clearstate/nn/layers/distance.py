"""How near two vectors are, or a vector is to learnt ones.

Where Torch7 divides a gradient by a distance it adds a little to it, so that the gradient is finite where two points
meet. This makes it other than the derivative by that little; it is the same here.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from ..declarations.bad_input import expect, expect_table
from ..declarations.fields import plain, sized
from ..protocol.module import Module


def distance(difference: Tensor, p: float, dim: int, least: float) -> Tensor:
    """The p-norm over a dimension. Its gradient has ``least`` added to the norm it is divided by.

    >>> x = torch.zeros(2, requires_grad=True)
    >>> distance(x, 2, 0, 1e-7).backward()
    >>> x.grad
    tensor([0., 0.])
    """
    size = difference.abs()
    if p == 1:
        return size.sum(dim)
    norm: Tensor = torch.linalg.vector_norm(size.detach(), p, dim)
    pull: Tensor = size.pow(p).sum(dim) / (p * (norm + least) ** (p - 1))
    return norm + (pull - pull.detach())


def _pair(input: Any) -> tuple[Tensor, Tensor]:
    """The two vectors, or batches of vectors of one shape, that a table holds."""
    expect_table(input, 2)
    first, second = input
    expect(first, dims=(1, 2))
    expect(second, dims=(first.dim(),), size=dict(enumerate(first.shape)))
    return first, second


class _Templates(Module):
    """A layer that compares its input with learnt vectors."""

    weight: Tensor

    def reset(self, stdv: float | None = None) -> _Templates:
        """Draws ``weight`` anew, uniformly within ``stdv`` times the root of 3 (1 by the root of its first size)."""
        bound = stdv * math.sqrt(3) if stdv else 1 / math.sqrt(self.weight.shape[0])
        torch.nn.init.uniform_(self.weight, -bound, bound)
        return self


class Cosine(_Templates):
    """The cosine of the angle between the input and each row of ``weight``.

    Shapes: ``n_input`` or ``batch x n_input`` in, ``n_output`` or ``batch x n_output`` out; ``weight`` is
    ``n_output x n_input``. Follows Torch7's ``nn/Cosine.lua``.

    >>> layer = Cosine(3, 2)
    >>> cosines = layer(layer.weight.detach())
    >>> torch.allclose(cosines.diag(), torch.ones(2))
    True
    """

    def __init__(self, input_size: int, output_size: int) -> None:
        super().__init__()
        self.weight = Parameter(torch.empty(output_size, input_size))
        self.reset()

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(1, 2), size={-1: self.weight.shape[1]})
        rows: Tensor = torch.linalg.vector_norm(self.weight, 2, 1)
        own: Tensor = torch.linalg.vector_norm(input, 2, -1, keepdim=True)
        return input @ self.weight.t() / (rows + 1e-12) / (own + 1e-12)


class Euclidean(_Templates):
    """The distance from the input to each column of ``weight``.

    Shapes: ``n_input`` or ``batch x n_input`` in, ``n_output`` or ``batch x n_output`` out; ``weight`` is
    ``n_input x n_output``. Follows Torch7's ``nn/Euclidean.lua``.

    >>> layer = Euclidean(2, 1)
    >>> _ = layer.weight.data.zero_()
    >>> layer(torch.tensor([3.0, 4.0])).detach()
    tensor([5.])
    """

    fields = plain("fastBackward")
    fast_backward: bool = True

    def __init__(self, input_size: int, output_size: int) -> None:
        super().__init__()
        self.weight = Parameter(torch.empty(input_size, output_size))
        self.reset()

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(1, 2), size={-1: self.weight.shape[0]})
        return distance(input.unsqueeze(-1) - self.weight, 2, -2, 1e-7)


class WeightedEuclidean(_Templates):
    """The distance from the input to each column of ``weight``, its coordinates scaled by that column of ``diag_cov``.

    Shapes: ``n_input`` or ``batch x n_input`` in, ``n_output`` or ``batch x n_output`` out; ``weight`` and ``diag_cov``
    are ``n_input x n_output``. Follows Torch7's ``nn/WeightedEuclidean.lua``.

    >>> layer = WeightedEuclidean(2, 1)
    >>> _, _ = layer.weight.data.zero_(), layer.diag_cov.data.fill_(2)
    >>> layer(torch.tensor([3.0, 4.0])).detach()
    tensor([10.])
    """

    sizes_due = sized(weight="? ?", diag_cov="weight:0 weight:1")

    def __init__(self, input_size: int, output_size: int) -> None:
        super().__init__()
        self.weight = Parameter(torch.empty(input_size, output_size))
        self.diag_cov = Parameter(torch.empty(input_size, output_size))
        self.reset()

    def reset(self, stdv: float | None = None) -> WeightedEuclidean:
        """Draws ``weight`` as `Euclidean` does; ``diag_cov`` becomes 1."""
        super().reset(stdv)
        torch.nn.init.ones_(self.diag_cov)
        return self

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(1, 2), size={-1: self.weight.shape[0]})
        return distance((input.unsqueeze(-1) - self.weight) * self.diag_cov, 2, -2, 1e-7)


class DotProduct(Module):
    """The inner product of two vectors, or of each pair of vectors in two batches.

    Shapes: a table of two ``n`` or two ``batch x n`` in, ``1`` or ``batch`` out. Follows Torch7's
    ``nn/DotProduct.lua``.

    >>> DotProduct()([torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])])
    tensor([11.])
    """

    def update_output(self, input: Any) -> Tensor:
        first, second = _pair(input)
        return (first * second).sum(-1, keepdim=first.dim() == 1)


class CosineDistance(Module):
    """The cosine of the angle between two vectors, or each pair of vectors in two batches.

    Shapes: a table of two ``n`` or two ``batch x n`` in, ``1`` or ``batch`` out. Follows Torch7's
    ``nn/CosineDistance.lua``.

    >>> CosineDistance()([torch.tensor([1.0, 0.0]), torch.tensor([0.0, 2.0])])
    tensor([0.])
    """

    def update_output(self, input: Any) -> Tensor:
        first, second = _pair(input)
        return cosine(first, second, keepdim=first.dim() == 1)


def cosine(first: Tensor, second: Tensor, *, keepdim: bool = False) -> Tensor:
    """The cosine of the angle between vectors (the last dimension), 0 where one has no length."""

    def inner(a: Tensor, b: Tensor) -> Tensor:
        return (a * b).sum(-1, keepdim=keepdim)

    return inner(first, second) * ((inner(first, first) + 1e-12) * (inner(second, second) + 1e-12)).rsqrt()


class PairwiseDistance(Module):
    """The p-norm of the difference of two vectors, or of each pair of vectors in two batches.

    Shapes: a table of two ``n`` or two ``batch x n`` in, ``1`` or ``batch`` out. Follows Torch7's
    ``nn/PairwiseDistance.lua``, save that between p = 1 and 2 the gradient is the derivative, which it is not there,
    and that with p = 1 coordinates that are equal have the gradient 0, not 1 or -1 at random.

    >>> PairwiseDistance(1)([torch.tensor([1.0, 2.0]), torch.tensor([3.0, 5.0])])
    tensor([5.])
    """

    fields = plain("norm")
    norm: float

    def __init__(self, p: float = 2) -> None:
        super().__init__()
        self.norm = p

    def update_output(self, input: Any) -> Tensor:
        first, second = _pair(input)
        result = distance(first - second, self.norm, -1, 1e-6)
        return result.unsqueeze(0) if first.dim() == 1 else result
