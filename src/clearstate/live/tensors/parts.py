"""The dense tensors that a sparse, nested or wrapping one is made of."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

COMPRESSED_ROWS = ("crow_indices", "col_indices", "values")
COMPRESSED_COLUMNS = ("ccol_indices", "row_indices", "values")

SPARSE = {
    torch.sparse_coo: ("_indices", "_values"),
    torch.sparse_csr: COMPRESSED_ROWS,
    torch.sparse_bsr: COMPRESSED_ROWS,
    torch.sparse_csc: COMPRESSED_COLUMNS,
    torch.sparse_bsc: COMPRESSED_COLUMNS,
}
"""For each sparse layout, the methods that give what it is made of."""


def dense_parts(tensor: Tensor) -> list[Tensor]:
    """The dense tensors that a sparse one is made of; nothing of any other.

    >>> [part.tolist() for part in dense_parts(torch.eye(2).to_sparse())], dense_parts(torch.eye(2))
    ([[[0, 1], [0, 1]], [1.0, 1.0]], [])
    """
    return [getattr(tensor.detach(), method)() for method in SPARSE.get(tensor.layout, ())]


ORDINARY = frozenset((Tensor, torch.nn.Parameter))
"""Types of tensors that have their memory themselves."""


def inner_tensors(tensor: Tensor) -> list[Tensor]:
    """The tensors that one of a wrapping subclass, or a sparse one, is made of."""
    any_tensor: Any = tensor
    if type(tensor) in ORDINARY or not is_traceable_wrapper_subclass(any_tensor):
        return dense_parts(tensor)
    names, _ = any_tensor.__tensor_flatten__()
    return [part for name in names if isinstance(part := getattr(tensor, name), Tensor)]


def pieces(tensor: Tensor) -> list[Tensor]:
    """The dense tensors that one is made of; of a dense one itself.

    >>> [piece.tolist() for piece in pieces(torch.eye(2).to_sparse())]
    [[[0, 1], [0, 1]], [1.0, 1.0]]
    """
    if parts := inner_tensors(tensor):
        return [piece for part in parts for piece in pieces(part)]
    if tensor.is_nested:
        return list(tensor.detach().unbind())
    return [tensor]
