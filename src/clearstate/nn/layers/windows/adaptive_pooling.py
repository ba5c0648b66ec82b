"""Poolings whose output has a given size, whatever the input's: the windows are made to fit."""

from __future__ import annotations

import itertools
import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ...declarations.bad_input import expect
from ...declarations.fields import Fields, plain
from ...protocol.module import Module

Windows = list[tuple[int, int]]


def windows(size: int, count: int) -> Windows:
    """Where the windows of Torch7's maximum begin and end, along one axis. Those of its mean are PyTorch's.

    It computes them in single precision, so that some are wider by one element than they need to be.

    >>> windows(5, 2), windows(13, 13)[6:8]
    ([(0, 3), (2, 5)], [(6, 8), (7, 8)])
    """
    edges = [single(single(i / count) * size) for i in range(count + 1)]
    return [(math.floor(begin), min(math.ceil(end), size)) for begin, end in itertools.pairwise(edges)]


def single(number: float) -> float:
    """A number of at least 0, rounded to single precision.

    >>> single(0.1)
    0.10000000149011612
    """
    mantissa, exponent = math.frexp(number)
    return math.ldexp(round(mantissa * 2**24), exponent - 24)


def exact(size: int, count: int) -> Windows:
    """Where PyTorch's windows begin and end."""
    return [(i * size // count, -(-(i + 1) * size // count)) for i in range(count)]


class _AdaptivePooling(Module):
    """``w x h`` windows, as wide as they have to be."""

    fields: ClassVar[Fields] = plain("W H")

    def __init__(self, w: int, h: int) -> None:
        super().__init__()
        self.w = w
        self.h = h

    def to_string(self) -> str:
        return self.typename


class SpatialAdaptiveMaxPooling(_AdaptivePooling):
    """The largest element of each of ``w x h`` windows that cover an image.

    Shapes: ``planes x any x any`` in, ``planes x h x w`` out, or batches of these.
    Follows Torch7's ``nn/SpatialAdaptiveMaxPooling.lua``.

    >>> SpatialAdaptiveMaxPooling(3, 2)(torch.ones(4, 7, 5)).shape
    torch.Size([4, 2, 3])
    """

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(3, 4))
        height, width = input.shape[-2:]
        rows, columns = windows(height, self.h), windows(width, self.w)
        if rows == exact(height, self.h) and columns == exact(width, self.w):
            return F.adaptive_max_pool2d(input, (self.h, self.w))
        lines = [
            torch.cat([F.max_pool2d(input[..., y:yy, x:xx], (yy - y, xx - x)) for x, xx in columns], -1)
            for y, yy in rows
        ]
        return torch.cat(lines, -2)


class SpatialAdaptiveAveragePooling(_AdaptivePooling):
    """The mean of each of ``w x h`` windows that cover an image.

    Shapes: ``planes x any x any`` in, ``planes x h x w`` out, or batches of these.
    Follows Torch7's ``nn/SpatialAdaptiveAveragePooling.lua``.

    >>> SpatialAdaptiveAveragePooling(3, 2)(torch.ones(4, 7, 5)).shape
    torch.Size([4, 2, 3])
    """

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(3, 4))
        return F.adaptive_avg_pool2d(input, (self.h, self.w))
