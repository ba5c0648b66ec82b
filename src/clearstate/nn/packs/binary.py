"""dpnn's convolution by signs, and its losses of answers that are yes or no."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.grad import conv2d_input, conv2d_weight

from ..declarations.bad_input import describe, expect
from ..declarations.fields import plain
from ..layers.windows.convolution import SpatialConvolution
from ..protocol.module import Criterion


class _BySigns(torch.autograd.Function):
    """The convolution, and the gradients that Torch7 gives: those of the signs, of the input scaled by its planes."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: Tensor, step: Any, padding: Any) -> Tensor:
        signs = torch.where(weight >= 0, 1.0, -1.0).to(weight.dtype)
        ctx.save_for_backward(input, signs, weight.abs().mean((0, 2, 3)))
        ctx.step, ctx.padding = step, padding
        scale = weight.abs().mean((1, 2, 3)).view(-1, 1, 1)
        return F.conv2d(input, signs, None, step, padding) * scale

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        input, signs, scale = ctx.saved_tensors
        of_input = of_weight = None
        window = {"stride": ctx.step, "padding": ctx.padding}
        if ctx.needs_input_grad[0]:
            of_input = conv2d_input(input.shape, signs, grad, **window) * scale.view(-1, 1, 1)  # type: ignore[no-untyped-call]
        if ctx.needs_input_grad[1]:
            of_weight = conv2d_weight(input, signs.shape, grad, **window)  # type: ignore[no-untyped-call]
        return of_input, of_weight, None, None


class SpatialBinaryConvolution(SpatialConvolution):
    """A convolution by the signs of its weight, times the mean size of each of its kernels. It has no bias.

    Arguments and shapes as of `SpatialConvolution`. The gradient of ``weight`` is that of its signs, before the scale;
    that of the input is scaled by the mean size of the weights of each of its planes. Follows dpnn's
    ``SpatialBinaryConvolution.lua``, whose weight is binary between a forward in training and its backward: a file
    written there is read with the weight it had.

    >>> SpatialBinaryConvolution(3, 4, 3, 3)
    Binary Convolution: nn.SpatialBinaryConvolution(3 -> 4, 3x3) without bias
    """

    fields = plain("iwh owh")
    iwh: int
    owh: int
    temp_weight: Tensor | None

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
        super().__init__(n_input_plane, n_output_plane, kw, kh, dw, dh, pad_w, pad_h)
        self.no_bias()
        self.iwh, self.owh = n_input_plane * kw * kh, n_output_plane * kw * kh

    def loaded(self) -> None:
        super().loaded()
        kept, weight = getattr(self, "temp_weight", None), self.weight
        for registered in (self._parameters, self._buffers):
            registered.pop("temp_weight", None)
        if isinstance(kept, Tensor) and kept.numel() == weight.numel() and bool((weight.abs() == 1).all()):
            with torch.no_grad():
                weight.copy_(kept.view_as(weight))

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(3, 4), size={-3: self.n_input_plane})
        batch = input if input.dim() == 4 else input.unsqueeze(0)
        made: Tensor = _BySigns.apply(batch, self.kernels(), (self.dh, self.dw), (self.pad_h, self.pad_w))  # type: ignore[no-untyped-call]
        return made if input.dim() == 4 else made.squeeze(0)

    def to_string(self) -> str:
        return f"Binary Convolution: {super().to_string()}"


def logistic(input: Tensor, target: Tensor) -> Tensor:
    """The sum of ``log(1 + exp(-target * input))``."""
    exponents = -input * target
    return torch.logaddexp(exponents, torch.zeros_like(exponents)).sum()


class BinaryLogisticRegression(Criterion):
    """``log(1 + exp(-target * input))``, of targets that are 1 or -1.

    Args:
        size_average: whether the loss is the mean over the elements, rather than their sum.

    Shapes: ``batch`` or ``batch x 1``, both. Follows dpnn's ``BinaryLogisticRegression.lua``.

    >>> round(BinaryLogisticRegression().forward(torch.zeros(3), torch.ones(3)), 4)
    0.6931
    """

    fields = plain("sizeAverage")
    size_average: bool = True

    def __init__(self, size_average: bool = True) -> None:
        super().__init__()
        self.size_average = size_average

    def update_output(self, input: Tensor, target: Any = None) -> Any:
        for given in (input, target):
            expect(given, dims=(1, 2))
            if given.dim() == 2 and 1 not in given.shape:
                raise ValueError(f"expected one number a sample, got {describe(given)}")
        if input.numel() != target.numel():
            raise ValueError(f"expected {input.numel()} targets, got {describe(target)}")
        total = logistic(input.reshape(-1), target.reshape(-1))
        return total / input.numel() if self.size_average else total


class SpatialBinaryLogisticRegression(Criterion):
    """As `BinaryLogisticRegression`, of the elements of images, and half as much.

    Shapes: ``batch x 1 x h x w`` or ``1 x h x w``, both. Without ``size_average`` it is divided by the size of an
    image, and not by that of the batch. Follows dpnn's ``SpatialBinaryLogisticRegression.lua``.

    >>> round(SpatialBinaryLogisticRegression().forward(torch.zeros(2, 1, 3, 3), torch.ones(2, 1, 3, 3)), 4)
    0.3466
    """

    fields = plain("sizeAverage")
    size_average: bool = True

    def __init__(self) -> None:
        super().__init__()
        self.size_average = True

    def update_output(self, input: Tensor, target: Any = None) -> Any:
        expect(input, dims=(3, 4), size={-3: 1})
        expect(target)
        if target.shape != input.shape:
            raise ValueError(f"expected a target that is {describe(input)}, got {describe(target)}")
        elements = input.numel() if self.size_average else input.shape[-1] * input.shape[-2]
        return logistic(input, target) / (2 * elements)
