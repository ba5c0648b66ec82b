"""Full convolutions (transposed ones, deconvolutions): each input element lays a weighted window onto the output."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, ClassVar

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from ....formats import t7
from ...declarations.bad_input import describe, expect, expect_table
from ...declarations.fields import Fields, plain, sized
from .convolution import _Convolution
from .window import default_sizes


class _FullConvolution(_Convolution):
    """What the full convolutions share: a larger output by ``adj``, or of the size of a second input."""

    def check_adj(self) -> None:
        """Refuses an adjustment that is a whole step.

        Raises:
            ValueError: ``adj`` is not smaller than the step.
        """
        if any(adj > step - 1 for adj, step in zip(self.sizes("adj_"), self.sizes("d"), strict=True)):
            raise ValueError(f"adj ({self.listed('adj_')}) must be smaller than the step ({self.listed('d')})")

    def split(self, input: Any) -> tuple[Tensor, tuple[int, ...]]:
        """The input, and how much larger the output becomes: of a table, by the second tensor's size."""
        if isinstance(input, Tensor):
            self.expect_planes(input, self.n_input_plane)
            return input, self.sizes("adj_")
        expect_table(input, 2)
        tensor, target = input
        self.expect_planes(tensor, self.n_input_plane)
        expect(target)
        step, pad, kernel = self.sizes("d"), self.sizes("pad_"), self.sizes("k")
        if target.dim() < len(step):
            raise ValueError(f"expected a second tensor of at least {len(step)} dimensions, got {describe(target)}")
        due = target.shape[-len(step) :]
        return tensor, tuple((n + 2 * p - k) % d for n, p, k, d in zip(due, pad, kernel, step, strict=True))

    def shown_last(self) -> str:
        return f", {self.listed('adj_')}" if self.any_is_not("adj_", 0) else ""


class SpatialFullConvolution(_FullConvolution):
    """The transpose of SpatialConvolution: it makes an image larger.

    Shapes: ``n_input_plane x h x w`` in, ``n_output_plane x oh x ow`` out, or batches of these, where
    ``ow = (w - 1) * dw - 2 * pad_w + kw + adj_w``; or ``[image, other]`` in: the output then has the height and width
    of the other tensor. ``weight`` is ``n_input_plane x n_output_plane x kh x kw``.
    Follows Torch7's ``nn/SpatialFullConvolution.lua``.

    >>> import torch
    >>> layer = SpatialFullConvolution(3, 2, 4, 4, 2, 2, 1, 1)
    >>> layer(torch.ones(3, 5, 5)).shape, layer([torch.ones(3, 5, 5), torch.ones(11, 10)]).shape
    (torch.Size([2, 10, 10]), torch.Size([2, 11, 10]))
    """

    fields: ClassVar[Fields] = plain("nInputPlane nOutputPlane kW kH dW dH padW padH adjW adjH")
    sizes_due = sized(weight="n_input_plane n_output_plane kh kw", bias="n_output_plane")

    def __init__(
        self,
        n_input_plane: int,
        n_output_plane: int,
        kw: int,
        kh: int,
        dw: int = 1,
        dh: int = 1,
        pad_w: int = 0,
        pad_h: int = 0,
        adj_w: int = 0,
        adj_h: int = 0,
    ) -> None:
        super().__init__()
        self.n_input_plane = n_input_plane
        self.n_output_plane = n_output_plane
        self.set_sizes("k", kw, kh)
        self.set_sizes("d", dw, dh)
        self.set_sizes("pad_", pad_w, pad_h)
        self.set_sizes("adj_", adj_w, adj_h)
        self.check_adj()
        self.make((n_input_plane, n_output_plane, kh, kw), (n_output_plane,))

    @classmethod
    def upgrade(cls, fields: MutableMapping[Any, Any], version: int | None) -> None:
        default_sizes(fields, "padW padH adjW adjH", 0.0)

    def update_output(self, input: Any) -> Tensor:
        tensor, adj = self.split(input)
        return F.conv_transpose2d(tensor, self.weight, self.bias, self.sizes("d"), self.sizes("pad_"), adj)


class VolumetricFullConvolution(_FullConvolution):
    """The transpose of VolumetricConvolution: it makes a volume larger.

    Shapes: ``n_input_plane x t x h x w`` in, ``n_output_plane x ot x oh x ow`` out, or batches of these, where
    ``ot = (t - 1) * dt - 2 * pad_t + kt + adj_t``; or ``[volume, other]`` in: the output then has the last three sizes
    of the other tensor. ``weight`` is ``n_input_plane x n_output_plane x kt x kh x kw``.
    Follows Torch7's ``nn/VolumetricFullConvolution.lua``.

    >>> import torch
    >>> VolumetricFullConvolution(3, 2, 2, 4, 4, 2, 2, 2, 0, 1, 1)(torch.ones(3, 4, 5, 5)).shape
    torch.Size([2, 8, 10, 10])
    """

    axes = "twh"
    fields: ClassVar[Fields] = plain("nInputPlane nOutputPlane kT kW kH dT dW dH padT padW padH adjT adjW adjH")
    sizes_due = sized(weight="n_input_plane n_output_plane kt kh kw", bias="n_output_plane")

    def __init__(
        self,
        n_input_plane: int,
        n_output_plane: int,
        kt: int,
        kw: int,
        kh: int,
        dt: int = 1,
        dw: int = 1,
        dh: int = 1,
        pad_t: int = 0,
        pad_w: int = 0,
        pad_h: int = 0,
        adj_t: int = 0,
        adj_w: int = 0,
        adj_h: int = 0,
    ) -> None:
        super().__init__()
        self.n_input_plane = n_input_plane
        self.n_output_plane = n_output_plane
        self.set_sizes("k", kt, kw, kh)
        self.set_sizes("d", dt, dw, dh)
        self.set_sizes("pad_", pad_t, pad_w, pad_h)
        self.set_sizes("adj_", adj_t, adj_w, adj_h)
        self.check_adj()
        self.make((n_input_plane, n_output_plane, kt, kh, kw), (n_output_plane,))

    @classmethod
    def upgrade(cls, fields: MutableMapping[Any, Any], version: int | None) -> None:
        """Earlier versions have no ``adjW``, the planes of the weight the other way round, and ``pW`` for ``padW``."""
        if fields.get("adjW") is None:
            for name in ("weight", "gradWeight"):
                if isinstance(fields.get(name), t7.Tensor) and len(fields[name].size) == 5:
                    fields[name] = _turned(fields[name])
        for axis in "TWH":
            former = fields.pop(f"p{axis}", None)
            if fields.get(f"pad{axis}") is None and former is not None:
                fields[f"pad{axis}"] = former
        default_sizes(fields, "padT padW padH adjT adjW adjH", 0.0)

    def update_output(self, input: Any) -> Tensor:
        tensor, adj = self.split(input)
        return F.conv_transpose3d(tensor, self.weight, self.bias, self.sizes("d"), self.sizes("pad_"), adj)


def _turned(tensor: t7.Tensor) -> t7.Tensor:
    """A tensor with its first two dimensions exchanged, on a storage of its own."""
    return t7.Tensor.of(np.ascontiguousarray(tensor.numpy().swapaxes(0, 1)), tensor.typename)
