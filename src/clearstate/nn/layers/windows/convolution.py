"""Convolutions: over time, over images, over volumes."""

from __future__ import annotations

import math
from collections.abc import MutableMapping
from typing import Any, ClassVar, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter

from ...declarations.bad_input import expect
from ...declarations.fields import Fields, plain, sized
from .window import _Windowed, default_sizes

C = TypeVar("C", bound="_Convolution")


class _Convolution(_Windowed):
    """What all convolutions have: a weight, a bias or none, and how they are drawn."""

    n_input_plane: int
    n_output_plane: int
    weight: Parameter
    bias: Parameter | None

    def make(self, weight: tuple[int, ...], bias: tuple[int, ...]) -> None:
        """Makes the parameters, and draws them."""
        self.weight = Parameter(torch.empty(weight))
        self.bias = Parameter(torch.empty(bias))
        self.reset()

    def fan_in(self) -> int:
        """How many numbers make one output."""
        return self.n_input_plane * math.prod(self.sizes("k"))

    def reset(self: C, stdv: float | None = None) -> C:
        """Draws the parameters anew: uniformly within ``stdv * sqrt(3)``, or within ``1 / sqrt(fan_in)``."""
        bound = stdv * math.sqrt(3) if stdv else 1 / math.sqrt(self.fan_in())
        for parameter in self.parameters(recurse=False):
            torch.nn.init.uniform_(parameter, -bound, bound)
        return self

    def no_bias(self: C) -> C:
        """Takes the bias away; returns the module. Torch7's ``noBias``."""
        self.bias = None
        return self

    def to_string(self) -> str:
        text = f"{self.typename}({self.shown()}"
        padded = self.any_is_not("pad_", 0)
        if padded or self.any_is_not("d", 1):
            text += f", {self.listed('d')}"
        if padded:
            text += f", {self.listed('pad_')}"
        return f"{text}{self.shown_last()})" + ("" if self.bias is not None else " without bias")

    def shown(self) -> str:
        """What is printed first: the planes, the window."""
        return f"{self.n_input_plane} -> {self.n_output_plane}, {self.listed('k', 'x')}"

    def shown_last(self) -> str:
        """What is printed last."""
        return ""


class TemporalConvolution(_Convolution):
    """Convolves a sequence of frames: ``kw`` of them, each ``input_frame_size`` wide, make a new one.

    Shapes: ``frames x input_frame_size`` in, ``((frames - kw) // dw + 1) x output_frame_size`` out, or batches of
    these; ``weight`` is ``output_frame_size x (kw * input_frame_size)``.
    Follows Torch7's ``nn/TemporalConvolution.lua``.

    >>> TemporalConvolution(4, 3, 2)(torch.ones(5, 10, 4)).shape
    torch.Size([5, 9, 3])
    """

    axes = "w"
    fields = plain("inputFrameSize outputFrameSize kW dW")
    sizes_due = sized(weight="output_frame_size input_frame_size*kw", bias="output_frame_size")

    def __init__(self, input_frame_size: int, output_frame_size: int, kw: int, dw: int = 1) -> None:
        super().__init__()
        self.input_frame_size = input_frame_size
        self.output_frame_size = output_frame_size
        self.kw = kw
        self.dw = dw
        self.make((output_frame_size, input_frame_size * kw), (output_frame_size,))

    def fan_in(self) -> int:
        return self.kw * self.input_frame_size

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(2, 3), size={-1: self.input_frame_size})
        self.expect_room(input[..., 0], (self.kw,), (0,))
        weight = self.weight.view(-1, self.kw, self.input_frame_size).transpose(1, 2)
        return F.conv1d(input.transpose(-1, -2), weight, self.bias, self.dw).transpose(-1, -2)

    def to_string(self) -> str:
        return self.typename


class TemporalRowConvolution(_Convolution):
    """Convolves each feature of a sequence by itself.

    Shapes: ``frames x input_frame_size``, or a batch of these, in; as many features out, ``(frames - kw) // dw + 1``
    frames. With ``feat_first`` features come before frames. Follows Torch7's ``nn/TemporalRowConvolution.lua``.

    >>> TemporalRowConvolution(4, 2)(torch.ones(5, 10, 4)).shape
    torch.Size([5, 9, 4])
    """

    axes = "w"
    fields = plain("inputFrameSize kW dW featFirst")
    sizes_due = sized(weight="input_frame_size 1 kw", bias="input_frame_size")
    feat_first: bool = False

    def __init__(self, input_frame_size: int, kw: int, dw: int = 1, feat_first: bool = False) -> None:
        super().__init__()
        self.input_frame_size = input_frame_size
        self.kw = kw
        self.dw = dw
        self.feat_first = bool(feat_first)
        self.make((input_frame_size, 1, kw), (input_frame_size,))

    def fan_in(self) -> int:
        return self.kw * self.input_frame_size

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(2, 3), size={-2 if self.feat_first else -1: self.input_frame_size})
        rows = input if self.feat_first else input.transpose(-1, -2)
        self.expect_room(rows, (self.kw,), (0,))
        output = F.conv1d(rows, self.weight, self.bias, self.dw, groups=self.input_frame_size)
        return output if self.feat_first else output.transpose(-1, -2)

    def to_string(self) -> str:
        step = f", {self.dw}" if self.dw != 1 else ""
        suffix = "" if self.bias is not None else " without bias"
        return f"{self.typename}({self.input_frame_size}, {self.kw}{step}){suffix}"


class _SpatialConvolution(_Convolution):
    """What the convolutions over images share: their arguments, their fields, and those of older files."""

    fields: ClassVar[Fields] = plain("nInputPlane nOutputPlane kW kH dW dH padW padH")
    sizes_due = sized(
        weight="n_output_plane n_input_plane/groups kh kw | n_output_plane n_input_plane*kh*kw",
        bias="n_output_plane",
    )

    def __init__(
        self,
        n_input_plane: int,
        n_output_plane: int,
        kw: int,
        kh: int,
        dw: int = 1,
        dh: int = 1,
        pad_w: int = 0,
        pad_h: int | None = None,
    ) -> None:
        super().__init__()
        self.n_input_plane = n_input_plane
        self.n_output_plane = n_output_plane
        self.kw = kw
        self.kh = kh
        self.dw = dw
        self.dh = dh
        self.pad_w = pad_w
        self.pad_h = pad_w if pad_h is None else pad_h
        self.make(*self.shapes())

    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The sizes of ``weight`` and ``bias``."""
        return (self.n_output_plane, self.n_input_plane, self.kh, self.kw), (self.n_output_plane,)

    @classmethod
    def upgrade(cls, fields: MutableMapping[Any, Any], version: int | None) -> None:
        padding = fields.pop("padding", None)
        if padding is not None:
            fields["padW"] = fields["padH"] = padding
        default_sizes(fields, "padW padH", 0.0)

    def kernels(self) -> Tensor:
        """The weight with four dimensions: older files, and SpatialConvolutionMM, have two."""
        weight = self.weight
        return weight if weight.dim() == 4 else weight.view(weight.shape[0], -1, self.kh, self.kw)


class SpatialConvolution(_SpatialConvolution):
    """Convolves an image of several planes.

    Shapes: ``n_input_plane x h x w`` in, ``n_output_plane x oh x ow`` out, or batches of these, where
    ``ow = (w + 2 * pad_w - kw) // dw + 1``; ``weight`` is ``n_output_plane x n_input_plane x kh x kw``.
    Follows Torch7's ``nn/SpatialConvolution.lua``.

    >>> layer = SpatialConvolution(3, 16, 5, 5, 1, 1, 2)
    >>> layer, layer(torch.ones(2, 3, 8, 8)).shape
    (nn.SpatialConvolution(3 -> 16, 5x5, 1,1, 2,2), torch.Size([2, 16, 8, 8]))
    """

    groups: int = 1
    """Into how many groups the planes fall that see nothing of each other: in files of ``cudnn.SpatialConvolution``."""

    def loaded(self) -> None:
        super().loaded()
        self.groups = int(self.extra.get("groups", 1))

    def update_output(self, input: Tensor) -> Tensor:
        weight: Tensor = self.weight
        if weight.dim() != 4:
            weight = self.kernels()
        try:
            step, padding = (self.dh, self.dw), (self.pad_h, self.pad_w)
            return F.conv2d(input, weight, self.bias, step, padding, 1, self.groups)
        except (RuntimeError, TypeError):
            self.expect_planes(input, self.n_input_plane)
            self.expect_room(input, self.sizes("k"), self.sizes("pad_"))
            raise


class SpatialConvolutionMM(SpatialConvolution):
    """SpatialConvolution whose ``weight`` is a matrix, ``n_output_plane x (n_input_plane * kh * kw)``.

    Follows Torch7's ``nn/SpatialConvolutionMM.lua``.

    >>> SpatialConvolutionMM(3, 16, 5, 5).weight.shape
    torch.Size([16, 75])
    """

    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        return (self.n_output_plane, self.n_input_plane * self.kh * self.kw), (self.n_output_plane,)


class SpatialDilatedConvolution(SpatialConvolution):
    """SpatialConvolution whose window's rows and columns lie ``dilation_h`` and ``dilation_w`` apart.

    Follows Torch7's ``nn/SpatialDilatedConvolution.lua``.

    >>> SpatialDilatedConvolution(1, 1, 3, 3, 1, 1, 0, 0, 2, 2)(torch.ones(1, 5, 5)).shape
    torch.Size([1, 1, 1])
    """

    fields = plain("dilationW dilationH")

    def __init__(
        self,
        n_input_plane: int,
        n_output_plane: int,
        kw: int,
        kh: int,
        dw: int = 1,
        dh: int = 1,
        pad_w: int = 0,
        pad_h: int | None = None,
        dilation_w: int = 1,
        dilation_h: int = 1,
    ) -> None:
        super().__init__(n_input_plane, n_output_plane, kw, kh, dw, dh, pad_w, pad_h)
        self.dilation_w = dilation_w
        self.dilation_h = dilation_h

    def update_output(self, input: Tensor) -> Tensor:
        self.expect_planes(input, self.n_input_plane)
        step, padding = (self.dh, self.dw), (self.pad_h, self.pad_w)
        return F.conv2d(input, self.kernels(), self.bias, step, padding, (self.dilation_h, self.dilation_w))

    def shown_last(self) -> str:
        return f", {self.listed('dilation_')}"


class SpatialDepthWiseConvolution(_SpatialConvolution):
    """Convolves each plane of an image by itself, into ``n_output_plane`` planes of its own.

    Shapes: ``n_input_plane x h x w`` in, ``(n_input_plane * n_output_plane) x oh x ow`` out, or batches of these;
    ``weight`` is ``n_output_plane x (n_input_plane * kh * kw)``, ``bias`` is ``n_output_plane x n_input_plane``.
    Follows Torch7's ``nn/SpatialDepthWiseConvolution.lua``.

    >>> SpatialDepthWiseConvolution(3, 2, 5, 5)(torch.ones(3, 8, 8)).shape
    torch.Size([6, 4, 4])
    """

    sizes_due = sized(
        weight="n_output_plane n_input_plane*kh*kw | n_output_plane n_input_plane kh kw",
        bias="n_output_plane n_input_plane",
    )

    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        weight = self.n_output_plane, self.n_input_plane * self.kh * self.kw
        return weight, (self.n_output_plane, self.n_input_plane)

    def update_output(self, input: Tensor) -> Tensor:
        self.expect_planes(input, self.n_input_plane)
        weight = self.kernels().transpose(0, 1).reshape(-1, 1, self.kh, self.kw)
        bias = None if self.bias is None else self.bias.t().reshape(-1)
        return F.conv2d(input, weight, bias, self.sizes("d"), self.sizes("pad_"), groups=self.n_input_plane)


class SpatialConvolutionLocal(_SpatialConvolution):
    """A convolution with a weight and a bias of its own for each place of the image, whose size is fixed.

    Shapes: ``n_input_plane x ih x iw`` in, ``n_output_plane x oh x ow`` out, or batches of these; ``weight`` is
    ``oh x ow x n_output_plane x n_input_plane x kh x kw``, ``bias`` is ``n_output_plane x oh x ow``.
    Follows Torch7's ``nn/SpatialConvolutionLocal.lua``.

    >>> SpatialConvolutionLocal(3, 2, 8, 6, 5, 5)(torch.ones(3, 6, 8)).shape
    torch.Size([2, 2, 4])
    """

    fields = plain("iW iH oW oH")
    sizes_due = sized(
        weight="oh ow n_output_plane n_input_plane kh kw | oh*ow n_output_plane n_input_plane*kh*kw",
        bias="n_output_plane oh ow",
    )
    iw: int
    ih: int
    ow: int
    oh: int

    def __init__(
        self,
        n_input_plane: int,
        n_output_plane: int,
        iw: int,
        ih: int,
        kw: int,
        kh: int,
        dw: int = 1,
        dh: int = 1,
        pad_w: int = 0,
        pad_h: int | None = None,
    ) -> None:
        _Convolution.__init__(self)
        self.n_input_plane = n_input_plane
        self.n_output_plane = n_output_plane
        self.set_sizes("k", kw, kh)
        self.set_sizes("i", iw, ih)
        self.set_sizes("d", dw, dh)
        self.set_sizes("pad_", pad_w, pad_w if pad_h is None else pad_h)
        self.ow = (self.pad_w * 2 + iw - kw) // dw + 1
        self.oh = (self.pad_h * 2 + ih - kh) // dh + 1
        if self.ow < 1 or self.oh < 1:
            raise ValueError(f"an output of {self.oh}x{self.ow} has no elements: the window is larger than the input")
        weight = self.oh, self.ow, n_output_plane, n_input_plane, kh, kw
        self.make(weight, (n_output_plane, self.oh, self.ow))

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(3, 4), size={-3: self.n_input_plane, -2: self.ih, -1: self.iw})
        patches = F.unfold(input, self.sizes("k"), padding=self.sizes("pad_"), stride=self.sizes("d"))
        weight = self.weight.reshape(self.oh * self.ow, self.n_output_plane, -1)
        output: Tensor = torch.einsum("lok,...kl->...ol", weight, patches)
        output = output.reshape(*output.shape[:-1], self.oh, self.ow)
        return output if self.bias is None else output + self.bias

    def shown(self) -> str:
        sizes = f"{self.listed('i', 'x')}, {self.listed('k', 'x')}"
        return f"{self.n_input_plane} -> {self.n_output_plane}, {sizes}"


class VolumetricConvolution(_Convolution):
    """Convolves a volume (a sequence of images) of several planes.

    Shapes: ``n_input_plane x t x h x w`` in, ``n_output_plane x ot x oh x ow`` out, or batches of these; ``weight`` is
    ``n_output_plane x n_input_plane x kt x kh x kw``. Follows Torch7's ``nn/VolumetricConvolution.lua``.

    >>> VolumetricConvolution(3, 2, 2, 5, 5)(torch.ones(3, 4, 8, 8)).shape
    torch.Size([2, 3, 4, 4])
    """

    axes = "twh"
    fields: ClassVar[Fields] = plain("nInputPlane nOutputPlane kT kW kH dT dW dH padT padW padH")
    sizes_due = sized(
        weight="n_output_plane n_input_plane kt kh kw | n_output_plane n_input_plane*kt*kh*kw",
        bias="n_output_plane",
    )

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
        pad_w: int | None = None,
        pad_h: int | None = None,
    ) -> None:
        super().__init__()
        self.n_input_plane = n_input_plane
        self.n_output_plane = n_output_plane
        self.set_sizes("k", kt, kw, kh)
        self.set_sizes("d", dt, dw, dh)
        pad_w = pad_t if pad_w is None else pad_w
        self.set_sizes("pad_", pad_t, pad_w, pad_w if pad_h is None else pad_h)
        self.make((n_output_plane, n_input_plane, kt, kh, kw), (n_output_plane,))

    @classmethod
    def upgrade(cls, fields: MutableMapping[Any, Any], version: int | None) -> None:
        default_sizes(fields, "padT padW padH", 0.0)

    def spread(self) -> tuple[int, ...]:
        """How far apart the window's elements lie."""
        return (1, 1, 1)

    def update_output(self, input: Tensor) -> Tensor:
        self.expect_planes(input, self.n_input_plane)
        weight = self.weight.view(self.n_output_plane, self.n_input_plane, *self.sizes("k"))
        step, padding = self.sizes("d"), self.sizes("pad_")
        return F.conv3d(input, weight, self.bias, step, padding, self.spread())


class VolumetricDilatedConvolution(VolumetricConvolution):
    """VolumetricConvolution whose window is spread out: its elements lie ``dilation`` apart.

    Follows Torch7's ``nn/VolumetricDilatedConvolution.lua``.

    >>> VolumetricDilatedConvolution(1, 1, 2, 3, 3, 1, 1, 1, 0, 0, 0, 3, 2, 2)(torch.ones(1, 4, 5, 5)).shape
    torch.Size([1, 1, 1, 1])
    """

    fields = plain("dilationT dilationW dilationH")

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
        pad_w: int | None = None,
        pad_h: int | None = None,
        dilation_t: int = 1,
        dilation_w: int = 1,
        dilation_h: int = 1,
    ) -> None:
        super().__init__(n_input_plane, n_output_plane, kt, kw, kh, dt, dw, dh, pad_t, pad_w, pad_h)
        self.set_sizes("dilation_", dilation_t, dilation_w, dilation_h)

    def spread(self) -> tuple[int, ...]:
        return self.sizes("dilation_")

    def shown_last(self) -> str:
        return f", {self.listed('dilation_')}"
