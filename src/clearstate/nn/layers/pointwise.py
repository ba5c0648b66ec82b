"""Numbers and tensors, learned or given, that an input is added to or multiplied with; gradients bent on the way.

Learned ones are drawn uniformly within ``1 / sqrt(elements)``, and anew by ``reset(stdv)``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn import Parameter

from ..declarations.bad_input import describe, expect
from ..declarations.fields import longs, plain, sized
from ..protocol.module import Module, _OfTensor
from ..protocol.tape import handed_on, learns, recording

L = TypeVar("L", bound="_Learned")


class _Learned(_OfTensor):
    """A layer with one learned tensor."""

    def reset(self: L, stdv: float | None = None) -> L:
        """Draws the tensor anew, uniformly within ``stdv`` times the root of 3 (within ``1 / sqrt(elements)``)."""
        for parameter in self.parameters(recurse=False):
            bound = stdv * math.sqrt(3) if stdv else 1 / math.sqrt(parameter.numel())
            torch.nn.init.uniform_(parameter, -bound, bound)
        return self


def spread(combine: Any, input: Tensor, learned: Tensor) -> Tensor:
    """``combine(input, learned)``, with the learned tensor laid over an input of its size, or over each of a batch.

    Raises:
        ValueError: the sizes do not fit.
    """
    expect(input)
    if input.shape == learned.shape or input.shape[1:] == learned.shape:
        return combine(input, learned)  # type: ignore[no-any-return]
    if input.numel() == learned.numel():
        return combine(input, learned.reshape(input.shape))  # type: ignore[no-any-return]
    fits = all(a in (1, b) for a, b in zip(learned.shape, input.shape, strict=False))
    if input.dim() == learned.dim() and fits:
        return combine(input, learned)  # type: ignore[no-any-return]
    if (
        input.dim() == learned.dim()
        or not input.numel()
        or not input.dim()
        or input.numel() != input.shape[0] * learned.numel()
    ):
        raise ValueError(f"expected a tensor of {'x'.join(map(str, learned.shape))}, or a batch, got {describe(input)}")
    return combine(input.reshape(input.shape[0], -1), learned.reshape(1, -1)).view(input.shape)  # type: ignore[no-any-return]


def sizes(given: Sequence[Any]) -> list[int]:
    """The sizes that a constructor was given: one by one, or as one list."""
    return list(given[0]) if len(given) == 1 and not isinstance(given[0], int) else list(given)


class Add(_Learned):
    """Adds a learned vector, or with ``scalar`` one learned number.

    Shapes: ``input_size``, or a batch; any with ``scalar``. ``bias`` is ``input_size``, or 1.
    Follows Torch7's ``nn/Add.lua``.

    >>> Add(3)(torch.zeros(5, 3)).shape
    torch.Size([5, 3])
    """

    fields = plain("scalar")
    sizes_due = sized(bias="?")

    def __init__(self, input_size: int, scalar: bool | float | None = None) -> None:
        super().__init__()
        self.scalar = scalar
        self.bias = Parameter(torch.empty(1 if self.one_number else input_size))
        self.reset()

    @property
    def one_number(self) -> bool:
        """Whether one number is added; Lua takes 0 as true."""
        return self.scalar is not None and self.scalar is not False

    def update_output(self, input: Tensor) -> Tensor:
        one = self.one_number and self.bias.numel() == 1
        return input + self.bias if one else spread(torch.add, input, self.bias)


class CAdd(_Learned):
    """Adds a learned tensor: to an input of its size, to each of a batch, or spread along dimensions of size 1.

    Args:
        size: the tensor's sizes, one by one or as a list.

    Follows Torch7's ``nn/CAdd.lua``.

    >>> CAdd(1, 3)(torch.zeros(5, 3)).shape
    torch.Size([5, 3])
    """

    fields = longs("size")

    def __init__(self, *size: int | Sequence[int]) -> None:
        super().__init__()
        self.size = sizes(size)
        self.bias = Parameter(torch.empty(self.size))
        self.reset()

    def update_output(self, input: Tensor) -> Tensor:
        return spread(torch.add, input, self.bias)


class CMul(_Learned):
    """Multiplies with a learned tensor: an input of its size, each of a batch, or spread along dimensions of size 1.

    Args:
        size: the tensor's sizes, one by one or as a list.

    Follows Torch7's ``nn/CMul.lua``.

    >>> CMul(3)(torch.zeros(5, 3)).shape
    torch.Size([5, 3])
    """

    fields = longs("size")

    def __init__(self, *size: int | Sequence[int]) -> None:
        super().__init__()
        self.size = sizes(size)
        self.weight = Parameter(torch.empty(self.size))
        self.reset()

    def update_output(self, input: Tensor) -> Tensor:
        return spread(torch.mul, input, self.weight)


class Mul(_Learned):
    """Multiplies with one learned number. Follows Torch7's ``nn/Mul.lua``.

    >>> Mul()(torch.zeros(2, 3)).shape
    torch.Size([2, 3])
    """

    sizes_due = sized(weight="1")

    def __init__(self) -> None:
        super().__init__()
        self.weight = Parameter(torch.empty(1))
        self.reset()

    def update_output(self, input: Tensor) -> Tensor:
        return input * self.weight


class AddConstant(_OfTensor):
    """Adds a given number; or a given vector, to a vector or to each of a batch.

    Follows Torch7's ``nn/AddConstant.lua``.

    >>> AddConstant(2)(torch.ones(2))
    tensor([3., 3.])
    """

    fields = plain("inplace")
    constant_scalar: Tensor | float

    def __init__(self, constant_scalar: float | Tensor, inplace: bool = False) -> None:
        super().__init__()
        if isinstance(constant_scalar, Tensor):
            self.register_buffer("constant_scalar", constant_scalar)
        else:
            self.constant_scalar = constant_scalar
        self.inplace = inplace

    def update_output(self, input: Tensor) -> Tensor:
        constant = self.constant_scalar
        if isinstance(constant, Tensor):
            expect(input, dims=(1, 2), size={-1: constant.shape[0]})
        return input.add_(constant) if self.inplace and not recording() else input + constant


class MulConstant(_OfTensor):
    """Multiplies with a given number. Follows Torch7's ``nn/MulConstant.lua``.

    >>> MulConstant(2)(torch.ones(2))
    tensor([2., 2.])
    """

    fields = plain("inplace")

    def __init__(self, constant_scalar: float, inplace: bool = False) -> None:
        super().__init__()
        self.constant_scalar, self.inplace = constant_scalar, inplace

    def update_output(self, input: Tensor) -> Tensor:
        expect(input)
        constant = self.constant_scalar
        return input.mul_(constant) if self.inplace and not recording() else input * constant


class Constant(Module):
    """Gives a constant, whatever the input; its gradient is zero.

    Args:
        value: a number or a tensor.
        n_input_dim: dimensions of an input; one with more is a batch, and the constant is repeated over it.

    Follows Torch7's ``nn/Constant.lua``.

    >>> Constant(7, 1)(torch.zeros(2, 3))
    tensor([[7.],
            [7.]])
    """

    fields = plain("nInputDim")
    value: Tensor

    def __init__(self, value: float | Tensor, n_input_dim: int | None = None) -> None:
        super().__init__()
        self.register_buffer("value", value if isinstance(value, Tensor) else torch.tensor([float(value)]))
        self.n_input_dim = n_input_dim

    def update_output(self, input: Tensor) -> Tensor:
        expect(input)
        if self.n_input_dim is not None and input.dim() > self.n_input_dim:
            return self.value.expand(input.shape[0], *self.value.shape).clone()
        return self.value.clone()


class _Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return handed_on(input)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return ctx.factor * grad, None


class GradientReversal(_OfTensor):
    """Gives its input; the gradient is multiplied with ``-lambda``. Follows Torch7's ``nn/GradientReversal.lua``.

    >>> x = torch.ones(2, requires_grad=True)
    >>> GradientReversal(0.5)(x).sum().backward()
    >>> x.grad
    tensor([-0.5000, -0.5000])
    """

    fields = plain("", **{"lambda": "lambd"})
    version = 2

    def __init__(self, lambd: float = 1) -> None:
        super().__init__()
        self.lambd = lambd

    @classmethod
    def upgrade(cls, fields: dict[Any, Any], version: int | None) -> None:
        if (version or 0) < 2:
            fields["lambda"] = 1.0

    def set_lambda(self, lambd: float) -> None:
        """Changes the factor."""
        self.lambd = lambd

    def update_output(self, input: Tensor) -> Tensor:
        if not learns(input):
            return input
        return _Reversed.apply(input, -self.lambd)  # type: ignore[no-any-return,no-untyped-call]


class _Penalized(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, weight: float, add: bool) -> Tensor:
        ctx.save_for_backward(input)
        ctx.weight, ctx.add = weight, add
        return handed_on(input)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (input,) = ctx.saved_tensors
        own = input.sign() * ctx.weight
        return own + grad if ctx.add else own, None, None


class L1Penalty(_OfTensor):
    """Gives its input; the gradient of ``l1weight`` times the sum of absolute values is added on the way back.

    Args:
        l1weight: the penalty's weight.
        size_average: divide it by the number of elements.
        provide_output: whether the gradient that comes is passed on too, or only the penalty's.

    The protocol keeps the penalty in ``loss``. Follows Torch7's ``nn/L1Penalty.lua``.

    >>> x = torch.tensor([-3.0, 2.0], requires_grad=True)
    >>> L1Penalty(0.1)(x).sum().backward()
    >>> x.grad
    tensor([0.9000, 1.1000])
    """

    transient = ("loss",)
    fields = plain("l1weight sizeAverage provideOutput")

    def __init__(self, l1weight: float, size_average: bool = False, provide_output: bool = True) -> None:
        super().__init__()
        self.l1weight = l1weight
        self.size_average = size_average
        self.provide_output = provide_output

    def update_output(self, input: Tensor) -> Tensor:
        expect(input)
        weight = self.l1weight / input.numel() if self.size_average else self.l1weight
        if recording():
            self.keep("loss", weight * input.detach().abs().sum().item())
        if not learns(input):
            return input
        return _Penalized.apply(input, weight, bool(self.provide_output))  # type: ignore[no-any-return,no-untyped-call]
