"""Poolings that take all of a window: its mean, its weighted sum, its norm."""

from __future__ import annotations

import math
from collections.abc import MutableMapping
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter

from ...containers.sequential import Sequential
from ...declarations.bad_input import expect
from ...declarations.fields import plain, sized
from ...protocol.module import Module
from ..activation import Power, Sqrt, Square
from ..pointwise import MulConstant
from .pooling import _Pooling
from .window import _Windowed, default_sizes

A = TypeVar("A", bound="SpatialAveragePooling")
S = TypeVar("S", bound="_SubSampling")


class SpatialAveragePooling(_Pooling):
    """The mean of each ``kw x kh`` window of an image.

    Zeros of the padding count as elements, unless ``set_count_exclude_pad()``. Where ``divide`` is False, as in files
    of 2014 and before, it is the sum.

    Shapes: ``planes x h x w`` in, ``planes x oh x ow`` out, or batches of these, where
    ``ow = (w + 2 * pad_w - kw) // dw + 1``, rounded up after ``ceil()``.
    Follows Torch7's ``nn/SpatialAveragePooling.lua``.

    >>> SpatialAveragePooling(2, 2, 2, 2)(torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]))
    tensor([[[2.5000]]])
    """

    fields = plain("kW kH dW dH padW padH ceil_mode count_include_pad divide")
    count_include_pad: bool
    divide: bool

    def __init__(self, kw: int, kh: int, dw: int = 1, dh: int = 1, pad_w: int = 0, pad_h: int = 0) -> None:
        super().__init__()
        self.set_sizes("k", kw, kh)
        self.set_sizes("d", dw, dh)
        self.set_sizes("pad_", pad_w, pad_h)
        self.ceil_mode = False
        self.count_include_pad = True
        self.divide = True

    def set_count_include_pad(self: A) -> A:
        """Counts the padding's zeros, the default; returns the module."""
        self.count_include_pad = True
        return self

    def set_count_exclude_pad(self: A) -> A:
        """Divides by how many elements of the input are in a window; returns the module."""
        self.count_include_pad = False
        return self

    @classmethod
    def upgrade(cls, fields: MutableMapping[Any, Any], version: int | None) -> None:
        if fields.get("ceil_mode") is None:
            fields.update(ceil_mode=False, count_include_pad=True, padW=0.0, padH=0.0)
        default_sizes(fields, "padW padH", 0.0)
        default_sizes(fields, "count_include_pad divide", False)

    def update_output(self, input: Tensor) -> Tensor:
        kernel, step, padding = (self.kh, self.kw), (self.dh, self.dw), (self.pad_h, self.pad_w)
        try:
            output = F.avg_pool2d(input, kernel, step, padding, self.ceil_mode, self.count_include_pad)
        except (RuntimeError, TypeError, IndexError):
            self.expect_planes(input)
            self.expect_room(input, kernel, padding)
            raise
        if self.ceil_mode:
            output = self.beyond(input, output, math.nan)
        return output if self.divide else output * math.prod(kernel)


class VolumetricAveragePooling(_Pooling):
    """The mean of each ``kt x kh x kw`` window of a volume.

    Shapes: ``planes x t x h x w`` in, ``planes x ot x oh x ow`` out, or batches of these; the steps are the window's
    sizes unless given. Follows Torch7's ``nn/VolumetricAveragePooling.lua``.

    >>> VolumetricAveragePooling(2, 2, 2)(torch.ones(3, 4, 6, 8)).shape
    torch.Size([3, 2, 3, 4])
    """

    axes = "twh"
    fields = plain("kT kW kH dT dW dH")
    pad_t = pad_w = pad_h = 0

    def __init__(
        self, kt: int, kw: int, kh: int, dt: int | None = None, dw: int | None = None, dh: int | None = None
    ) -> None:
        super().__init__()
        self.set_sizes("k", kt, kw, kh)
        self.set_sizes("d", *(k if d is None else d for k, d in ((kt, dt), (kw, dw), (kh, dh))))

    def ceil(self: Any) -> Any:
        """Torch7's class has no such mode.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError("VolumetricAveragePooling takes only windows that end within the input")

    def update_output(self, input: Tensor) -> Tensor:
        self.expect_planes(input)
        return F.avg_pool3d(input, self.sizes("k"), self.sizes("d"))


class _SubSampling(_Windowed):
    """The sum of each window, times a weight a plane, plus a bias a plane."""

    weight: Parameter
    bias: Parameter

    def make(self, planes: int) -> None:
        """Makes the parameters, and draws them."""
        self.weight = Parameter(torch.empty(planes))
        self.bias = Parameter(torch.empty(planes))
        self.reset()

    def reset(self: S, stdv: float | None = None) -> S:
        """Draws the parameters anew: within ``stdv * sqrt(3)``, or within the inverse root of the window's elements."""
        bound = stdv * math.sqrt(3) if stdv else 1 / math.sqrt(math.prod(self.sizes("k")))
        for parameter in self.parameters(recurse=False):
            torch.nn.init.uniform_(parameter, -bound, bound)
        return self

    def to_string(self) -> str:
        return self.typename


class SpatialSubSampling(_SubSampling):
    """The sum of each window of an image, times a weight, plus a bias, one of each a plane.

    Shapes: ``n_input_plane x h x w`` in, ``n_input_plane x oh x ow`` out, or batches of these, where
    ``ow = (w - kw) // dw + 1``. Follows Torch7's ``nn/SpatialSubSampling.lua``.

    >>> SpatialSubSampling(3, 2, 2, 2, 2)(torch.ones(3, 6, 8)).shape
    torch.Size([3, 3, 4])
    """

    fields = plain("nInputPlane kW kH dW dH")
    sizes_due = sized(weight="n_input_plane", bias="n_input_plane")

    def __init__(self, n_input_plane: int, kw: int, kh: int, dw: int = 1, dh: int = 1) -> None:
        super().__init__()
        self.n_input_plane = n_input_plane
        self.set_sizes("k", kw, kh)
        self.set_sizes("d", dw, dh)
        self.make(n_input_plane)

    def update_output(self, input: Tensor) -> Tensor:
        self.expect_planes(input, self.n_input_plane)
        sums = F.avg_pool2d(input, self.sizes("k"), self.sizes("d"), divisor_override=1)
        return sums * self.weight[:, None, None] + self.bias[:, None, None]


class TemporalSubSampling(_SubSampling):
    """The sum of each ``kw`` frames of a sequence, times a weight, plus a bias, one of each a feature.

    Shapes: ``frames x input_frame_size`` in, ``((frames - kw) // dw + 1) x input_frame_size`` out, or batches of these.
    Follows Torch7's ``nn/TemporalSubSampling.lua``.

    >>> TemporalSubSampling(3, 2)(torch.ones(5, 3)).shape
    torch.Size([4, 3])
    """

    axes = "w"
    fields = plain("inputFrameSize kW dW")
    sizes_due = sized(weight="input_frame_size", bias="input_frame_size")

    def __init__(self, input_frame_size: int, kw: int, dw: int = 1) -> None:
        super().__init__()
        self.input_frame_size = input_frame_size
        self.kw = kw
        self.dw = dw
        self.make(input_frame_size)

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(2, 3), size={-1: self.input_frame_size})
        self.expect_room(input[..., 0], (self.kw,), (0,))
        sums = input.unfold(-2, self.kw, self.dw).sum(-1)
        return sums * self.weight + self.bias


class SpatialLPPooling(Sequential):
    """The ``pnorm``-norm of each window of an image.

    Shapes: ``planes x h x w`` in, ``planes x oh x ow`` out, or batches of these; the steps are the window's sizes
    unless given. Follows Torch7's ``nn/SpatialLPPooling.lua``.

    >>> SpatialLPPooling(1, 2, 2, 1)(torch.tensor([[[3.0, 4.0]]]))
    tensor([[[5.]]])
    """

    fields = plain("kW kH dW dH")

    def __init__(
        self, n_input_plane: int, pnorm: float, kw: int, kh: int, dw: int | None = None, dh: int | None = None
    ) -> None:
        super().__init__()
        self.kw = kw
        self.kh = kh
        self.dw = kw if dw is None else dw
        self.dh = kh if dh is None else dh
        self.add(Square() if pnorm == 2 else Power(pnorm))
        self.add(SpatialAveragePooling(kw, kh, self.dw, self.dh))
        self.add(MulConstant(kw * kh))
        self.add(Sqrt() if pnorm == 2 else Power(1 / pnorm))
        self.loaded()

    def loaded(self) -> None:
        """What is inside does not learn: in files of 2013 and before that is a SpatialSubSampling."""
        for parameter in self.parameters():
            parameter.requires_grad_(False)


class FeatureLPPooling(Module):
    """The ``power``-norm over windows of neighbouring features.

    Args:
        width: features in a window, 2 to 16.
        stride: from one window to the next, 1 to 4.
        power: of the norm.
        batch_mode: whether the first dimension is the batch; the features are the next one.

    Shapes: ``[batch x] features [x a [x b]]`` in, ``(features - width) // stride + 1`` features out.
    Follows Torch7's ``nn/FeatureLPPooling.lua``.

    >>> FeatureLPPooling(2, 1, 2)(torch.tensor([3.0, 4.0, 0.0]))
    tensor([5., 4.])
    """

    fields = plain("width stride power batch_mode")
    batch_mode: bool = False

    def __init__(self, width: int, stride: int, power: float, batch_mode: bool = False) -> None:
        super().__init__()
        if not 2 <= width <= 16:
            raise ValueError(f"width must be 2 to 16, not {width}")
        if not 1 <= stride <= 4:
            raise ValueError(f"stride must be 1 to 4, not {stride}")
        self.width = width
        self.stride = stride
        self.power = power
        self.batch_mode = bool(batch_mode)

    def update_output(self, input: Tensor) -> Tensor:
        dim = 1 if self.batch_mode else 0
        expect(input, dims=(dim + 1, dim + 2, dim + 3))
        if input.shape[dim] < self.width:
            raise ValueError(f"expected at least {self.width} features, got {input.shape[dim]}")
        total = input.unfold(dim, self.width, self.stride).pow(self.power).sum(-1)
        nothing = total == 0  # the root has no derivative there: Torch7 gives no gradient
        return torch.where(nothing, total, torch.where(nothing, 1, total).pow(1 / self.power))

    def to_string(self) -> str:
        batch = int(self.batch_mode)
        return f"{self.typename}(w{self.width} s{self.stride} power {self.power:g} batch {batch})"
