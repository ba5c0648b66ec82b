"""Layers that make images and volumes larger by an integer factor, or to a given size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...declarations.bad_input import describe, expect
from ...declarations.fields import plain
from ...protocol.module import Module

LINEAR = {2: "bilinear", 3: "trilinear"}


def repeated(input: Tensor, factor: int, dims: int) -> Tensor:
    """Each element ``factor`` times along each of the last ``dims`` dimensions.

    >>> repeated(torch.tensor([[1, 2]]), 2, 2).tolist()
    [[1, 1, 2, 2], [1, 1, 2, 2]]
    """
    before, sizes = input.shape[:-dims], input.shape[-dims:]
    spaced = input.reshape(*before, *(n for size in sizes for n in (size, 1)))
    wide = spaced.expand(*before, *(n for size in sizes for n in (size, factor)))
    return wide.reshape(*before, *(size * factor for size in sizes))


def interpolated(input: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """Linear interpolation of the last dimensions to these sizes, first on first and last on last element.

    Torch7 computes the places between elements in single precision, whatever the tensor's type; so does this.

    >>> interpolated(torch.tensor([[0.0, 1.0]]), (1, 3))
    tensor([[0.0000, 0.5000, 1.0000]])
    """
    if input.dtype is not torch.float64:
        planes = input.reshape(1, -1, *input.shape[-len(sizes) :])
        wide = F.interpolate(planes, sizes, mode=LINEAR[len(sizes)], align_corners=True)
        return wide.reshape(*input.shape[: -len(sizes)], *sizes)
    for dim, size in enumerate(sizes, -len(sizes)):
        if size != input.shape[dim]:
            input = _interpolated_along(input, dim, size)
    return input


def _interpolated_along(input: Tensor, dim: int, size: int) -> Tensor:
    last = input.shape[dim] - 1
    step = torch.tensor(last, dtype=torch.float32) / max(size - 1, 1)
    places = step * torch.arange(size, dtype=torch.float32)
    lower = places.long()
    weight = (places - lower).to(input).reshape(-1, *[1] * (-dim - 1))
    lower = lower.to(input.device)
    upper = (lower + 1).clamp(max=last)
    return (1 - weight) * input.index_select(dim, lower) + weight * input.index_select(dim, upper)


def integer_factor(scale: Any) -> int:
    """A scale factor, checked.

    Raises:
        ValueError: it is no integer of at least 1.
    """
    if not isinstance(scale, int | float) or scale < 1 or int(scale) != scale:
        raise ValueError(f"scale_factor must be an integer of at least 1, not {scale!r}")
    return int(scale)


def size_of(params: Any) -> Mapping[str, int]:
    """The table of output sizes, checked.

    Raises:
        TypeError: it is no table.
        ValueError: it has no width or height.
    """
    if not isinstance(params, Mapping):
        raise TypeError(f"expected a scale factor or a table of owidth and oheight, got {describe(params)}")
    if not {"owidth", "oheight"} <= params.keys():
        raise ValueError(f"owidth and oheight are due, got {', '.join(map(str, params)) or 'none'}")
    return params


class SpatialUpSamplingNearest(Module):
    """Each element of an image ``scale_factor`` times, in both directions.

    Shapes: any in whose last two dimensions are height and width (3 or 4 dimensions), both times the factor out.
    Follows Torch7's ``nn/SpatialUpSamplingNearest.lua``.

    >>> SpatialUpSamplingNearest(2)(torch.tensor([[[1.0, 2.0]]]))
    tensor([[[1., 1., 2., 2.],
             [1., 1., 2., 2.]]])
    """

    fields = plain("scale_factor")
    scale_factor: int

    def __init__(self, scale: int) -> None:
        super().__init__()
        self.scale_factor = integer_factor(scale)

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(3, 4))
        return repeated(input, self.scale_factor, 2)


class SpatialUpSamplingBilinear(Module):
    """Enlarges an image by bilinear interpolation; corners lie on corners.

    Args:
        params: an integer factor, or a table ``{"owidth": ..., "oheight": ...}``.

    Shapes: ``planes x h x w``, or a batch of these, in and out. Follows Torch7's ``nn/SpatialUpSamplingBilinear.lua``.

    >>> SpatialUpSamplingBilinear({"owidth": 3, "oheight": 1})(torch.tensor([[[1.0, 2.0]]]))
    tensor([[[1.0000, 1.5000, 2.0000]]])
    """

    fields = plain("owidth oheight scale_factor")
    scale_factor: int | None = None
    owidth: int | None = None
    oheight: int | None = None

    def __init__(self, params: int | Mapping[str, int]) -> None:
        super().__init__()
        if isinstance(params, int | float):
            self.scale_factor = integer_factor(params)
        else:
            given = size_of(params)
            self.owidth, self.oheight = given["owidth"], given["oheight"]

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(3, 4))
        height, width = input.shape[-2:]
        if self.scale_factor is not None:
            return interpolated(input, (height * self.scale_factor, width * self.scale_factor))
        if self.oheight is None or self.owidth is None:
            raise ValueError("neither a scale factor nor an output size is set")
        return interpolated(input, (self.oheight, self.owidth))

    def to_string(self) -> str:
        size = f"{self.oheight}, {self.owidth}" if self.scale_factor is None else self.scale_factor
        return f"{self.typename}({size})"


class UpSampling(Module):
    """Enlarges a batch of images or volumes: each element several times, or by linear interpolation.

    Args:
        params: an integer factor, or for ``"linear"`` a table of ``owidth``, ``oheight`` and, for volumes, ``odepth``.
        mode: ``"nearest"``, or ``"linear"`` (``"bilinear"`` and ``"trilinear"`` are the same): corners lie on corners.

    Shapes: ``batch x planes x h x w`` or ``batch x planes x t x h x w`` in and out.
    Follows Torch7's ``nn/UpSampling.lua``.

    >>> layer = UpSampling(2)
    >>> layer, layer(torch.ones(1, 1, 2, 3, 3)).shape
    (nn.UpSampling(2x, nearest), torch.Size([1, 1, 4, 6, 6]))
    """

    fields = plain("mode odepth owidth oheight scale_factor")
    mode: str
    scale_factor: int | None = None
    odepth: int | None = None
    owidth: int | None = None
    oheight: int | None = None

    def __init__(self, params: int | Mapping[str, int], mode: str = "nearest") -> None:
        super().__init__()
        self.mode = "linear" if mode in ("linear", "bilinear", "trilinear") else "nearest"
        if isinstance(params, int | float):
            self.scale_factor = integer_factor(params)
        elif self.mode == "nearest":
            raise ValueError("nearest up-sampling takes a scale factor, not an output size")
        else:
            given = size_of(params)
            self.odepth, self.owidth, self.oheight = given.get("odepth"), given["owidth"], given["oheight"]

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(4, 5))
        dims = input.dim() - 2
        if self.mode == "nearest":
            return repeated(input, integer_factor(self.scale_factor), dims)
        if self.scale_factor is not None:
            return interpolated(input, tuple(size * self.scale_factor for size in input.shape[2:]))
        sizes = [size for size in (self.odepth, self.oheight, self.owidth)[-dims:] if size is not None]
        if len(sizes) != dims:
            raise ValueError(f"no odepth was given for the up-sampling of {describe(input)}")
        return interpolated(input, tuple(sizes))

    def to_string(self) -> str:
        sizes = [str(size) for size in (self.odepth, self.oheight, self.owidth) if size is not None]
        factor = "x".join(sizes) if self.scale_factor is None else f"{self.scale_factor}x"
        return f"{self.typename}({factor}, {self.mode})"


class PixelShuffle(Module):
    """Makes an image larger by spreading ``r * r`` planes over squares of ``r x r`` elements of one plane.

    Shapes: ``(planes * r * r) x h x w`` in, ``planes x (r * h) x (r * w)`` out, or batches of these.
    Follows Torch7's ``nn/PixelShuffle.lua``.

    >>> PixelShuffle(2)(torch.arange(4.0).reshape(4, 1, 1))
    tensor([[[0., 1.],
             [2., 3.]]])
    """

    fields = plain("upscaleFactor upscaleFactorSquared")
    upscale_factor_squared: int

    def __init__(self, upscale_factor: int) -> None:
        super().__init__()
        self.upscale_factor = upscale_factor
        self.upscale_factor_squared = upscale_factor * upscale_factor

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(3, 4))
        if input.shape[-3] % self.upscale_factor_squared:
            square = self.upscale_factor_squared
            raise ValueError(f"expected a tensor whose planes are a multiple of {square}, got {describe(input)}")
        return F.pixel_shuffle(input, self.upscale_factor)
