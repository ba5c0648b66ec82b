"""Functions that PyTorch has not in this form."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F


def interpolated_along(x: Tensor, dim: int, size: int) -> Tensor:
    """Linear interpolation of one dimension, its ends on the ends."""
    last = x.shape[dim] - 1
    step = torch.tensor(last, dtype=torch.float32) / max(size - 1, 1)
    places = step * torch.arange(size, dtype=torch.float32)
    lower = places.long()
    weight = (places - lower).to(x).reshape(-1, *[1] * (-dim - 1))
    lower = lower.to(x.device)
    upper = (lower + 1).clamp(max=last)
    first, second = x.index_select(dim, lower), x.index_select(dim, upper)
    return (1 - weight) * first + weight * second


def interpolated(x: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Linear interpolation of the last dimensions, corners on corners.

    Places between elements are computed in single precision, as Torch7 does for
    every type.
    """
    for dim, size in enumerate(sizes, -len(sizes)):
        if size != x.shape[dim]:
            x = interpolated_along(x, dim, size)
    return x


def cat_centred(tensors: list[Tensor], dim: int) -> Tensor:
    """Joins tensors; those that are smaller in other dimensions lie among zeros."""
    sizes = [max(size) for size in zip(*(x.shape for x in tensors), strict=True)]
    padded = []
    for x in tensors:
        padding: list[int] = []
        for i in reversed(range(x.dim())):
            missing = 0 if i == dim else sizes[i] - x.shape[i]
            padding += [missing // 2, missing - missing // 2]
        padded.append(F.pad(x, padding))
    return torch.cat(padded, dim)


def inserted(x: Tensor, dim: int, place: int, count: int, value: float) -> Tensor:
    """``count`` entries of one value at a place of a dimension.

    A negative place counts from the end, as does -1, which is the end itself.
    """
    size = list(x.shape)
    at = place if place >= 0 else size[dim] + 1 + place
    before, after = x.narrow(dim, 0, at), x.narrow(dim, at, size[dim] - at)
    size[dim] = count
    return torch.cat((before, x.new_full(size, value), after), dim)


def cosine(x: Tensor, y: Tensor) -> Tensor:
    """The cosine of the angle between vectors, 0 where one has no length."""
    lengths = ((x * x).sum(-1) + 1e-12) * ((y * y).sum(-1) + 1e-12)
    return (x * y).sum(-1) * lengths.rsqrt()
