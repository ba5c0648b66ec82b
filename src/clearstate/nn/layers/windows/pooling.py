"""Max pooling: the largest element of each window, over time, over images, over volumes."""

from __future__ import annotations

import math
from collections.abc import MutableMapping
from typing import Any, ClassVar, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ....formats import t7
from ....formats.t7.meaning.classes import lookup
from ...declarations.bad_input import describe, expect
from ...declarations.fields import Fields, plain
from ...protocol.handover import give
from ...protocol.module import Module
from ...protocol.tape import recording
from .window import _Windowed, default_sizes

P = TypeVar("P", bound="_Pooling")


class _Pooling(_Windowed):
    """What poolings share: windows that end outside the input count (``ceil``), or do not (``floor``)."""

    pools = True
    ceil_mode: bool = False

    def ceil(self: P) -> P:
        """Takes windows that reach over the input's end, too; returns the module."""
        self.ceil_mode = True
        return self

    def floor(self: P) -> P:
        """Takes only windows that end within the (padded) input, the default; returns the module."""
        self.ceil_mode = False
        return self

    def beyond(self, input: Tensor, output: Tensor, nothing: float) -> Tensor:
        """The output with the windows Torch7 also has, in ``ceil`` mode without padding, where the step is larger than
        the window: those that begin behind the input's end. There is nothing in them."""
        kernel, step = self.reach(), self.sizes("d")
        if not self.ceil_mode or all(d <= k for k, d in zip(kernel, step, strict=True)) or self.any_is_not("pad_", 0):
            return output
        missing: list[int] = []
        for dim, (k, d) in enumerate(zip(kernel, step, strict=True), -len(kernel)):
            missing = [0, -((k - input.shape[dim]) // d) + 1 - output.shape[dim], *missing]
        return F.pad(output, missing, value=nothing) if any(missing) else output

    def reach(self) -> tuple[int, ...]:
        """Over how many elements of each axis a window reaches."""
        spread = self.sizes("dilation_") if hasattr(self, "dilation_w") else (1,) * len(self.axes)
        return tuple(d * (k - 1) + 1 for k, d in zip(self.sizes("k"), spread, strict=True))

    def to_string(self) -> str:
        padding = f", {self.listed('pad_')}" if self.any_is_not("pad_", 0) else ""
        return f"{self.typename}({self.listed('k', 'x')}, {self.listed('d')}{padding}{self.shown_last()})"

    def shown_last(self) -> str:
        """What is printed last."""
        return ""


class _MaxPooling(_Pooling):
    """Keeps, in the protocol, where each maximum was (``indices``, from 0 within the plane) and the input's size.

    In a plain call it gives both to its unpoolings, where it has any.
    """

    transient = ("indices", "itime", "iheight", "iwidth")
    indices: Tensor
    itime: int
    iheight: int
    iwidth: int
    unpooled: int = 0
    """How many unpoolings refer to this module."""

    def __init__(self) -> None:
        super().__init__()
        self.indices = torch.empty(0, dtype=torch.long)
        self.ceil_mode = False

    def pooled(self, input: Tensor, indices: bool) -> Any:
        """The maxima, and their indices if asked for: PyTorch's function."""
        raise NotImplementedError

    def update_output(self, input: Tensor) -> Tensor:
        keeping = recording()
        try:
            if not (keeping or self.unpooled):
                output: Tensor = self.pooled(input, False)
                return self.beyond(input, output, -math.inf) if self.ceil_mode else output
            output, indices = self.pooled(input, True)
        except (RuntimeError, TypeError, IndexError, AttributeError):
            self.expect_planes(input)
            self.expect_room(input, self.sizes("k"), self.sizes("pad_"))
            raise
        size = input.shape[-len(self.axes) :]
        if keeping:
            self.keep("indices", indices)
            for name, length in zip(("iwidth", "iheight", "itime"), reversed(size), strict=False):
                self.__dict__[name] = length
        else:
            give(self, (indices, size), self.unpooled)
        return self.beyond(input, output, -math.inf) if self.ceil_mode else output

    def loaded(self) -> None:
        indices = self.__dict__.setdefault("indices", torch.empty(0, dtype=torch.long))
        if indices.numel():
            indices.data = self.from_file(indices)

    def to_object(self, obj: Any, writing: Any) -> None:
        super().to_object(obj, writing)
        indices, entry = self.indices, lookup(self.typename)
        if indices.numel() and entry is not None and "indices" in entry.transient:  # cudnn's has none
            obj.state["indices"] = t7.Tensor.of(self.in_file(indices.cpu()).numpy(), "torch.LongTensor")

    def from_file(self, indices: Tensor) -> Tensor:
        """Indices as files have them, counted from 0 within the plane."""
        return indices - 1

    def in_file(self, indices: Tensor) -> Tensor:
        """Indices as files have them."""
        return indices + 1


class SpatialMaxPooling(_MaxPooling):
    """The largest element of each ``kw x kh`` window of an image.

    Shapes: ``planes x h x w`` in, ``planes x oh x ow`` out, or batches of these, where
    ``ow = (w + 2 * pad_w - kw) // dw + 1``, rounded up after ``ceil()``. ``dw`` is ``kw`` unless given.
    Follows Torch7's ``nn/SpatialMaxPooling.lua``.

    >>> import torch
    >>> layer = SpatialMaxPooling(2, 2)
    >>> layer, layer(torch.ones(3, 5, 5)).shape, layer.ceil()(torch.ones(3, 5, 5)).shape
    (nn.SpatialMaxPooling(2x2, 2,2), torch.Size([3, 2, 2]), torch.Size([3, 3, 3]))
    """

    fields: ClassVar[Fields] = plain("kW kH dW dH padW padH ceil_mode")

    def __init__(
        self, kw: int, kh: int, dw: int | None = None, dh: int | None = None, pad_w: int = 0, pad_h: int = 0
    ) -> None:
        super().__init__()
        self.kw = kw
        self.kh = kh
        self.dw = kw if dw is None else dw
        self.dh = kh if dh is None else dh
        self.pad_w = pad_w
        self.pad_h = pad_h

    @classmethod
    def upgrade(cls, fields: MutableMapping[Any, Any], version: int | None) -> None:
        default_sizes(fields, "padW padH", 0.0)
        default_sizes(fields, "ceil_mode", False)

    def pooled(self, input: Tensor, indices: bool) -> Any:
        kernel, step, padding = (self.kh, self.kw), (self.dh, self.dw), (self.pad_h, self.pad_w)
        if indices:
            return F.max_pool2d_with_indices(input, kernel, step, padding, (1, 1), self.ceil_mode)
        if kernel[0] == kernel[1] and step[0] == step[1] and padding[0] == padding[1]:  # PyTorch reads numbers faster
            return torch.max_pool2d(input, kernel[0], step[0], padding[0], 1, self.ceil_mode)
        return torch.max_pool2d(input, kernel, step, padding, (1, 1), self.ceil_mode)


class SpatialDilatedMaxPooling(SpatialMaxPooling):
    """SpatialMaxPooling whose window's rows and columns lie ``dilation_h`` and ``dilation_w`` apart.

    Follows Torch7's ``nn/SpatialDilatedMaxPooling.lua``.

    >>> import torch
    >>> SpatialDilatedMaxPooling(2, 2, 1, 1, 0, 0, 2, 2)(torch.ones(3, 5, 5)).shape
    torch.Size([3, 3, 3])
    """

    fields = plain("dilationW dilationH")

    def __init__(
        self,
        kw: int,
        kh: int,
        dw: int | None = None,
        dh: int | None = None,
        pad_w: int = 0,
        pad_h: int = 0,
        dilation_w: int = 1,
        dilation_h: int = 1,
    ) -> None:
        super().__init__(kw, kh, dw, dh, pad_w, pad_h)
        self.set_sizes("dilation_", dilation_w, dilation_h)

    def pooled(self, input: Tensor, indices: bool) -> Any:
        step, padding, dilation = self.sizes("d"), self.sizes("pad_"), self.sizes("dilation_")
        pool = F.max_pool2d_with_indices if indices else F.max_pool2d
        return pool(input, self.sizes("k"), step, padding, dilation, self.ceil_mode)

    def shown_last(self) -> str:
        return f", {self.listed('dilation_')}"


class VolumetricMaxPooling(_MaxPooling):
    """The largest element of each ``kt x kh x kw`` window of a volume.

    Shapes: ``planes x t x h x w`` in, ``planes x ot x oh x ow`` out, or batches of these; the steps are the window's
    sizes unless given. Follows Torch7's ``nn/VolumetricMaxPooling.lua``.

    >>> import torch
    >>> VolumetricMaxPooling(2, 2, 2)(torch.ones(3, 4, 6, 8)).shape
    torch.Size([3, 2, 3, 4])
    """

    axes = "twh"
    version = 2
    fields: ClassVar[Fields] = plain("kT kW kH dT dW dH padT padW padH ceil_mode")

    def __init__(
        self,
        kt: int,
        kw: int,
        kh: int,
        dt: int | None = None,
        dw: int | None = None,
        dh: int | None = None,
        pad_t: int = 0,
        pad_w: int = 0,
        pad_h: int = 0,
    ) -> None:
        super().__init__()
        self.set_sizes("k", kt, kw, kh)
        self.set_sizes("d", *(k if d is None else d for k, d in ((kt, dt), (kw, dw), (kh, dh))))
        self.set_sizes("pad_", pad_t, pad_w, pad_h)

    @classmethod
    def upgrade(cls, fields: MutableMapping[Any, Any], version: int | None) -> None:
        default_sizes(fields, "padT padW padH", 0.0)
        default_sizes(fields, "ceil_mode", False)

    def pooled(self, input: Tensor, indices: bool) -> Any:
        step, padding = self.sizes("d"), self.sizes("pad_")
        pool = F.max_pool3d_with_indices if indices else F.max_pool3d
        return pool(input, self.sizes("k"), step, padding, self.spread(), self.ceil_mode)

    def spread(self) -> tuple[int, ...]:
        """How far apart the window's elements lie."""
        return (1, 1, 1)

    def from_file(self, indices: Tensor) -> Tensor:
        """Files have the place within the window, one byte an axis: time, height, width."""
        if not {"itime", "iheight", "iwidth"} <= self.__dict__.keys():
            return indices.new_empty(0)
        size = [self.itime, self.iheight, self.iwidth]
        flat = indices.new_zeros(())
        for axis, (begin, apart, length) in enumerate(zip(self._begins(indices), self.spread(), size, strict=True)):
            flat = flat * length + begin + ((indices >> 8 * axis) & 255) * apart
        return flat

    def in_file(self, indices: Tensor) -> Tensor:
        size = [self.itime, self.iheight, self.iwidth]
        rest, packed = indices, indices.new_zeros(())
        for axis, begin in reversed(list(enumerate(self._begins(indices)))):
            place = rest % size[axis] - begin
            rest = rest // size[axis]
            packed = packed | (place // self.spread()[axis] << 8 * axis)
        return packed

    def _begins(self, indices: Tensor) -> list[Tensor]:
        """Where the windows begin along each axis, to be broadcast over the indices."""
        begins = []
        for axis, (step, pad) in enumerate(zip(self.sizes("d"), self.sizes("pad_"), strict=True), -3):
            count = indices.new_ones(indices.shape[axis]).cumsum(0) - 1
            begins.append((count * step - pad).reshape(-1, *[1] * (-axis - 1)))
        return begins


class VolumetricDilatedMaxPooling(VolumetricMaxPooling):
    """VolumetricMaxPooling whose window is spread out: its elements lie ``dilation`` apart.

    Follows Torch7's ``nn/VolumetricDilatedMaxPooling.lua``.

    >>> import torch
    >>> VolumetricDilatedMaxPooling(2, 2, 2, 1, 1, 1, 0, 0, 0, 3, 2, 2)(torch.ones(3, 4, 5, 5)).shape
    torch.Size([3, 1, 3, 3])
    """

    version = 1
    fields = plain("dilationT dilationW dilationH")

    def __init__(
        self,
        kt: int,
        kw: int,
        kh: int,
        dt: int | None = None,
        dw: int | None = None,
        dh: int | None = None,
        pad_t: int = 0,
        pad_w: int = 0,
        pad_h: int = 0,
        dilation_t: int = 1,
        dilation_w: int = 1,
        dilation_h: int = 1,
    ) -> None:
        super().__init__(kt, kw, kh, dt, dw, dh, pad_t, pad_w, pad_h)
        self.set_sizes("dilation_", dilation_t, dilation_w, dilation_h)

    def spread(self) -> tuple[int, ...]:
        return self.sizes("dilation_")

    def shown_last(self) -> str:
        return f", {self.listed('dilation_')}"


class TemporalMaxPooling(_Windowed):
    """The largest element of each ``kw`` frames of a sequence, feature by feature.

    Shapes: ``frames x features`` in, ``((frames - kw) // dw + 1) x features`` out, or batches of these; ``dw`` is
    ``kw`` unless given. Follows Torch7's ``nn/TemporalMaxPooling.lua``.

    >>> import torch
    >>> TemporalMaxPooling(2)(torch.ones(5, 3)).shape
    torch.Size([2, 3])
    """

    axes = "w"
    fields = plain("kW dW")

    def __init__(self, kw: int, dw: int | None = None) -> None:
        super().__init__()
        self.kw = kw
        self.dw = kw if dw is None else dw

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(2, 3))
        features = input.transpose(-1, -2)
        self.expect_room(features, (self.kw,), (0,))
        return F.max_pool1d(features, (self.kw,), (self.dw,)).transpose(-1, -2)


class TemporalDynamicKMaxPooling(Module):
    """The ``k`` largest elements of each feature of a sequence, in the order they had.

    Args:
        min_k: the least ``k``.
        factor: ``k`` is this share of the frames, rounded up, where that is more.

    Shapes: ``frames x features`` in, ``k x features`` out, or batches of these.
    Follows Torch7's ``nn/TemporalDynamicKMaxPooling.lua``.

    >>> import torch
    >>> TemporalDynamicKMaxPooling(2)(torch.tensor([[3.0], [1.0], [2.0]]))
    tensor([[3.],
            [2.]])
    """

    fields = plain("minK factor")
    factor: float

    def __init__(self, min_k: int, factor: float = 0) -> None:
        super().__init__()
        self.min_k = min_k
        self.factor = factor

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(2, 3))
        frames = input.shape[-2]
        k = max(self.min_k, math.ceil(self.factor * frames))
        if k > frames:
            raise ValueError(f"the {k} largest of {frames} frames are due, got {describe(input)}")
        largest = input.topk(k, -2).indices.sort(-2).values
        return input.gather(-2, largest)
