"""dpnn: a handful of layers, most of them around others. Its `nn.Convert` and `nn.Decorator` are in nn itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..containers.decorators import Decorator
from ..containers.sequential import Sequential
from ..containers.tables import Concat, ConcatTable, DepthConcat
from ..declarations.bad_input import describe, expect, expect_share, expect_table
from ..declarations.fields import index, plain
from ..layers.activation import Log, ReLU
from ..layers.identity import Identity
from ..layers.normalization import SpatialBatchNormalization
from ..layers.pointwise import AddConstant, MulConstant
from ..layers.reduction import Sum
from ..layers.table_arithmetic import CMulTable
from ..layers.windows.convolution import SpatialConvolution
from ..layers.windows.pooling import SpatialMaxPooling
from ..protocol.module import Module
from ..t7.registry import find
from .gradients import penalized, straight_through
from .references import Referring


class Serial(Decorator):
    """Calls the module inside. In Torch7 it also says how that is written: with all, or without what work left.

    Args:
        module: the module inside.
        tensortype: the Torch7 tensor class that Torch7 converts it to before it is written; as it is unless given.

    Follows dpnn's ``Serial.lua``.

    >>> import clearstate.nn as nn
    >>> Serial(nn.Linear(3, 2))(torch.ones(3)).shape
    torch.Size([2])
    """

    fields = plain("tensortype")
    tensortype: str | None = None

    def __init__(self, module: torch.nn.Module, tensortype: str | None = None) -> None:
        super().__init__(module)
        self.tensortype = tensortype


class Inception(Referring, Decorator):
    """GoogLeNet's module: columns of convolutions of several widths, and one of pooling, joined by their planes.

    Args:
        input_size: planes of the input.
        output_size: planes that each wide convolution gives.
        reduce_size: planes of the 1x1 convolution in each column: those of the wide ones, that after the pooling,
            and that which is a column by itself. Without the last one or two, those are left out.
        reduce_stride: strides of the 1x1 convolutions; 1 unless given.
        transfer: follows each convolution; a ``ReLU`` unless given.
        batch_norm: whether a batch normalization follows each convolution.
        padding: whether the wide convolutions keep the size.
        kernel_size: widths of the convolutions.
        kernel_stride: their strides.
        pool_size, pool_stride: of the max pooling.
        pool: a pooling to use instead.

    Shapes: ``planes x h x w``, or a batch of these, in; planes of all columns out. Follows dpnn's ``Inception.lua``.

    >>> Inception(3, [4, 5], [2, 2, 2, 2])(torch.ones(1, 3, 8, 8)).shape
    torch.Size([1, 13, 8, 8])
    """

    fields = plain(
        "inputSize outputSize reduceSize reduceStride batchNorm padding kernelSize kernelStride poolSize poolStride"
    )

    def __init__(
        self,
        input_size: int,
        output_size: Sequence[int],
        reduce_size: Sequence[int],
        reduce_stride: Sequence[int] = (),
        transfer: Module | None = None,
        batch_norm: bool = False,
        padding: bool = True,
        kernel_size: Sequence[int] = (5, 3),
        kernel_stride: Sequence[int] = (1, 1),
        pool_size: int = 3,
        pool_stride: int = 1,
        pool: Module | None = None,
    ) -> None:
        columns = DepthConcat(1)
        super().__init__(columns)
        self.input_size = input_size
        self.output_size, self.reduce_size = list(output_size), list(reduce_size)
        self.reduce_stride = list(reduce_stride)
        self.batch_norm = batch_norm
        self.padding = padding
        self.kernel_size, self.kernel_stride = list(kernel_size), list(kernel_stride)
        self.pool_size, self.pool_stride = pool_size, pool_stride
        self.__dict__["transfer"] = ReLU() if transfer is None else transfer  # no child: its copies are
        for i, (width, stride) in enumerate(zip(self.kernel_size, self.kernel_stride, strict=True)):
            column = self._reduced(Sequential(), i)
            pad = width // 2 if padding else 0
            wide = SpatialConvolution(reduce_size[i], output_size[i], width, width, stride, stride, pad, pad)
            columns.add(self._finished(column.add(wide), output_size[i]))
        pooled = SpatialMaxPooling(pool_size, pool_size, pool_stride, pool_stride) if pool is None else pool
        wide_ones = len(self.kernel_size)
        column = Sequential().add(pooled)
        columns.add(self._reduced(column, wide_ones) if len(reduce_size) > wide_ones else column)
        if len(reduce_size) > wide_ones + 1:
            columns.add(self._reduced(Sequential(), wide_ones + 1))
        self.refer(pool=pooled)

    def _reduced(self, column: Sequential, i: int) -> Sequential:
        stride = self.reduce_stride[i] if i < len(self.reduce_stride) else 1
        planes = self.reduce_size[i]
        return self._finished(column.add(SpatialConvolution(self.input_size, planes, 1, 1, stride, stride)), planes)

    def _finished(self, column: Sequential, planes: int) -> Sequential:
        if self.batch_norm:
            column.add(SpatialBatchNormalization(planes))
        return column.add(self.__dict__["transfer"].clone())

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(3, 4))
        if input.dim() == 4:
            return self.inner(input)  # type: ignore[no-any-return]
        return self.inner(input.unsqueeze(0)).squeeze(0)  # type: ignore[no-any-return]

    def to_object(self, obj: Any, writing: Any) -> None:
        super().to_object(obj, writing)
        if "transfer" in self.__dict__:
            obj.state["transfer"] = writing.value(self.__dict__["transfer"])


class Clip(Module):
    """Elements below ``minval`` or above ``maxval`` become these; the gradient passes as if they had not.

    Follows dpnn's ``Clip.lua``.

    >>> Clip(-0.5, 0.5)(torch.tensor([-2.0, 0.1, 2.0]))
    tensor([-0.5000,  0.1000,  0.5000])
    """

    fields = plain("minval maxval")
    minval: float
    maxval: float

    def __init__(self, minval: float, maxval: float) -> None:
        super().__init__()
        self.minval, self.maxval = minval, maxval

    def update_output(self, input: Tensor) -> Tensor:
        expect(input)
        return straight_through(input, input.clamp(self.minval, self.maxval))


class CategoricalEntropy(Referring):
    """Gives its input, probabilities of categories; on the way back, raises the entropy of their mean.

    Args:
        scale: a factor for the entropy's gradient.
        min_entropy: it is raised only below this; always unless given.

    Shapes: ``batch x categories``. The gradient that is added is that of ``-scale / batch`` times
    ``-sum(p log(p + 1e-6))``, where ``p`` is the input's sum over the batch divided by its sum over all, this divisor
    taken as constant. Follows dpnn's ``CategoricalEntropy.lua``, whose net inside is here for files only.

    >>> x = torch.tensor([[0.9, 0.1]], requires_grad=True)
    >>> CategoricalEntropy()(x).sum().backward()
    >>> x.grad
    tensor([[ 1.8946, -0.3026]])
    """

    fields = plain("scale minEntropy sizeAverage")
    scale: float = 1
    min_entropy: float | None = None
    size_average: bool = True

    def __init__(self, scale: float = 1, min_entropy: float | None = None) -> None:
        super().__init__()
        self.scale = scale
        self.min_entropy = min_entropy
        self.register_buffer("minus_one", torch.tensor([-float(scale)]))
        mean = MulConstant(1)
        logs = Sequential().add(AddConstant(1e-6)).add(Log())
        both = ConcatTable().add(Identity()).add(logs)
        net = Sequential().add(Sum(0)).add(mean).add(both).add(CMulTable()).add(Sum(0)).add(MulConstant(-1))
        self.add_module("0", net)
        self.refer(module=net, _mul=mean)

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(2,))
        p = input.sum(0) / input.sum().detach()
        entropy = -(p * (p + 1e-6).log()).sum()
        factor = torch.full_like(entropy, -self.scale / (input.shape[0] if self.size_average else 1))
        if self.min_entropy is not None:
            factor = factor * (entropy.detach() < self.min_entropy)
        return penalized(input, factor * entropy)


class ReverseTable(Module):
    """The entries of a table in reverse order. Follows dpnn's ``ReverseTable.lua``.

    >>> ReverseTable()([torch.tensor(1), torch.tensor(2)])
    [tensor(2), tensor(1)]
    """

    def update_output(self, input: Any) -> list[Any]:
        expect_table(input)
        return [input[i] for i in reversed(range(len(input)))]


class SpatialFeatNormalization(Module):
    """Subtracts a mean from each plane of an image, and divides by a deviation (by 1 unless given).

    Shapes: ``planes x h x w`` or a batch of these; ``mean`` and ``std`` are of ``planes`` elements. Follows dpnn's
    ``SpatialFeatNormalization.lua``.

    >>> SpatialFeatNormalization(torch.tensor([1.0]), torch.tensor([2.0]))(torch.full((1, 1, 2), 5.0))
    tensor([[[2., 2.]]])
    """

    fields = plain("noOfFeats")
    no_of_feats: int
    mean: Tensor
    std: Tensor

    def __init__(self, mean: Tensor, std: Tensor | None = None) -> None:
        super().__init__()
        expect(mean, dims=(1,))
        self.no_of_feats = mean.shape[0]
        self.register_buffer("mean", mean.clone())
        self.register_buffer("std", torch.ones_like(mean) if std is None else std.clone())

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(3, 4), size={-3: self.no_of_feats})
        return (input - self.mean.view(-1, 1, 1)) / self.std.view(-1, 1, 1)


class FireModule(Referring, Decorator):
    """SqueezeNet's module: few planes by a 1x1 convolution, then many by one of 1x1 and one of 3x3, joined.

    Args:
        n_input_plane: planes of the input.
        s1x1: planes of the first convolution.
        e1x1, e3x3: planes of the others.
        activation: the class of nn that follows each.

    Shapes: ``batch x planes x h x w`` in, ``batch x (e1x1 + e3x3) x h x w`` out. Follows dpnn's ``FireModule.lua``.

    >>> FireModule(3, 2, 4, 5)(torch.ones(1, 3, 8, 8)).shape
    torch.Size([1, 9, 8, 8])
    """

    fields = plain("nInputPlane s1x1 e1x1 e3x3 activation")
    n_input_plane: int
    s1x1: int
    e1x1: int
    e3x3: int
    activation: str

    def __init__(self, n_input_plane: int, s1x1: int, e1x1: int, e3x3: int, activation: str = "ReLU") -> None:
        squeeze = SpatialConvolution(n_input_plane, s1x1, 1, 1)
        expand = Concat(1).add(SpatialConvolution(s1x1, e1x1, 1, 1))
        expand.add(SpatialConvolution(s1x1, e3x3, 3, 3, 1, 1, 1, 1))
        active = find(f"nn.{activation}")
        if active is None:
            raise ValueError(f"nn has no activation {activation}")
        net = Sequential(squeeze, active(), expand, active())
        super().__init__(net)
        self.n_input_plane, self.s1x1, self.e1x1, self.e3x3 = n_input_plane, s1x1, e1x1, e3x3
        self.activation = activation
        self.refer(module=net, squeeze=squeeze, expand=expand)

    def to_string(self) -> str:
        return (
            f"{self.typename} inputPlanes: {self.n_input_plane} -> Squeeze Planes: {self.s1x1} -> "
            f"Expand: {self.e1x1}(1x1) + {self.e3x3}(3x3), activation: {self.activation}"
        )


class ArgMax(Module):
    """The index of the largest element along a dimension, from 0. It has no gradient.

    Args:
        dim: the dimension, from 0, of an input that is no batch.
        n_input_dim: dimensions of an input that is no batch; every input is one unless given.
        as_long: whether the indices are whole numbers, or of the input's type.

    Follows dpnn's ``ArgMax.lua``.

    >>> ArgMax(0, 1)(torch.tensor([[1.0, 5.0], [4.0, 2.0]]))
    tensor([1, 0])
    """

    fields = index("dim") | plain("nInputDim asLong")
    dim: int = 0
    n_input_dim: int = 9999
    as_long: bool = True

    def __init__(self, dim: int = 0, n_input_dim: int = 9999, as_long: bool = True) -> None:
        super().__init__()
        self.dim, self.n_input_dim, self.as_long = dim, n_input_dim, as_long
        if as_long:
            self.output = torch.empty(0, dtype=torch.long)

    def update_output(self, input: Tensor) -> Tensor:
        expect(input)
        dim = self.dim + 1 if input.dim() > self.n_input_dim else self.dim
        if dim >= input.dim():
            raise ValueError(f"there is no dimension {dim} in {describe(input)}")
        indices = input.argmax(dim, keepdim=input.dim() == 1)
        return indices if self.as_long else indices.to(input.dtype)


class TotalDropout(Module):
    """In training, all of the input or, with probability ``p``, zeros. Follows dpnn's ``TotalDropout.lua``.

    >>> TotalDropout(0.5).eval()(torch.ones(2))
    tensor([1., 1.])
    """

    fields = plain("p")
    transient = ("noise",)
    p: float = 0.5

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        expect_share(p)
        self.p = p

    def draw(self, input: Tensor) -> Tensor:
        """What the input is multiplied with: 0 or 1."""
        return torch.empty((), dtype=input.dtype, device=input.device).bernoulli_(1 - self.p)

    def update_output(self, input: Tensor) -> Tensor:
        expect(input)
        if not self.training:
            return input
        noise = self.draw(input)
        self.keep("noise", noise)
        return input * noise

    def to_string(self) -> str:
        return f"{self.typename}({self.p:f})"
