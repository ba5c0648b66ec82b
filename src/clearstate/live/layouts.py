"""Sparse layouts: the dense tensors that a sparse one is made of."""

from __future__ import annotations

import torch
from torch import Tensor

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
