"""Dimensions as fields of layers say them: counted without the batch, or from the end."""

from __future__ import annotations

import torch
from torch import Tensor

from .bad_input import describe, expect


def dimension_of(tensor: Tensor, dimension: int, n_input_dims: int | None) -> int:
    """The dimension that a layer means: one later where the tensor has a batch dimension before.

    Args:
        tensor: what came.
        dimension: from 0; negative ones count from the end and are the same in a batch.
        n_input_dims: the number of dimensions of an input that is no batch, if known.

    Raises:
        ValueError: the tensor has no such dimension.

    >>> dimension_of(torch.ones(5, 2, 3), 0, 2), dimension_of(torch.ones(2, 3), 0, 2)
    (1, 0)
    """
    if dimension < 0:
        dimension += tensor.dim()
    elif n_input_dims is not None and tensor.dim() == n_input_dims + 1:
        dimension += 1
    if not 0 <= dimension < tensor.dim():
        raise ValueError(f"there is no dimension {dimension} in {describe(tensor)}")
    return dimension


def joined(tensors: list[Tensor], dimension: int) -> Tensor:
    """The tensors of a table one after the other along a dimension.

    Raises:
        TypeError: something in it is no tensor.
        ValueError: they differ in another dimension.
    """
    for tensor in tensors:
        expect(tensor, dims=(tensors[0].dim(),))
        if any(a != b for i, (a, b) in enumerate(zip(tensor.shape, tensors[0].shape, strict=True)) if i != dimension):
            raise ValueError(
                f"expected tensors that differ in dimension {dimension} only, got {describe(tensors[0])} "
                f"and {describe(tensor)}"
            )
    return torch.cat(tensors, dimension)
