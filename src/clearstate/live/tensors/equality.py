"""Whether two tensors have the same bits, whatever their layout."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

from .parts import pieces


def same_bits(one: Any, other: Any) -> bool:
    """Whether two tensors have the same form and the same values; each NaN equals any other.

    >>> same_bits(torch.tensor([float("nan")]), torch.tensor([float("nan")])), same_bits(torch.ones(2), torch.ones(1))
    (True, False)
    >>> same_bits(torch.eye(2).to_sparse(), torch.eye(2).to_sparse()), same_bits(torch.eye(2).to_sparse(), torch.eye(2))
    (True, False)
    """
    if not isinstance(one, Tensor) or type(one) is not type(other):
        return False
    if is_lazy(one) or is_lazy(other):
        return is_lazy(one) and is_lazy(other)
    if _form(one) != _form(other):
        return False
    ours, theirs = pieces(one), pieces(other)
    return len(ours) == len(theirs) and all(map(_same_values, ours, theirs))


def _form(tensor: Tensor) -> object:
    shape = None if tensor.is_nested else tensor.shape
    return shape, tensor.dtype, tensor.layout, tensor.device, tensor.is_quantized and tensor.qscheme()


def _same_values(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.is_meta or one is other:
        return True
    if one.is_quantized:
        return bool(torch.equal(one, other))
    if one.layout is not torch.strided:  # of a library of its own (mkldnn)
        one, other = one.to_dense(), other.to_dense()
    if one.is_floating_point() or one.is_complex():
        if one.element_size() == 1:
            return torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8))
        return torch.equal(one.nan_to_num(), other.nan_to_num()) and torch.equal(one.isnan(), other.isnan())
    return torch.equal(one, other)
