"""Max pooling with windows at random places, for outputs of any size."""

from __future__ import annotations

import math
from typing import ClassVar, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ...declarations.fields import Fields, plain
from .window import _Windowed

P = TypeVar("P", bound="_FractionalMaxPooling")


class _FractionalMaxPooling(_Windowed):
    """Windows of ``pool_size``, drawn anew by each call unless `fix_pooling_regions` was called."""

    transient = ("random_samples",)
    new_random_pool: bool = False
    ratio_w: float | None
    out_t: int | None
    out_h: int | None
    out_w: int | None
    seed: int = 0
    """What fixed regions are drawn with, where no earlier ones are kept."""

    def set_windows(self, pool: tuple[int, ...], out: tuple[float, ...]) -> None:
        """Sets the window's size; and the output's size, or its share of the input's."""
        if any(size < 2 for size in pool):
            raise ValueError(f"windows of at least 2 elements along each axis are due, not {pool}")
        self.set_sizes("pool_size_", *pool)
        by_size = all(size >= 1 for size in out)
        if not by_size and not all(0 < ratio < 1 for ratio in out):
            raise ValueError(f"the output's sizes (1 or more each) or ratios (between 0 and 1) are due, not {out}")
        for axis, size in zip(self.axes, out, strict=True):
            setattr(self, "out_" + axis, size if by_size else None)
            setattr(self, "ratio_" + axis, None if by_size else size)
        self.new_random_pool = False

    def fix_pooling_regions(self: P, fixed: bool = True) -> P:
        """Makes all calls take the same places; in the protocol those of the last forward. Returns the module."""
        self.new_random_pool = fixed
        self.seed = int(torch.randint(2**62, ()))
        return self

    def output_size(self, input: Tensor) -> tuple[int, ...]:
        """How many windows there are along each axis."""
        if self.ratio_w is None:
            return self.sizes("out_")
        ratios, dims = self.sizes("ratio_"), len(self.axes)
        size = tuple(math.floor(n * ratio) for n, ratio in zip(input.shape[-dims:], ratios, strict=True))
        if not all(size):
            raise ValueError(f"a ratio of {ratios} leaves nothing of an input of {tuple(input.shape)}")
        return size

    def draw(self, input: Tensor) -> Tensor:
        """Where the windows lie: a number from 0 to 1 for each image of the batch, plane and axis."""
        dims = len(self.axes)
        planes = (1 if input.dim() == dims + 1 else input.shape[0], input.shape[-dims - 1])
        if not self.new_random_pool:
            return torch.rand(*planes, dims, dtype=input.dtype, device=input.device)
        kept = self.__dict__.get("random_samples")
        if kept is not None and kept.shape == (*planes, dims):
            same: Tensor = kept.to(input, copy=True)
            return same
        generator = torch.Generator().manual_seed(self.seed)
        return torch.rand(*planes, dims, generator=generator, dtype=input.dtype).to(input.device)

    def update_output(self, input: Tensor) -> Tensor:
        self.expect_planes(input)
        output, pool = self.output_size(input), self.sizes("pool_size_")
        for size, count, width in zip(input.shape[-len(pool) :], output, pool, strict=True):
            if count + width - 1 >= size:
                raise ValueError(f"{count} windows of {width} are too many for an input of {tuple(input.shape)}")
        samples = self.draw(input)
        self.keep("random_samples", samples)
        return self.pooled(input, pool, output, samples)

    def pooled(self, input: Tensor, pool: tuple[int, ...], output: tuple[int, ...], samples: Tensor) -> Tensor:
        """The maxima: PyTorch's function."""
        raise NotImplementedError

    def to_string(self) -> str:
        out = "out_" if self.ratio_w is None else "ratio_"
        return f"{self.typename}({self.listed(out, 'x')}, {self.listed('pool_size_')})"


class SpatialFractionalMaxPooling(_FractionalMaxPooling):
    """The largest element of windows of an image that lie at random, more or less evenly.

    Args:
        pool_size_w, pool_size_h: the window's size, at least 2.
        out_w, out_h: the output's size; or its share of the input's, between 0 and 1.

    Shapes: ``planes x h x w`` in, ``planes x out_h x out_w`` out, or batches of these.
    Follows Torch7's ``nn/SpatialFractionalMaxPooling.lua``.

    >>> SpatialFractionalMaxPooling(2, 2, 0.5, 0.5)(torch.ones(3, 10, 8)).shape
    torch.Size([3, 5, 4])
    """

    fields: ClassVar[Fields] = plain("poolSizeW poolSizeH outW outH ratioW ratioH newRandomPool")

    def __init__(self, pool_size_w: int, pool_size_h: int, out_w: float, out_h: float) -> None:
        super().__init__()
        self.set_windows((pool_size_w, pool_size_h), (out_w, out_h))

    def pooled(self, input: Tensor, pool: tuple[int, ...], output: tuple[int, ...], samples: Tensor) -> Tensor:
        pooled: Tensor = F.fractional_max_pool2d(input, pool, output_size=output, _random_samples=samples)
        return pooled


class VolumetricFractionalMaxPooling(_FractionalMaxPooling):
    """The largest element of windows of a volume that lie at random, more or less evenly.

    Unlike the other volumetric classes, the last dimension is the time.

    Args:
        pool_size_t, pool_size_w, pool_size_h: the window's size, at least 2.
        out_t, out_w, out_h: the output's size; or its share of the input's, between 0 and 1.

    Shapes: ``planes x h x w x t`` in, ``planes x out_h x out_w x out_t`` out, or batches of these.
    Follows Torch7's ``nn/VolumetricFractionalMaxPooling.lua``.

    >>> VolumetricFractionalMaxPooling(2, 2, 2, 5, 4, 3)(torch.ones(3, 8, 9, 10)).shape
    torch.Size([3, 3, 4, 5])
    """

    axes = "twh"
    fields: ClassVar[Fields] = plain("poolSizeT poolSizeW poolSizeH outT outW outH ratioT ratioW ratioH newRandomPool")

    def __init__(
        self, pool_size_t: int, pool_size_w: int, pool_size_h: int, out_t: float, out_w: float, out_h: float
    ) -> None:
        super().__init__()
        self.set_windows((pool_size_t, pool_size_w, pool_size_h), (out_t, out_w, out_h))

    def sizes(self, name: str) -> tuple[int, ...]:
        return tuple(getattr(self, name + axis) for axis in "hwt")

    def pooled(self, input: Tensor, pool: tuple[int, ...], output: tuple[int, ...], samples: Tensor) -> Tensor:
        pooled: Tensor = F.fractional_max_pool3d(input, pool, output_size=output, _random_samples=samples.flip(-1))
        return pooled
