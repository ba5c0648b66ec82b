"""dpnn's augmentation of images in training, and glimpses of them and of sequences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..declarations.bad_input import describe, expect, expect_share, expect_table
from ..declarations.fields import plain
from ..layers.windows.average_pooling import SpatialAveragePooling
from ..protocol.module import Module
from .references import Referring


class SpatialRegionDropout(Module):
    """In training, zeros in the part ``p`` of the rows above or below, or of the columns left or right.

    What stays is scaled by ``1 / (1 - p)``. Shapes: ``planes x h x w`` or a batch of these. Follows dpnn's
    ``SpatialRegionDropout.lua``.

    >>> (SpatialRegionDropout(0.5)(torch.ones(1, 4, 4)) == 0).sum()
    tensor(8)
    """

    fields = plain("p")
    transient = ("noise",)
    p: float = 0.2

    def __init__(self, p: float = 0.2) -> None:
        super().__init__()
        expect_share(p, "part")
        self.p = p
        self.noise = torch.empty(0)

    def draw(self, input: Tensor) -> Tensor:
        """What the input is multiplied with."""
        noise = torch.full_like(input, 1 / (1 - self.p), requires_grad=False)
        side = int(torch.randint(4, ()))
        dimension = -2 if side < 2 else -1
        size = input.shape[dimension]
        gone = math.floor(size * self.p)
        noise.narrow(dimension, size - gone if side % 2 else 0, gone).zero_()
        return noise

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(3, 4))
        if not self.training:
            return input
        noise = self.draw(input)
        self.keep("noise", noise)
        return input * noise

    def to_string(self) -> str:
        return f"{self.typename} p: {self.p:f}"


class _ColorTransform(Module):
    """In training, a number for each plane of each image is added to it."""

    transient = ("noise",)
    input_channels: int

    def draw(self, input: Tensor) -> Tensor:
        """The numbers: ``planes``, or ``batch x planes``."""
        raise NotImplementedError

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(3, 4), size={-3: self.input_channels})
        if not self.training:
            return input
        noise = self.draw(input)
        self.keep("noise", noise)
        return input + noise.unsqueeze(-1).unsqueeze(-1)


class SimpleColorTransform(_ColorTransform):
    """In training, adds to each plane a number between the negative of its range and its range.

    Shapes: ``planes x h x w`` or a batch of these; ``range`` is of ``planes``. Follows dpnn's
    ``SimpleColorTransform.lua``.

    >>> SimpleColorTransform(3, torch.zeros(3))(torch.ones(3, 2, 2)).sum()
    tensor(12.)
    """

    fields = plain("inputChannels")
    range: Tensor

    def __init__(self, input_channels: int, range: Tensor) -> None:
        super().__init__()
        if range.numel() != input_channels:
            raise ValueError(f"expected a range for each of {input_channels} planes, got {range.numel()}")
        self.input_channels = input_channels
        self.register_buffer("range", range.clone())

    def draw(self, input: Tensor) -> Tensor:
        between = torch.rand(input.shape[:-2], dtype=input.dtype, device=input.device) * 2 - 1
        return between * self.range.flatten()

    def to_string(self) -> str:
        return "SimpleColorTransform"


class PCAColorTransform(_ColorTransform):
    """In training, moves the color of an image along the principal components of colors.

    Args:
        input_channels: planes.
        eigen_vectors: ``planes x planes``, in columns.
        eigen_values: of each.
        std: the deviation of how far each goes, times its value.

    Shapes: ``planes x h x w`` or a batch of these. Follows dpnn's ``PCAColorTransform.lua``.

    >>> PCAColorTransform(3, torch.eye(3), torch.zeros(3))(torch.ones(3, 2, 2)).sum()
    tensor(12.)
    """

    fields = plain("inputChannels std")
    eigen_vectors: Tensor
    eigen_values: Tensor
    std: float = 0.1

    def __init__(self, input_channels: int, eigen_vectors: Tensor, eigen_values: Tensor, std: float = 0.1) -> None:
        super().__init__()
        expect(eigen_vectors, dims=(2,), size={0: input_channels, 1: input_channels})
        expect(eigen_values, size={0: input_channels})
        self.input_channels, self.std = input_channels, std
        self.register_buffer("eigen_vectors", eigen_vectors.clone())
        self.register_buffer("eigen_values", eigen_values.clone())

    def draw(self, input: Tensor) -> Tensor:
        how_far = torch.randn(input.shape[:-2], dtype=input.dtype, device=input.device) * self.std
        return how_far * self.eigen_values.flatten() @ self.eigen_vectors.t()

    def to_string(self) -> str:
        return f"{self.typename} channels: {self.input_channels}, std: {self.std:f}"


class SpatialGlimpse(Referring):
    """Square cuts of an image around a place, each of twice the size of the last and brought to the size of the first.

    Args:
        size: of a cut: ``[height, width]``, or one number for both.
        depth: how many cuts.
        scale: how much larger each is; 2.

    Shapes: a table of ``batch x planes x h x w`` and places, ``batch x 2`` (row and column of the cut's centre, from -1
    to 1), in; ``batch x (depth planes) x height x width`` out; or without the batch. What is beyond the image is zero.
    Only the image gets a gradient. Follows dpnn's ``SpatialGlimpse.lua``.

    >>> SpatialGlimpse(2, 3)([torch.ones(1, 1, 8, 8), torch.zeros(1, 2)]).shape
    torch.Size([1, 3, 2, 2])
    """

    fields = plain("height width depth scale")
    height: int
    width: int
    depth: int = 3
    scale: float = 2

    def __init__(self, size: int | Sequence[int], depth: int = 3, scale: float = 2) -> None:
        super().__init__()
        self.height, self.width = (size, size) if isinstance(size, int) else size
        self.depth, self.scale = depth, scale
        self.add_module("0", SpatialAveragePooling(2, 2, 2, 2))
        self.refer(module=self._modules["0"])

    def update_output(self, input: Any) -> Tensor:
        expect_table(input, 2)
        image, places = input
        expect(image, dims=(3, 4))
        expect(places, dims=(image.dim() - 2,), size={-1: 2})
        if self.scale != 2:
            raise ValueError(f"glimpses are of twice the size each, not of {self.scale} times: that needs package nnx")
        if image.dim() == 3:
            return self._of_one(image, places)
        return torch.stack([self._of_one(one, place) for one, place in zip(image, places, strict=True)])

    def _of_one(self, image: Tensor, place: Tensor) -> Tensor:
        row, column = ((value + 1) / 2 for value in place.tolist())
        cuts = []
        for depth in range(self.depth):
            times = 2**depth
            height, width = self.height * times, self.width * times
            above, left = (height - 1) // 2, (width - 1) // 2
            padded = F.pad(image, (left, left, above, above))
            rows, columns = padded.shape[1] - height, padded.shape[2] - width
            y, x = math.floor(min(rows, max(0, row * rows))), math.floor(min(columns, max(0, column * columns)))
            cut = padded[:, y : y + height, x : x + width]
            cuts.append(F.avg_pool2d(cut, times) if depth else cut)
        return torch.cat(cuts)


class TemporalGlimpse(Module):
    """A cut of a sequence around a place.

    Args:
        size: of the cut.

    Shapes: a table of ``batch x steps x features`` and places, ``batch x 1`` (the cut's centre, from -1 to 1), in;
    ``batch x size x features`` out; or without the batch. What is beyond the sequence is zero. Only the sequence gets a
    gradient. Follows the ``TemporalGlimpse.lua`` that was in dpnn for a while.

    >>> TemporalGlimpse(2)([torch.arange(5.0).view(5, 1), torch.zeros(1)]).flatten()
    tensor([1., 2.])
    """

    fields = plain("size")
    size: int

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def update_output(self, input: Any) -> Tensor:
        expect_table(input, 2)
        sequence, places = input
        expect(sequence, dims=(2, 3))
        expect(places, dims=(sequence.dim() - 1,), size={-1: 1})
        if sequence.dim() == 2:
            return self._of_one(sequence, places)
        return torch.stack([self._of_one(one, place) for one, place in zip(sequence, places, strict=True)])

    def _of_one(self, sequence: Tensor, place: Tensor) -> Tensor:
        beyond = (self.size - 1) // 2
        padded = F.pad(sequence, (0, 0, beyond, beyond))
        free = len(padded) - self.size
        if free < 0:
            raise ValueError(
                f"expected a sequence of at least {self.size - 2 * beyond} steps, got {describe(sequence)}"
            )
        start = math.floor(min(free, max(0, (place.item() + 1) / 2 * free)))
        return padded[start : start + self.size]


class SpatialReSampling(Module):
    """Brings images to a size, between their elements in a line; the corners stay.

    Args:
        oheight, owidth: the size.
        rheight, rwidth: or how many times it is that of the first images.

    Shapes: ``planes x h x w``, or a batch of these. Follows nnx's ``SpatialReSampling.lua``.

    >>> SpatialReSampling(3, 3)(torch.tensor([[[0.0, 2.0], [4.0, 6.0]]]))[0, 1]
    tensor([2., 3., 4.])
    """

    fields = plain("oheight owidth rheight rwidth")
    oheight: int | None
    owidth: int | None
    rheight: float | None
    rwidth: float | None

    def __init__(
        self,
        oheight: int | None = None,
        owidth: int | None = None,
        rheight: float | None = None,
        rwidth: float | None = None,
    ) -> None:
        super().__init__()
        if (oheight is None and rheight is None) or (owidth is None and rwidth is None):
            raise ValueError("expected a size or a ratio for both height and width")
        self.oheight, self.owidth, self.rheight, self.rwidth = oheight, owidth, rheight, rwidth

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(3, 4))
        given = zip((self.oheight, self.owidth), (self.rheight, self.rwidth), input.shape[-2:], strict=True)
        size: Any = [int(ratio * here) if due is None and ratio is not None else due for due, ratio, here in given]
        batch = input if input.dim() == 4 else input.unsqueeze(0)
        made = F.interpolate(batch, size, mode="bilinear", align_corners=True)
        return made if input.dim() == 4 else made.squeeze(0)


class SpatialUniformCrop(Referring):
    """In training a cut of an image at a place drawn for each, in evaluation the middle.

    Args:
        oheight, owidth: of the cut; ``owidth`` is ``oheight`` unless given.
        scale: the least and the largest factor for the size of the cut, drawn for each image; the cut is then brought
            to its size. A list of the two, or a dict with ``min`` and ``max``.

    Shapes: ``planes x h x w`` or a batch of these in, ``planes x oheight x owidth`` out. As in Torch7, a cut does not
    reach the last row or column unless it is as large as the image. Follows dpnn's ``SpatialUniformCrop.lua``.

    >>> SpatialUniformCrop(2)(torch.ones(3, 5, 5)).shape
    torch.Size([3, 2, 2])
    """

    fields = plain("oheight owidth scale scaler")
    transient = ("coord", "scales")
    oheight: int
    owidth: int
    scale: Any = None
    scaler: Any

    def __init__(self, oheight: int, owidth: int | None = None, scale: Any = None) -> None:
        super().__init__()
        self.oheight, self.owidth = oheight, oheight if owidth is None else owidth
        self.scale = scale
        self.scaler = None if scale is None else SpatialReSampling(self.oheight, self.owidth)

    def draw(self, input: Tensor) -> list[Tensor]:
        """For each image of a batch the place of its cut, from 1 as Torch7 keeps it, and its factor."""
        count = len(input)
        factors = torch.ones(count)
        if self.scale is not None:
            least, most = (self.scale[k] for k in (("min", "max") if isinstance(self.scale, dict) else (0, 1)))
            factors.uniform_(least, most)
        sides = (self.oheight, self.owidth)
        sizes = torch.tensor([self.sized(factor) for factor in factors.tolist()] or [sides])
        free = torch.tensor(input.shape[-2:]) - sizes
        places = torch.ceil(torch.rand(count, 2, dtype=torch.float64) * (free - 1e-2) + 1e-2)
        return [places.int(), factors]

    def sized(self, factor: float) -> tuple[int, int]:
        """The rows and columns of a cut."""
        if self.scale is None:
            return self.oheight, self.owidth
        return math.ceil(factor * self.oheight), math.ceil(factor * self.owidth)

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(3, 4))
        batch = input if input.dim() == 4 else input.unsqueeze(0)
        high, wide = batch.shape[-2:]
        if high < self.oheight or wide < self.owidth:
            raise ValueError(f"expected images of at least {self.oheight}x{self.owidth}, got {describe(input)}")
        if self.training:
            made = self._drawn(batch)
        else:
            top, left = (max(math.ceil(free / 2), 1) - 1 for free in (high - self.oheight, wide - self.owidth))
            made = batch[:, :, top : top + self.oheight, left : left + self.owidth]
        return made if input.dim() == 4 else made.squeeze(0)

    def _drawn(self, batch: Tensor) -> Tensor:
        places, factors = self.draw(batch)
        self.keep("coord", places)
        if self.scale is not None:
            self.keep("scales", factors)
        cuts = []
        for image, place, factor in zip(batch, places.tolist(), factors.tolist(), strict=True):
            size = self.sized(factor)
            if size[0] > image.shape[-2] or size[1] > image.shape[-1]:
                raise ValueError(f"a cut of {size[0]}x{size[1]} does not fit into {describe(image)}")
            top, left = self._corner(image, place, size)
            cut = image[:, top : top + size[0], left : left + size[1]]
            cuts.append(cut if self.scale is None else self.scaler(cut))
        return torch.stack(cuts)

    def _corner(self, image: Tensor, place: list[int], size: tuple[int, int]) -> tuple[int, int]:
        """Where a cut begins, from 0."""
        if self.scale is None:
            return place[0] - 1, place[1] - 1
        high, wide = image.shape[-2:]
        centre = (
            math.ceil(high / 2 - (high - size[0]) / 2 + place[0]),
            math.ceil(wide / 2 - (high - size[1]) / 2 + place[1]),  # the height here, too, in Torch7
        )
        begin = (max(c - math.ceil(s / 2), 1) - 1 for c, s in zip(centre, size, strict=True))
        top, left = (min(b, n - s) for b, n, s in zip(begin, (high, wide), size, strict=True))
        return top, left
