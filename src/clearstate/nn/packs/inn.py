"""inn (imagine-nn): pooling of regions and pyramids, stochastic pooling, and fixed affine layers.

Its pooling and normalization layers that nn has, too, are nn's under other names: see `clearstate.nn.t7.packages`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ...formats import t7
from ..containers.sequential import Sequential
from ..containers.tables import Concat, ConcatTable
from ..declarations.bad_input import describe, expect, expect_table
from ..declarations.fields import index, plain
from ..layers.activation import Power
from ..layers.identity import Contiguous, Identity
from ..layers.pointwise import AddConstant, MulConstant
from ..layers.shape import View
from ..layers.table_arithmetic import CDivTable
from ..layers.windows.adaptive_pooling import SpatialAdaptiveMaxPooling
from ..layers.windows.average_pooling import SpatialAveragePooling
from ..layers.windows.padding import SpatialZeroPadding
from ..protocol.module import Module
from ..protocol.tape import recording


class MeanSubtraction(Module, typename="inn.MeanSubtraction"):
    """Subtracts a mean image.

    Shapes: ``planes x h x w`` or a batch of these in and out; ``mean`` is of one image, with or without a batch
    dimension. Follows inn's ``MeanSubtraction.lua``.

    >>> MeanSubtraction(torch.ones(3, 2, 2))(torch.ones(5, 3, 2, 2)).abs().sum()
    tensor(0.)
    """

    mean: Tensor

    def __init__(self, mean: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean.clone())

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(3, 4))
        mean = self.mean[0] if self.mean.dim() == 4 else self.mean  # a batch of means is one, expanded
        return input - mean.view(input.shape[-3:])


class ConstAffine(Module, typename="inn.ConstAffine"):
    """``a x + b`` with a number of each for each plane, which are not learnt: batch normalization in evaluation.

    Args:
        n_output_plane: how many planes.
        inplace: called as a PyTorch module, write the result over the input.

    Shapes: ``batch x planes`` or ``batch x planes x h x w``. Follows inn's ``ConstAffine.lua``.

    >>> layer = ConstAffine(2)
    >>> layer.a[1] = 3
    >>> layer(torch.ones(1, 2))
    tensor([[1., 3.]])
    """

    fields = plain("inplace")
    a: Tensor
    b: Tensor
    inplace: bool = False

    def __init__(self, n_output_plane: int, inplace: bool = False) -> None:
        super().__init__()
        self.register_buffer("a", torch.ones(n_output_plane))
        self.register_buffer("b", torch.zeros(n_output_plane))
        self.inplace = inplace

    def reset(self) -> ConstAffine:
        """Sets ``a`` to 1 and ``b`` to 0."""
        self.a.fill_(1)
        self.b.zero_()
        return self

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(2, 4), size={1: self.a.shape[0]})
        shape = (-1, *[1] * (input.dim() - 2))
        a, b = self.a.view(shape), self.b.view(shape)
        return input.mul_(a).add_(b) if self.inplace and not recording() else input * a + b


class SpatialConstAffine(ConstAffine, typename="inn.SpatialConstAffine"):
    """`ConstAffine` under the name of its first years.

    >>> SpatialConstAffine(2)(torch.ones(1, 2, 1, 1)).flatten()
    tensor([1., 1.])
    """


class LocalResponseNormalization(Module, typename="inn.LocalResponseNormalization"):
    """Divides each element by ``(1 + alpha m)^beta``, where ``m`` is the mean square of its neighbourhood.

    Args:
        size: of the neighbourhood, which is square, in the element's plane; zeros are beyond the image.
        alpha, beta: see there.

    Shapes: ``batch x planes x h x w``. Follows the ``LocalResponseNormalization.lua`` of inn's first year, whose net
    is in the field where other classes have a table of modules.

    >>> LocalResponseNormalization(1, 3.0, 0.5)(torch.ones(1, 1, 1, 1)).item()
    0.5
    """

    fields = plain("size alpha beta")
    size: int
    alpha: float
    beta: float
    net: Any

    def __init__(self, size: int = 3, alpha: float = 5e-5, beta: float = 0.75) -> None:
        super().__init__()
        self.size, self.alpha, self.beta = size, alpha, beta
        pad = size // 2
        around = Sequential(SpatialZeroPadding(pad, pad, pad, pad), Power(2), SpatialAveragePooling(size, size, 1, 1))
        around.add(MulConstant(alpha, True)).add(AddConstant(1, True)).add(Power(beta))
        self.net = Sequential(ConcatTable().add(Identity()).add(around), CDivTable())

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(4,))
        return self.net(input)  # type: ignore[no-any-return]

    @classmethod
    def from_object(cls, made: Any, obj: Any, reading: Any) -> None:
        rest = t7.Table(obj.state)
        net = rest.pop("modules", None)
        super().from_object(made, obj.with_state(rest), reading)
        made.net = reading.child(net)

    def to_object(self, obj: Any, writing: Any) -> None:
        super().to_object(obj, writing)
        obj.state["modules"] = writing.value(self.net)


class SpatialStochasticPooling(Module, typename="inn.SpatialStochasticPooling"):
    """One element of each window, drawn with the elements as probabilities; in evaluation their mean, likewise.

    Args:
        kw, kh: the window.
        dw, dh: the step; as the window unless given.

    Shapes: ``planes x h x w`` or a batch of these, of numbers that are not negative; as many windows as fit, and one
    more that is cut off where elements would be left. Follows inn's ``SpatialStochasticPooling.lua`` and its CUDA code.

    >>> pool = SpatialStochasticPooling(2, 2)
    >>> pool(torch.tensor([[[0.0, 0.0], [3.0, 0.0]]])), pool.eval()(torch.tensor([[[1.0, 0.0], [3.0, 0.0]]]))
    (tensor([[[3.]]]), tensor([[[2.5000]]]))
    """

    transient = ("draws",)
    fields = plain("kW kH dW dH padW padH ceil_mode")
    kw: int
    kh: int
    dw: int
    dh: int

    def __init__(self, kw: int, kh: int, dw: int | None = None, dh: int | None = None) -> None:
        super().__init__()
        self.kw, self.kh = kw, kh
        self.dw, self.dh = kw if dw is None else dw, kh if dh is None else dh
        self.pad_w, self.pad_h, self.ceil_mode = 0, 0, False
        self.__dict__["cuda_file"] = True  # as its constructor makes it

    def draw(self, windows: Tensor) -> Tensor:
        """For each window a number from 0 to 1."""
        return torch.rand_like(windows[..., 0], requires_grad=False)

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(3, 4))
        windows = self.windows(input)
        if not self.training:
            smallest = torch.finfo(torch.float32).tiny
            return windows.square().sum(-1) / (windows.sum(-1) + smallest)
        uniform = self.draw(windows)
        self.keep("draws", uniform)
        sums = windows.detach().cumsum(-1)
        due = uniform.unsqueeze(-1) * sums[..., -1:]
        first = (sums >= due).to(torch.uint8).argmax(-1, keepdim=True)
        return windows.gather(-1, first).squeeze(-1)

    def windows(self, input: Tensor) -> Tensor:
        """The windows' elements in a last dimension; what is beyond the image is zero."""
        height, width = input.shape[-2:]
        rows = -(-(height - self.kh) // self.dh) + 1
        columns = -(-(width - self.kw) // self.dw) + 1
        if min(rows, columns) < 1:
            raise ValueError(f"expected an image of at least {self.kh}x{self.kw}, got {describe(input)}")
        below = max((rows - 1) * self.dh + self.kh - height, 0)
        right = max((columns - 1) * self.dw + self.kw - width, 0)
        padded = F.pad(input, (0, right, 0, below), value=0)
        return padded.unfold(-2, self.kh, self.dh).unfold(-2, self.kw, self.dw).flatten(-2)

    def to_string(self) -> str:
        return f"{self.typename}({self.kw}x{self.kh}, {self.dw},{self.dh})"


class SpatialPyramidPooling(Concat, typename="inn.SpatialPyramidPooling"):
    """The largest elements of an image's cells, for grids of several sizes, joined: one vector for any size of image.

    Args:
        pyramid: width and height of each grid.

    Shapes: ``planes x h x w`` in, the sum of ``planes * grid width * grid height`` out; or batches. Follows inn's
    ``SpatialPyramidPooling.lua``.

    >>> SpatialPyramidPooling([2, 2], [1, 1])(torch.ones(5, 3, 8, 8)).shape
    torch.Size([5, 15])
    """

    fields = index("dimension") | plain("pyr")
    pyr: Any

    def __init__(self, *pyramid: Sequence[Any]) -> None:
        super().__init__(0)
        grids = list(pyramid[0]) if pyramid and not isinstance(pyramid[0][0], int) else list(pyramid)
        self.pyr = [list(grid) for grid in grids]
        for width, height in self.pyr:
            flat = View(-1).set_num_input_dims(3)
            self.add(Sequential(SpatialAdaptiveMaxPooling(width, height), flat, Contiguous()))

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(3, 4))
        return torch.cat([module(input) for module in self], input.dim() - 3)

    def to_object(self, obj: Any, writing: Any) -> None:
        super().to_object(obj, writing)
        obj.state["dimension"] = 1.0


class ROIPooling(Module, typename="inn.ROIPooling"):
    """The largest elements of a grid of cells in each region of interest.

    Args:
        w, h: the grid.
        spatial_scale: what the regions' coordinates are multiplied with to be those of the features.

    Shapes: a table of features, ``batch x planes x height x width``, and regions, ``regions x 5``: the index of an
    image in the batch and the corners ``x1 y1 x2 y2``, all from 0 (from 1 in Torch7). ``regions x planes x h x w`` out.
    ``v2`` tells the later way to divide a region, by rounding, from that of the first years, by floor and ceiling.
    Only the features get a gradient. Follows inn's ``ROIPooling.lua`` and its CUDA code.

    >>> features = torch.arange(16.0).view(1, 1, 4, 4)
    >>> ROIPooling(2, 2)([features, torch.tensor([[0.0, 0.0, 0.0, 4.0, 4.0]])])
    tensor([[[[ 5.,  7.],
              [13., 15.]]]])
    """

    fields = plain("W H spatial_scale v2")
    w: int
    h: int
    spatial_scale: float = 1
    v2: bool | None = None

    def __init__(self, w: int, h: int, spatial_scale: float = 1) -> None:
        super().__init__()
        self.w, self.h, self.spatial_scale, self.v2 = w, h, spatial_scale, True

    def set_spatial_scale(self, scale: float) -> ROIPooling:
        """Sets ``spatial_scale``; returns the layer."""
        self.spatial_scale = scale
        return self

    def update_output(self, input: Any) -> Tensor:
        expect_table(input, 2)
        data, regions = input
        expect(data, dims=(4,))
        expect(regions, dims=(2,), size={1: 5})
        height, width = data.shape[-2:]
        images = regions[:, 0].detach().long()
        if images.numel() and not 0 <= int(images.min()) <= int(images.max()) < len(data):
            raise ValueError(f"expected images from 0 to {len(data) - 1}, got {images.tolist()}")
        rows = self._cells(regions[:, 2].detach(), regions[:, 4].detach(), self.h, height)
        columns = self._cells(regions[:, 1].detach(), regions[:, 3].detach(), self.w, width)
        outputs = []
        for image, up, across in zip(images.tolist(), rows.tolist(), columns.tolist(), strict=True):
            cells = [self._largest(data[image, :, a:b, c:d]) for a, b in up for c, d in across]
            outputs.append(torch.stack(cells, -1).view(-1, self.h, self.w))
        return torch.stack(outputs) if outputs else data.new_zeros(0, data.shape[1], self.h, self.w)

    def _cells(self, first: Tensor, last: Tensor, count: int, size: int) -> Tensor:
        """Where each of a number of cells begins and ends, for each region: ``regions x count x 2``."""
        start = rounded(first * self.spatial_scale)
        end = rounded(last * self.spatial_scale) - (1 if self.v2 else 0)
        cell = ((end - start + 1).clamp(min=1) / count).unsqueeze(1)
        begin = torch.arange(count, dtype=cell.dtype, device=cell.device) * cell
        after = torch.arange(1, count + 1, dtype=cell.dtype, device=cell.device) * cell
        edges = (rounded(begin), rounded(after)) if self.v2 else (begin.floor(), after.ceil())
        return (torch.stack(edges, -1) + start.view(-1, 1, 1)).clamp(0, size).long()

    def _largest(self, cell: Tensor) -> Tensor:
        return cell.flatten(1).max(1).values if cell.numel() else cell.sum((1, 2))

    def to_string(self) -> str:
        return self.typename


def rounded(value: Tensor) -> Tensor:
    """To the nearest whole number, halves away from zero, as C rounds.

    >>> rounded(torch.tensor([0.5, 1.5, -0.5]))
    tensor([ 1.,  2., -1.])
    """
    return value.sign() * (value.abs() + 0.5).floor()
