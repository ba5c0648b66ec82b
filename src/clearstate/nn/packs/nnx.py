"""nnx's layers of images: what is around taken away, borders, a classifier at every place; and its small functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter

from ...formats import t7
from ..containers.sequential import Sequential, lent
from ..declarations.bad_input import describe, expect
from ..declarations.fields import index, plain
from ..layers.activation import Sqrt, Square, Threshold
from ..layers.normalization import averaging, fixed
from ..layers.reduction import Sum
from ..layers.shape import Replicate, due_dimension
from ..layers.table_arithmetic import CDivTable, CSubTable
from ..layers.windows.connections import one_to_one
from ..layers.windows.map_convolution import SpatialConvolutionMap
from ..protocol.module import Module, _OfTensor
from .references import Referring

LEAST = 1e-3
"""What no deviation goes below where no threshold is given."""


class SpatialPadding(Module):
    """Puts borders of one value around an image, or cuts some off where a border is negative.

    Args:
        pad_l, pad_r, pad_t, pad_b: at the left, the right, the top and the bottom; ``pad_l`` unless given.
        y_dim, x_dim: the dimensions of rows and of columns.
        val: the value.

    Shapes: ``planes x h x w`` in, ``planes x (h + pad_t + pad_b) x (w + pad_l + pad_r)`` out; other dimensions stay as
    they are. Follows nnx's ``SpatialPadding.lua``.

    >>> SpatialPadding(1, -1, 0, 0, val=7)(torch.ones(1, 1, 3))
    tensor([[[7., 1., 1.]]])
    """

    fields = plain("pad_l pad_r pad_t pad_b val") | index("y_dim x_dim")
    pad_l: int
    pad_r: int
    pad_t: int
    pad_b: int
    y_dim: int = 1
    x_dim: int = 2
    val: float = 0

    def __init__(
        self,
        pad_l: int,
        pad_r: int | None = None,
        pad_t: int | None = None,
        pad_b: int | None = None,
        y_dim: int = 1,
        x_dim: int = 2,
        val: float = 0,
    ) -> None:
        super().__init__()
        self.pad_l = pad_l
        self.pad_r, self.pad_t, self.pad_b = (pad_l if pad is None else pad for pad in (pad_r, pad_t, pad_b))
        self.y_dim, self.x_dim, self.val = y_dim, x_dim, val

    @classmethod
    def upgrade(cls, fields: dict[Any, Any], version: int | None) -> None:
        for name, value in (("y_dim", 2.0), ("x_dim", 3.0), ("val", 0.0)):
            fields.setdefault(name, value)

    def borders(self, input: Tensor) -> list[int]:
        """The borders of an input as ``torch.nn.functional.pad`` takes them: the last dimension's first.

        Raises:
            ValueError: nothing would be left of the input.
        """
        found = [0, 0] * input.dim()
        sides = ((self.y_dim, self.pad_t, self.pad_b), (self.x_dim, self.pad_l, self.pad_r))
        for dimension, before, after in sides:
            dim = due_dimension(input, dimension)
            if input.shape[dim] + before + after < 1:
                raise ValueError(f"expected an image larger than what {before} and {after} cut, got {describe(input)}")
            at = 2 * (input.dim() - 1 - dim)
            found[at : at + 2] = int(before), int(after)
        return found

    def update_output(self, input: Tensor) -> Tensor:
        expect(input)
        return F.pad(input, self.borders(input), value=self.val)


class SpatialNormalization(Module):
    """Takes from each element the average around it, over all planes, and divides by the deviation around it.

    Args:
        n_input_plane: number of planes.
        kernel: weights of the neighbours, ``height x width``; or a list of two, one after the other. Each is scaled to
            a sum of 1.
        threshold: a deviation that is not above this is replaced by it; the mean of all deviations unless given, and
            at least 0.001.

    Shapes: ``planes x h x w``; a plane alone, ``h x w``, gives ``1 x h x w``. What lies outside the image does not
    count. The gradient takes the threshold for a number that is given, as in Torch7. Follows nnx's
    ``SpatialNormalization.lua``.

    >>> SpatialNormalization(1, torch.ones(3, 3))(torch.tensor([[1.0, 1.0, 2.0, 1.0, 1.0]]))[0, 0, 1:4].sign()
    tensor([-1.,  1., -1.])
    """

    fields = (
        plain("nfeatures", nfeatures="n_input_plane")
        | plain("fixedThres padW padH pad2W pad2H kerWisPair kerHisPair ker2WisPair ker2HisPair")
        | plain("convo convostd squareMod sqrtMod subtractMod meanDiviseMod stdDiviseMod diviseMod thresMod")
    )
    axes: ClassVar[str] = "wh"
    takes_batches: ClassVar[bool] = False
    kernel: Any
    n_input_plane: int
    fixed_thres: float | None = None

    def __init__(self, n_input_plane: int, kernel: Tensor | Sequence[Tensor], threshold: float | None = None) -> None:
        super().__init__()
        given = [kernel] if isinstance(kernel, Tensor) else list(kernel)
        if len(given) not in (1, 2) or any(k.dim() != 2 for k in given):
            raise ValueError(f"expected a kernel of 2 dimensions, or two of these, got {describe(kernel)}")
        kernels = [k.detach() / k.sum() for k in given]
        self.n_input_plane, self.fixed_thres = n_input_plane, threshold
        if isinstance(kernel, Tensor):
            self.register_buffer("kernel", kernels[0])
        else:
            self.kernel = kernels
        self.pad2_w = self.pad2_h = self.ker2_wis_pair = self.ker2_his_pair = 0
        for one, number in zip(kernels, ("", "2"), strict=False):
            for side, size in zip("hw", one.shape, strict=True):
                setattr(self, f"pad{number}_{side}", size // 2)
                setattr(self, f"ker{number}_{side}is_pair", int(size % 2 == 0))
        self.convo, self.convostd = (_averages(n_input_plane, kernels) for _ in range(2))
        self.square_mod, self.sqrt_mod, self.thres_mod = Square(), Sqrt(), Threshold()
        self.subtract_mod = CSubTable()
        self.mean_divise_mod, self.std_divise_mod, self.divise_mod = CDivTable(), CDivTable(), CDivTable()

    def loaded(self) -> None:
        for net in (self.convo, self.convostd):
            fixed(net)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        made = super()._apply(fn, recurse)
        if isinstance(self.kernel, list):
            self.kernel = [fn(kernel) for kernel in self.kernel]
        return made

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(2, 3))
        image = input.unsqueeze(0) if input.dim() == 2 else input
        expect(image, size={0: self.n_input_plane})
        inside = self.convo(torch.ones_like(image, requires_grad=False))
        mean = self.mean_divise_mod([self.convo(image), inside])
        centred = self.subtract_mod([image, mean])
        squares = self.convostd(self.square_mod(centred))
        deviation = self.std_divise_mod([self.sqrt_mod(squares), inside])
        least = deviation.detach().mean().clamp(min=LEAST) if self.fixed_thres is None else self.fixed_thres
        bounded = torch.where(deviation > least, deviation, least)
        return self.divise_mod([centred, bounded])  # type: ignore[no-any-return]


def _averages(count: int, kernels: Sequence[Tensor]) -> Sequential:
    """A net that gives, at each place and for each plane, the sum around of all planes."""
    nets = []
    for kernel in kernels:
        high, wide = kernel.shape
        net = Sequential(SpatialPadding(wide // 2, (wide - 1) // 2, high // 2, (high - 1) // 2))
        net.add(averaging(SpatialConvolutionMap(one_to_one(count), wide, high), kernel))
        nets.append(net.add(Sum(0)).add(Replicate(count)))
    return fixed(nets[0] if len(nets) == 1 else Sequential(*nets))


class SpatialClassifier(Referring):
    """Calls a module at every place of an image: the planes there are its features.

    Args:
        classifier: takes a batch of vectors; an empty `Sequential` unless given.

    Shapes: ``planes x h x w`` in; ``classes x h x w`` out, or ``(h w) x classes`` where ``spatial_output`` is false.
    Follows nnx's ``SpatialClassifier.lua``.

    >>> import clearstate.nn as nn
    >>> SpatialClassifier(nn.Linear(4, 2))(torch.ones(4, 5, 6)).shape
    torch.Size([2, 5, 6])
    """

    fields = plain("spatialOutput")
    is_container = True
    takes_batches: ClassVar[bool] = False
    spatial_output: bool = True

    def __init__(self, classifier: torch.nn.Module | None = None) -> None:
        super().__init__()
        self.add_module("0", Sequential() if classifier is None else classifier)
        self.refer(classifier=self.classifier)

    @property
    def classifier(self) -> Any:
        """The module that is called."""
        return self._modules["0"]

    def add(self, module: torch.nn.Module) -> SpatialClassifier:
        """Appends a module to the classifier, a container; returns this."""
        self.classifier.add(module)
        return self

    @classmethod
    def from_object(cls, made: Any, obj: Any, reading: Any) -> None:
        held = obj.state.get("classifier")
        if obj.state.get("modules") is None and isinstance(held, t7.Object):
            obj = obj.with_state(t7.Table({**obj.state, "modules": t7.Table.of([held])}))
        super().from_object(made, obj, reading)
        if "0" not in made._modules:
            raise ValueError("it has no classifier")

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(3,))
        planes, high, wide = input.shape
        places = input.reshape(planes, high * wide).t().contiguous()
        scores: Tensor = self.classifier(lent(self.classifier, places))
        if scores.dim() != 2:
            raise ValueError(f"expected {self.classifier} to give a batch of vectors, got {describe(scores)}")
        return scores.t().reshape(-1, high, wide) if self.spatial_output else scores


class SpatialLinear(Module):
    """The linear function of the planes at every place.

    Args:
        fanin, fanout: planes in and out.

    Shapes: ``fanin x h x w`` in, ``fanout x h x w`` out; ``weight`` is ``fanout x fanin``. The field ``weightDecay`` of
    files is kept, and changes no gradient. Follows nnx's ``SpatialLinear.lua``.

    >>> SpatialLinear(4, 2)(torch.ones(4, 5, 6)).shape
    torch.Size([2, 5, 6])
    """

    fields = plain("fanin fanout weightDecay")
    fanin: int
    fanout: int
    weight_decay: float = 0
    weight: Parameter
    bias: Parameter

    def __init__(self, fanin: int = 1, fanout: int = 1) -> None:
        super().__init__()
        self.fanin, self.fanout, self.weight_decay = fanin, fanout, 0
        self.weight = Parameter(torch.empty(fanout, fanin))
        self.bias = Parameter(torch.empty(fanout))
        self.reset()

    def reset(self, stdv: float | None = None) -> SpatialLinear:
        """Draws the parameters anew: within ``stdv * sqrt(3)``, or one over the root of ``fanout``."""
        bound = stdv * math.sqrt(3) if stdv else 1 / math.sqrt(self.fanout)
        for parameter in (self.weight, self.bias):
            torch.nn.init.uniform_(parameter, -bound, bound)
        return self

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(3,), size={0: self.weight.shape[1]})
        return F.conv2d(input, self.weight[:, :, None, None], self.bias)


class SpatialUpSampling(Module):
    """Repeats each element of an image ``dh`` times along rows' dimension and ``dw`` times along columns'.

    Args:
        dw, dh: how often.
        y_dim, x_dim: the dimensions of rows and of columns; one follows the other.

    Shapes: ``planes x h x w`` in, ``planes x (h dh) x (w dw)`` out; other dimensions stay as they are. Follows nnx's
    ``SpatialUpSampling.lua``.

    >>> SpatialUpSampling(2, 1)(torch.tensor([[[1, 2]]]))
    tensor([[[1, 1, 2, 2]]])
    """

    fields = plain("dW dH") | index("yDim xDim")
    dw: int
    dh: int
    y_dim: int = 1
    x_dim: int = 2

    def __init__(self, dw: int, dh: int, y_dim: int = 1, x_dim: int = 2) -> None:
        super().__init__()
        if y_dim + 1 != x_dim:
            raise ValueError(f"expected the dimension of columns to follow that of rows, got {y_dim} and {x_dim}")
        self.dw, self.dh, self.y_dim, self.x_dim = dw, dh, y_dim, x_dim

    @classmethod
    def upgrade(cls, fields: dict[Any, Any], version: int | None) -> None:
        fields.setdefault("yDim", 2.0)
        fields.setdefault("xDim", 3.0)

    def update_output(self, input: Tensor) -> Tensor:
        y, x = (due_dimension(input, dim) for dim in (self.y_dim, self.x_dim))
        return input.repeat_interleave(int(self.dh), y).repeat_interleave(int(self.dw), x)


class SpatialDownSampling(Module):
    """The mean of each ``rh x rw`` cut of an image; rows and columns that are left over are not used.

    Args:
        rw, rh: the size of a cut.

    Shapes: ``planes x h x w`` in, ``planes x (h // rh) x (w // rw)`` out. Follows nnx's ``SpatialDownSampling.lua``.

    >>> SpatialDownSampling(2, 1)(torch.tensor([[[1.0, 3.0, 9.0]]]))
    tensor([[[2.]]])
    """

    fields = plain("rW rH")
    takes_batches: ClassVar[bool] = False
    rw: int
    rh: int

    def __init__(self, rw: int, rh: int) -> None:
        super().__init__()
        self.rw, self.rh = rw, rh

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(3,))
        size = int(self.rh), int(self.rw)
        if input.shape[1] < size[0] or input.shape[2] < size[1]:
            raise ValueError(f"expected an image of at least {size[0]}x{size[1]}, got {describe(input)}")
        return F.avg_pool2d(input, size)


class SaturatedLU(_OfTensor):
    """``x``, but ``val`` where it is below ``threshold`` and ``val2`` where it is above ``threshold2``.

    Shapes: any. Follows nnx's ``SaturatedLU.lua``.

    >>> SaturatedLU()(torch.tensor([-3.0, 0.5, 3.0]))
    tensor([-1.0000,  0.5000,  1.0000])
    """

    fields = plain("threshold val threshold2 val2")

    def __init__(self, threshold: float = -1, val: float = -1, threshold2: float = 1, val2: float = 1) -> None:
        super().__init__()
        self.threshold, self.val, self.threshold2, self.val2 = threshold, val, threshold2, val2

    def update_output(self, input: Tensor) -> Tensor:
        expect(input)
        above = torch.where(input < self.threshold, self.val, input)
        return torch.where(above > self.threshold2, self.val2, above)


class Minus(_OfTensor):
    """The negative. Follows nnx's ``Minus.lua``.

    >>> Minus()(torch.tensor([2.0]))
    tensor([-2.])
    """

    def update_output(self, input: Tensor) -> Tensor:
        expect(input)
        return -input


class MultiSoftMax(Module):
    """The soft maximum over the last dimension.

    Shapes: ``batch x classes``, or ``batch x n x classes``. Follows nnx's ``MultiSoftMax.lua``.

    >>> MultiSoftMax()(torch.zeros(1, 2, 4))[0, 0]
    tensor([0.2500, 0.2500, 0.2500, 0.2500])
    """

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(2, 3))
        return input.softmax(-1)
