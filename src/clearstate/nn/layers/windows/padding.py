"""Layers that make images and volumes larger at their borders, or crop them, and tensors along one dimension."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ...declarations.bad_input import describe, expect
from ...declarations.fields import Fields, index, plain
from ...protocol.module import Module


class _Padding(Module):
    """Borders of so many elements; negative numbers crop. Those not given are as wide as the first."""

    borders: ClassVar[tuple[str, ...]] = ()
    """The attributes, in the order of the arguments and of `F.pad`."""
    dims: ClassVar[tuple[int, ...]] = (3, 4)
    mode: ClassVar[str] = "constant"

    def set_borders(self, first: int, *others: int | None) -> None:
        for name, size in zip(self.borders, (first, *others), strict=True):
            setattr(self, name, first if size is None else size)

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=self.dims)
        pads = [getattr(self, name) for name in self.borders]
        for i in range(len(pads) // 2):
            if input.shape[-1 - i] + pads[2 * i] + pads[2 * i + 1] < 1:
                raise ValueError(f"{describe(input)} is too small for borders of {pads}")
        return F.pad(input, pads, mode=self.mode)

    def to_string(self) -> str:
        named = [f"{name.removeprefix('pad_').removeprefix('p')}={getattr(self, name)}" for name in self.borders]
        return f"{self.typename}({', '.join(named)})"


class _SpatialPadding(_Padding):
    borders = ("pad_l", "pad_r", "pad_t", "pad_b")
    fields: ClassVar[Fields] = plain("pad_l pad_r pad_t pad_b")

    def __init__(
        self, pad_l: int, pad_r: int | None = None, pad_t: int | None = None, pad_b: int | None = None
    ) -> None:
        super().__init__()
        self.set_borders(pad_l, pad_r, pad_t, pad_b)


class SpatialZeroPadding(_SpatialPadding):
    """Zeros around an image (left, right, top, bottom); negative numbers crop it.

    Shapes: ``planes x h x w``, or a batch of these, in and out. Follows Torch7's ``nn/SpatialZeroPadding.lua``.

    >>> SpatialZeroPadding(1, 0, 0, -1)(torch.ones(1, 2, 2))
    tensor([[[0., 1., 1.]]])
    """


class SpatialReflectionPadding(_SpatialPadding):
    """An image continued by its mirror image, not repeating the border; negative numbers crop.

    Shapes: ``planes x h x w``, or a batch of these, in and out. Follows Torch7's ``nn/SpatialReflectionPadding.lua``.

    >>> SpatialReflectionPadding(2, 0, 0, 0)(torch.tensor([[[1.0, 2.0, 3.0]]]))
    tensor([[[3., 2., 1., 2., 3.]]])
    """

    mode = "reflect"


class SpatialReplicationPadding(_SpatialPadding):
    """An image continued by its border's values; negative numbers crop.

    Shapes: ``planes x h x w``, or a batch of these, in and out. Follows Torch7's ``nn/SpatialReplicationPadding.lua``.

    >>> SpatialReplicationPadding(2, 0, 0, 0)(torch.tensor([[[1.0, 2.0, 3.0]]]))
    tensor([[[1., 1., 1., 2., 3.]]])
    """

    mode = "replicate"


class VolumetricReplicationPadding(_Padding):
    """A volume continued by its border's values (left, right, top, bottom, front, back); negative numbers crop.

    Shapes: ``planes x t x h x w``, or a batch of these, in and out.
    Follows Torch7's ``nn/VolumetricReplicationPadding.lua``.

    >>> VolumetricReplicationPadding(0, 0, 0, 0, 1, 2)(torch.ones(1, 2, 2, 2)).shape
    torch.Size([1, 5, 2, 2])
    """

    borders = ("pleft", "pright", "ptop", "pbottom", "pfront", "pback")
    fields = plain("pleft pright ptop pbottom pfront pback")
    dims = (4, 5)
    mode = "replicate"

    def __init__(
        self,
        pleft: int,
        pright: int | None = None,
        ptop: int | None = None,
        pbottom: int | None = None,
        pfront: int | None = None,
        pback: int | None = None,
    ) -> None:
        super().__init__()
        self.set_borders(pleft, pright, ptop, pbottom, pfront, pback)


class Padding(Module):
    """Inserts entries of one value along one dimension.

    Args:
        dim: the dimension, counted without the batch's where there is one.
        pad: how many entries; a negative number counts ``index`` from the front, a positive one from the back.
        n_input_dim: how many dimensions an input has; one of more is a batch.
        value: what the entries are.
        index: how many of the input's entries lie between the new ones and its end (its beginning, for a negative
            ``pad``).

    Shapes: any in, the same out save ``abs(pad)`` more along ``dim``. Follows Torch7's ``nn/Padding.lua``.

    >>> Padding(0, 2)(torch.ones(1)), Padding(0, -2)(torch.ones(1)), Padding(0, -1, index=1)(torch.ones(2))
    (tensor([1., 0., 0.]), tensor([0., 0., 1.]), tensor([1., 0., 1.]))
    """

    fields = plain("pad nInputDim value") | index("dim index")
    n_input_dim: int | None = None
    value: float
    index: int = 0

    def __init__(self, dim: int, pad: int, n_input_dim: int | None = None, value: float = 0.0, index: int = 0) -> None:
        super().__init__()
        self.dim = dim
        self.pad = pad
        self.n_input_dim = n_input_dim
        self.value = value
        self.index = index

    def update_output(self, input: Tensor) -> Tensor:
        expect(input)
        dim = self.dim
        if dim >= 0 and self.n_input_dim and input.dim() != self.n_input_dim:
            dim += 1
        if not -input.dim() <= dim < input.dim():
            raise ValueError(f"there is no dimension {self.dim} in {describe(input)}")
        count = input.shape[dim]
        if not 0 <= self.index <= count:
            raise ValueError(f"cannot insert at index {self.index} of a dimension of {count}: {describe(input)}")
        place = count - self.index if self.pad > 0 else self.index
        size: list[Any] = list(input.shape)
        size[dim] = abs(self.pad)
        between = input.new_full(size, self.value)
        return torch.cat((input.narrow(dim, 0, place), between, input.narrow(dim, place, count - place)), dim)
