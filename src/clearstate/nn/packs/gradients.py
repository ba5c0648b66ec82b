"""Gradients that are not the derivative of what a layer gives: a penalty's added on the way back; passed straight."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..protocol.tape import handed_on, learns


class _Penalized(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, penalty: Tensor) -> Tensor:
        ctx.penalty = penalty
        return handed_on(input)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad, torch.ones_like(ctx.penalty)


def penalized(input: Tensor, penalty: Tensor) -> Tensor:
    """The input; on the way back the gradient of a penalty, one number, is added to what it was computed of.

    >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
    >>> penalized(x, x.square().sum()).sum().backward()
    >>> x.grad
    tensor([3., 5.])
    """
    if not learns(input, penalty):
        return input
    made: Tensor = _Penalized.apply(input, penalty)  # type: ignore[no-untyped-call]
    return made


class _Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: Tensor, value: Tensor) -> Tensor:
        return handed_on(value)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return grad, None


def straight_through(input: Tensor, value: Tensor) -> Tensor:
    """Another value of the input's shape; the gradient goes to the input as if the two were the same.

    >>> x = torch.tensor([-1.0, 2.0], requires_grad=True)
    >>> y = straight_through(x, x.clamp(0, 1))
    >>> y.sum().backward()
    >>> y.tolist(), x.grad.tolist()
    ([0.0, 1.0], [1.0, 1.0])
    """
    if not learns(input):
        return value.detach()
    made: Tensor = _Straight.apply(input, value.detach())  # type: ignore[no-untyped-call]
    return made
