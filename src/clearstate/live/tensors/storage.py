"""The memory of a tensor, its bytes, and bytes of a storage counted once for the tensors that see them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from ...formats.coverage import View, shares
from .parts import ORDINARY, inner_tensors


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


def is_parameter(tensor: Tensor) -> bool:
    """Whether a tensor is a parameter; to ask PyTorch takes longer."""
    return type(tensor) is not Tensor and isinstance(tensor, torch.nn.Parameter)


def memory(tensor: Tensor) -> Tensor:
    """The plain tensor that has a tensor's memory: of a ``DTensor`` that of this rank. No collective is run.

    A subclass that holds several tensors has no memory of its own, and is returned itself.
    """
    while len(found := inner_tensors(tensor)) == 1:
        tensor = found[0]
    return tensor


def storage_key(tensor: Tensor) -> int | None:
    """What tells a tensor's memory from others': its address or, where it has none (empty or meta), its storage's.

    ``None`` of tensors without a storage.
    """
    try:
        storage = (tensor if type(tensor) in ORDINARY else memory(tensor)).untyped_storage()
        return storage.data_ptr() or storage._cdata
    except (NotImplementedError, RuntimeError, ValueError):  # subclasses, layouts and lazy ones without a storage
        return None


def nbytes(tensor: Tensor) -> int:
    """Bytes of a tensor's elements; of a ``DTensor``, of those on this rank; of a sparse one, of what it is made of.

    >>> nbytes(torch.ones(3))
    12
    """
    if isinstance(tensor, UninitializedParameter | UninitializedBuffer):
        return 0
    inner = inner_tensors(tensor)
    return sum(map(nbytes, inner)) if inner else tensor.numel() * tensor.element_size()
