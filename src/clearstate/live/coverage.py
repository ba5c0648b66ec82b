"""Bytes of a storage, counted once for the tensors that see them."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ..formats.coverage import View, shares


def fresh_bytes(tensors: Sequence[Tensor]) -> tuple[list[int], int]:
    """For each of the tensors on one storage, the bytes that it is the first to see; and those that none sees.

    >>> import torch
    >>> whole = torch.zeros(6)
    >>> fresh_bytes([whole[:2], whole[1:4]])
    ([8, 8], 8)
    """
    size = tensors[0].element_size()
    if len(tensors) == 1 and tensors[0].is_contiguous():
        seen = tensors[0].numel() * size
        return [seen], tensors[0].untyped_storage().nbytes() - seen
    counts, seen = shares([View(int(t.storage_offset()), tuple(t.size()), t.stride()) for t in tensors])
    return [count * size for count in counts], max(tensors[0].untyped_storage().nbytes() - seen * size, 0)
