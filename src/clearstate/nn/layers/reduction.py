"""Layers that make one number of a dimension: the largest, the least, the sum, the mean.

Dimensions count from 0, negative ones from the end. With ``n_input_dims``, the number of dimensions of one input, an
input that has one more is a batch, and the dimension is counted in what follows it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..declarations.bad_input import describe
from ..declarations.fields import index, plain
from ..protocol.module import _OfTensor
from .shape import due_dimension


class _Reduced(_OfTensor):
    """A layer that makes a dimension one number."""

    fields = index("dimension") | plain("nInputDims")

    def __init__(self, dimension: int = 0, n_input_dims: int | None = None) -> None:
        super().__init__()
        self.dimension = dimension
        self.n_input_dims = n_input_dims

    def dimension_of(self, input: Tensor) -> int:
        """The dimension of this input that is reduced."""
        batch = self.dimension >= 0 and self.n_input_dims is not None and input.dim() == self.n_input_dims + 1
        return due_dimension(input, self.dimension + batch)

    def extreme(self, input: Tensor, function: Any) -> Tensor:
        """The largest or least numbers of the dimension."""
        dimension = self.dimension_of(input)
        if not input.shape[dimension]:
            raise ValueError(f"expected a tensor whose dimension {dimension} is not empty, got {describe(input)}")
        result: Tensor = function(input, dimension, keepdim=input.dim() == 1)[0]
        return result


class Max(_Reduced):
    """The maximum over a dimension; of a vector, a vector of one. Follows Torch7's ``nn/Max.lua``.

    >>> Max(1)(torch.tensor([[1, 5], [7, 3]]))
    tensor([5, 7])
    """

    def update_output(self, input: Tensor) -> Tensor:
        return self.extreme(input, torch.max)


class Min(_Reduced):
    """The minimum over a dimension; of a vector, a vector of one. Follows Torch7's ``nn/Min.lua``.

    >>> Min(1)(torch.tensor([[1, 5], [7, 3]]))
    tensor([1, 3])
    """

    def update_output(self, input: Tensor) -> Tensor:
        return self.extreme(input, torch.min)


class Sum(_Reduced):
    """The sum over a dimension; of a vector, a vector of one. Follows Torch7's ``nn/Sum.lua``.

    Args:
        dimension: the dimension.
        n_input_dims: dimensions of one input; one with one more is a batch.
        size_average: give the mean.
        squeeze: whether the dimension goes, or stays with size 1.

    >>> Sum(1)(torch.tensor([[1, 5], [7, 3]]))
    tensor([ 6, 10])
    """

    fields = plain("sizeAverage squeeze")

    def __init__(
        self, dimension: int = 0, n_input_dims: int | None = None, size_average: bool = False, squeeze: bool = True
    ) -> None:
        super().__init__(dimension, n_input_dims)
        self.size_average = size_average
        self.squeeze = squeeze

    @classmethod
    def upgrade(cls, fields: dict[Any, Any], version: int | None) -> None:
        fields.setdefault("squeeze", True)

    def update_output(self, input: Tensor) -> Tensor:
        dim = self.dimension_of(input)
        reduce = torch.mean if self.size_average else torch.sum
        return reduce(input, dim, keepdim=input.dim() == 1 or not self.squeeze)


class Mean(Sum):
    """The mean over a dimension. Follows Torch7's ``nn/Mean.lua``.

    >>> Mean(1)(torch.tensor([[1.0, 5.0], [7.0, 3.0]]))
    tensor([3., 5.])
    """

    def __init__(self, dimension: int = 0, n_input_dims: int | None = None) -> None:
        super().__init__(dimension, n_input_dims, True)

    @classmethod
    def upgrade(cls, fields: dict[Any, Any], version: int | None) -> None:
        super().upgrade(fields, version)
        fields.setdefault("sizeAverage", True)
