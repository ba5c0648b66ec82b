"""Layers that bring what passes to a mean of zero and a size of one: over a batch, over one input, over neighbours."""

from __future__ import annotations

import math
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor
from torch.nn import Parameter

from ...formats import t7
from ..containers.sequential import Sequential
from ..containers.tables import ConcatTable
from ..declarations.bad_input import describe, expect
from ..declarations.fields import plain, sized
from ..protocol.module import Module
from .activation import Sqrt, Square, Threshold
from .identity import Identity
from .pointwise import Add, CMul, MulConstant
from .reduction import Mean
from .shape import Replicate
from .table_arithmetic import CDivTable, CSubTable
from .windows.connections import one_to_one
from .windows.convolution import SpatialConvolution
from .windows.map_convolution import SpatialConvolutionMap
from .windows.padding import SpatialZeroPadding

N = TypeVar("N", bound="BatchNormalization")


class BatchNormalization(Module):
    """Brings each feature to mean 0 and variance 1 over the batch, then to a learned size and offset.

    In training it also keeps running averages of mean and variance, which evaluation uses, and training too where the
    batch has one element only.

    Args:
        n_output: number of features.
        eps: what is added to the variance.
        momentum: how much of the running averages a batch renews.
        affine: whether size and offset are learned.

    Shapes: ``batch x n_output``; in evaluation also ``n_output``, which is taken as a batch of one. ``weight``,
    ``bias``, ``running_mean`` and ``running_var`` are ``n_output``. Follows Torch7's ``nn/BatchNormalization.lua``.

    >>> BatchNormalization(1, affine=False)(torch.tensor([[1.0], [3.0]])).flatten()
    tensor([-1.0000,  1.0000])
    """

    fields = plain("eps momentum affine")
    sizes_due = sized(running_mean="?", weight="running_mean:0", bias="running_mean:0", running_var="running_mean:0")
    version = 2
    n_dim: ClassVar[int] = 2
    """Dimensions of a batch."""
    weight: Parameter | None
    bias: Parameter | None
    running_std: ClassVar[None] = None
    """What `running_var` was in old files."""
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, n_output: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True) -> None:
        super().__init__()
        if n_output < 1:
            raise ValueError(f"expected a number of features, got {n_output}")
        self.eps, self.momentum, self.affine = eps, momentum, affine
        self.weight = Parameter(torch.empty(n_output)) if affine else None
        self.bias = Parameter(torch.empty(n_output)) if affine else None
        self.register_buffer("running_mean", torch.empty(n_output))
        self.register_buffer("running_var", torch.empty(n_output))
        self.reset()

    def reset(self: N) -> N:
        """Draws ``weight`` anew, uniformly between 0 and 1, and forgets the running averages."""
        if self.weight is not None:
            torch.nn.init.uniform_(self.weight)
        if self.bias is not None:
            torch.nn.init.zeros_(self.bias)
        self.running_mean.zero_()
        self.running_var.fill_(1)
        return self

    @classmethod
    def upgrade(cls, fields: dict[Any, Any], version: int | None) -> None:
        fields.setdefault("eps", 1e-5)
        fields.setdefault("momentum", 0.1)
        fields.setdefault("affine", "weight" in fields)
        inverse = fields.pop("running_std", None)
        if isinstance(inverse, t7.Tensor) and "running_var" not in fields:
            variance = inverse.numpy().astype(float) ** -2 - fields["eps"]
            fields["running_var"] = t7.Tensor.of(variance.astype(inverse.numpy().dtype), inverse.typename)

    def update_output(self, input: Tensor) -> Tensor:
        mean = self.running_mean
        if not isinstance(input, Tensor) or input.dim() != self.n_dim or input.shape[1] != mean.shape[0]:
            input = self._batch(input)
        training = self.training
        if training and input.shape[0] < 2:
            training = False
        return torch.batch_norm(
            input,
            self.weight,
            self.bias,
            mean,
            self.running_var,
            training,
            self.momentum,
            self.eps,
            torch.backends.cudnn.enabled,
        )

    def _batch(self, input: Tensor) -> Tensor:
        """One input as a batch of one, where that is right."""
        expect(input)
        features = self.running_mean.shape[0]
        if self.training or input.dim() == self.n_dim:
            expect(input, dims=(self.n_dim,), size={1: features})
        expect(input, dims=(self.n_dim - 1, self.n_dim), size={0: features})
        return input.unsqueeze(0)

    def to_string(self) -> str:
        return f"{self.typename} ({self.n_dim}D) ({self.running_mean.numel()})"


class SpatialBatchNormalization(BatchNormalization):
    """`BatchNormalization` of feature maps, over batch and place.

    Shapes: ``batch x n_output x height x width``. Follows Torch7's ``nn/SpatialBatchNormalization.lua``.

    >>> SpatialBatchNormalization(3)
    nn.SpatialBatchNormalization (4D) (3)
    """

    version = 2
    n_dim = 4


class VolumetricBatchNormalization(BatchNormalization):
    """`BatchNormalization` of volumes, over batch, time and place.

    Shapes: ``batch x n_output x time x height x width``. Follows Torch7's ``nn/VolumetricBatchNormalization.lua``.

    >>> VolumetricBatchNormalization(3)
    nn.VolumetricBatchNormalization (5D) (3)
    """

    version = 1
    n_dim = 5


class LayerNormalization(Sequential):
    """Brings each input to mean 0 and variance 1 over its features, then to a learned size and offset.

    Args:
        n_output: number of features.
        bias: the offset to begin with.
        eps: what is added to the sum of squares.
        affine: whether size and offset are learned.

    Shapes: ``n_output``, or a batch. Follows Torch7's ``nn/LayerNormalization.lua``, a `Sequential` of other layers,
    and gives its numbers. Only a single input is sure to lose its own mean: the means of a batch are subtracted in the
    order of memory, the first one from the first element, the second one from the second element, and so on.

    >>> LayerNormalization(2)(torch.tensor([1.0, 3.0])).detach()
    tensor([-1.0000,  1.0000])
    """

    def __init__(self, n_output: int, bias: float = 0, eps: float = 1e-10, affine: bool = True) -> None:
        mean = Sequential().add(Mean(0, 1)).add(Replicate(n_output, 0, 1))
        super().__init__(
            ConcatTable().add(Identity()).add(mean),
            CSubTable(),
            Normalize(2, eps),
            MulConstant(math.sqrt(n_output)),
        )
        if affine:
            gain, offset = CMul(n_output), Add(n_output, False)
            torch.nn.init.ones_(gain.weight)
            torch.nn.init.constant_(offset.bias, bias)
            self.add(gain).add(offset)


class Normalize(Module):
    """Divides each vector by its ``p``-norm.

    Args:
        p: above 0; ``math.inf`` for the largest element.
        eps: what is added to the sum that the root is taken of (for ``math.inf``, to the norm).

    Shapes: a vector, or a batch of vectors. Follows Torch7's ``nn/Normalize.lua``.

    >>> Normalize(1)(torch.tensor([1.0, -3.0]))
    tensor([ 0.2500, -0.7500])
    """

    fields = plain("p eps")

    def __init__(self, p: float, eps: float = 1e-10) -> None:
        super().__init__()
        if p <= 0:
            raise ValueError(f"expected a norm above 0, got {p}")
        self.p, self.eps = p, eps

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(1, 2))
        p = self.p
        if p == math.inf:
            return input / (input.abs().max(-1, keepdim=True)[0] + self.eps)
        if p == 2:
            return input / (input.square().sum(-1, keepdim=True) + self.eps).sqrt()
        sizes = input.abs()
        if p < 1:  # where the derivative at 0 has no end, Torch7's is 0
            zero = sizes == 0
            powers = sizes.masked_fill(zero, 1).pow(p).masked_fill(zero, 0)
        else:
            powers = sizes.pow(p)
        return input / (powers.sum(-1, keepdim=True) + self.eps).pow(1 / p)

    def to_string(self) -> str:
        number = f"{self.p:.0f}" if self.p % 1 == 0 else f"{self.p:f}"
        return f"{self.typename}({number})"


class SpatialCrossMapLRN(Module):
    """Divides each element by ``(k + alpha / size * s) ** beta``: ``s`` sums the squares over channels around it.

    Args:
        size: over how many channels, odd.

    Shapes: ``channels x height x width``, or a batch. Follows Torch7's ``nn/SpatialCrossMapLRN.lua``.

    >>> SpatialCrossMapLRN(3, alpha=3, beta=1, k=0)(torch.ones(3, 1, 1)).flatten()
    tensor([0.5000, 0.3333, 0.5000])
    """

    fields = plain("size alpha beta k")

    def __init__(self, size: int, alpha: float = 0.0001, beta: float = 0.75, k: float = 1) -> None:
        super().__init__()
        if size < 1 or size % 2 == 0:
            raise ValueError(f"expected an odd number of channels, got {size}")
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(3, 4))
        batch = input if input.dim() == 4 else input.unsqueeze(0)
        scaled = torch.nn.functional.local_response_norm(batch, self.size, self.alpha, self.beta, self.k)
        return scaled.view(input.shape)


def odd_kernel(kernel: Tensor | None) -> Tensor:
    """An averaging kernel: the one given (9 x 9 of ones unless given).

    Raises:
        ValueError: it has other than 1 or 2 dimensions, or an even size.
    """
    kernel = torch.ones(9, 9) if kernel is None else kernel.detach()
    if kernel.dim() not in (1, 2) or any(size % 2 == 0 for size in kernel.shape):
        raise ValueError(f"expected an averaging kernel of 1 or 2 dimensions and odd sizes, got {describe(kernel)}")
    return kernel


def estimator(
    count: int, kernel: Tensor, before: tuple[Module, ...] = (), after: tuple[Module, ...] = ()
) -> Sequential:
    """A net that gives, at each place and for each channel, the average around of all channels."""
    high, wide = kernel.shape[0], kernel.shape[-1]
    net = Sequential(*before, SpatialZeroPadding(wide // 2, wide // 2, high // 2, high // 2))
    if kernel.dim() == 2:
        net.add(averaging(SpatialConvolution(count, 1, wide, high), kernel))
    else:
        net.add(averaging(SpatialConvolutionMap(one_to_one(count), wide, 1), kernel))
        net.add(averaging(SpatialConvolution(count, 1, 1, high), kernel.unsqueeze(1)))
    net.add(Replicate(count, 0, 3))
    for module in after:
        net.add(module)
    return fixed(net)


def averaging(convolution: Module, kernel: Tensor) -> Module:
    """The convolution with this kernel everywhere, and no bias."""
    convolution.to(kernel.dtype)
    with torch.no_grad():
        for name, parameter in convolution.named_parameters():
            parameter.copy_(kernel) if name == "weight" else parameter.zero_()
    return convolution


def fixed(net: Sequential) -> Sequential:
    """A net whose weights are constants: buffers, as nothing learns them and Torch7 does not list them."""
    for module in net.modules():
        for name, parameter in list(module._parameters.items()):
            if parameter is not None:
                del module._parameters[name]
                constant = parameter.detach()
                constant.grad = parameter.grad  # what a file had goes back into it
                module.register_buffer(name, constant)
    return net


class _Neighbours(Module):
    """A layer that looks at the averages around each place."""

    fields = plain("nInputPlane meanestimator divider")
    kernel: Tensor
    n_input_plane: int
    meanestimator: Sequential
    divider: Module

    def loaded(self) -> None:
        for net in self.children():
            if isinstance(net, Sequential):
                fixed(net)

    def averages(self, net: Sequential, input: Tensor) -> Tensor:
        """What an estimator gives, in the input's shape."""
        expect(input, dims=(3, 4), size={-3: self.n_input_plane})
        averages: Tensor = net(input)
        return averages.reshape(input.shape)

    def coefficients(self, input: Tensor) -> Tensor:
        """How much of the kernel lies inside the image, at each place: in the input's shape."""
        one = torch.ones_like(input if input.dim() == 3 else input[0], requires_grad=False)
        return self.averages(self.meanestimator, one).expand(input.shape)


class SpatialSubtractiveNormalization(_Neighbours):
    """Subtracts the average around each place, over all channels.

    Args:
        n_input_plane: number of channels.
        kernel: weights of the neighbours, ``height x width``, or a vector for both; sizes are odd. It is scaled to a
            sum of 1.

    Shapes: ``channels x height x width``, or a batch. Follows Torch7's ``nn/SpatialSubtractiveNormalization.lua``.

    >>> SpatialSubtractiveNormalization(1, torch.ones(1))(torch.full((1, 1, 2), 7.0))
    tensor([[[0., 0.]]])
    """

    fields = plain("subtractor")
    subtractor: Module

    def __init__(self, n_input_plane: int = 1, kernel: Tensor | None = None) -> None:
        super().__init__()
        self.n_input_plane = n_input_plane
        kernel = odd_kernel(kernel)
        self.register_buffer("kernel", kernel / (kernel.sum() * n_input_plane))
        self.meanestimator = estimator(n_input_plane, self.kernel)
        self.subtractor = CSubTable()
        self.divider = CDivTable()

    def update_output(self, input: Tensor) -> Tensor:
        averages = self.averages(self.meanestimator, input)
        return self.subtractor([input, self.divider([averages, self.coefficients(input)])])  # type: ignore[no-any-return]


class SpatialDivisiveNormalization(_Neighbours):
    """Divides by the root of the average square around each place, over all channels.

    Args:
        n_input_plane: number of channels.
        kernel: as for `SpatialSubtractiveNormalization`; a vector is scaled to a sum of 1 over the root of channels.
        threshold: a root that is not above this (0.0001) is replaced by ``thresval``.
        thresval: what replaces it (``threshold``).

    Shapes: ``channels x height x width``, or a batch. Follows Torch7's ``nn/SpatialDivisiveNormalization.lua``.

    >>> SpatialDivisiveNormalization(1, torch.ones(3, 3))(torch.full((1, 2, 2), 7.0))[0, 0]
    tensor([0.6667, 0.6667])
    """

    fields = plain("stdestimator normalizer thresholder threshold thresval")
    stdestimator: Sequential
    normalizer: Module
    thresholder: Module

    def __init__(
        self,
        n_input_plane: int = 1,
        kernel: Tensor | None = None,
        threshold: float | None = None,
        thresval: float | None = None,
    ) -> None:
        super().__init__()
        self.n_input_plane = n_input_plane
        self.threshold = 1e-4 if threshold is None else threshold
        self.thresval = self.threshold if thresval is None else thresval
        kernel = odd_kernel(kernel)
        shares = n_input_plane if kernel.dim() == 2 else math.sqrt(n_input_plane)
        self.register_buffer("kernel", kernel / (kernel.sum() * shares))
        self.meanestimator = estimator(n_input_plane, self.kernel)
        self.stdestimator = estimator(n_input_plane, self.kernel, (Square(),), (Sqrt(),))
        self.normalizer = CDivTable()
        self.divider = CDivTable()
        self.thresholder = Threshold(self.threshold, self.thresval)

    def update_output(self, input: Tensor) -> Tensor:
        roots = self.averages(self.stdestimator, input)
        adjusted = self.divider([roots, self.coefficients(input)])
        return self.normalizer([input, self.thresholder(adjusted)])  # type: ignore[no-any-return]


class SpatialContrastiveNormalization(Module):
    """`SpatialSubtractiveNormalization`, then `SpatialDivisiveNormalization`, with the same kernel.

    Shapes: ``channels x height x width``, or a batch. Follows Torch7's ``nn/SpatialContrastiveNormalization.lua``.

    >>> SpatialContrastiveNormalization(3, torch.ones(5, 5))(torch.rand(3, 8, 8)).shape
    torch.Size([3, 8, 8])
    """

    fields = plain("nInputPlane threshold thresval normalizer")
    normalizer: Module

    def __init__(
        self,
        n_input_plane: int = 1,
        kernel: Tensor | None = None,
        threshold: float | None = None,
        thresval: float | None = None,
    ) -> None:
        super().__init__()
        self.n_input_plane = n_input_plane
        self.threshold = 1e-4 if threshold is None else threshold
        self.thresval = self.threshold if thresval is None else thresval
        subtractive = SpatialSubtractiveNormalization(n_input_plane, odd_kernel(kernel))
        divisive = SpatialDivisiveNormalization(n_input_plane, subtractive.kernel, self.threshold, self.thresval)
        self.register_buffer("kernel", divisive.kernel)
        subtractive.register_buffer("kernel", divisive.kernel)
        self.normalizer = Sequential(subtractive, divisive)

    def update_output(self, input: Tensor) -> Tensor:
        return self.normalizer(input)  # type: ignore[no-any-return]
