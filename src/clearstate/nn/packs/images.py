"""dpnn's augmentation of images in training, and glimpses of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..average_pooling import SpatialAveragePooling
from ..checks import expect, expect_share, expect_table
from ..fields import plain
from ..module import Module
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
