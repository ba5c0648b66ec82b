"""Weights that lie in the same memory in another order, as a decoder's that is its encoder's turned: PyTorch has no
parameter for this, so they part, and it is said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


def parted(copies: Sequence[tuple[Tensor, Tensor]], names: Mapping[int, str]) -> list[str]:
    """A sentence for each pair of tensors that shared elements, and do so no more.

    Args:
        copies: tensors of the model, each with its copy.
        names: of the copies, by ``id``.

    >>> weight = torch.ones(2, 3)
    >>> a, b = torch.ones(2, 3), torch.ones(3, 2)
    >>> parted([(weight, a), (weight.t(), b)], {id(a): "0.weight", id(b): "2.weight"})
    ['0.weight and 2.weight were one in memory, in another order: they are copies now, and learn apart']
    """
    by_storage: dict[int, list[tuple[Tensor, Tensor]]] = {}
    for own, copy in copies:
        if id(copy) in names and own.numel():
            by_storage.setdefault(own.untyped_storage().data_ptr(), []).append((own, copy))
    said = []
    for group in by_storage.values():
        group.sort(key=lambda pair: _reach(pair[0]))
        for i, (own, copy) in enumerate(group):
            for other, its_copy in group[i + 1 :]:
                if _reach(other)[0] >= _reach(own)[1]:
                    break
                if copy is not its_copy and _meet(own, other):
                    one, two = names[id(copy)], names[id(its_copy)]
                    said.append(
                        f"{one} and {two} were one in memory, in another order: they are copies now, and learn apart"
                    )
    return said


def _reach(tensor: Tensor) -> tuple[int, int]:
    """Where a tensor begins and ends in its storage, in elements."""
    begin = int(tensor.storage_offset())
    return begin, begin + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) + 1


def _meet(one: Tensor, two: Tensor) -> bool:
    """Whether two tensors have an element in common."""
    begin, end = min(_reach(one)[0], _reach(two)[0]), max(_reach(one)[1], _reach(two)[1])
    seen = torch.zeros(end - begin, dtype=torch.bool)
    seen.as_strided(one.shape, one.stride(), int(one.storage_offset()) - begin).fill_(True)
    return bool(seen.as_strided(two.shape, two.stride(), int(two.storage_offset()) - begin).any())
