"""Layers that give what they get, and do something about it on the way: print its size, stop its gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..declarations.fields import plain
from ..protocol.module import Module
from ..protocol.ownership import mapped


class PrintSize(Module):
    """Gives what it gets, and prints the size of it, and of the gradient that comes back.

    Args:
        prefix: what the lines begin with.

    Follows Torch7's ``nn/PrintSize.lua``.

    >>> _ = PrintSize("conv1")(torch.ones(2, 3))
    conv1:input 2x3
    """

    fields = plain("prefix")
    prefix: str = "PrintSize"

    def __init__(self, prefix: str = "PrintSize") -> None:
        super().__init__()
        self.prefix = prefix

    def update_output(self, input: Any) -> Any:
        print(f"{self.prefix}:input {sizes(input)}")
        return mapped(input, self._watched)

    def _watched(self, tensor: Tensor) -> Tensor:
        if not tensor.requires_grad:
            return tensor
        own = tensor.view_as(tensor)
        own.register_hook(lambda grad: print(f"{self.prefix}:gradOutput {sizes(grad)}"))  # type: ignore[no-untyped-call]
        return own


def sizes(value: Any) -> str:
    """The size of a tensor, or of those of a table.

    >>> sizes([torch.ones(2, 3), [torch.ones(4)]])
    '{2x3, {4}}'
    """
    if isinstance(value, Tensor):
        return "x".join(map(str, value.shape)) or "1"
    if isinstance(value, list | tuple):
        return "{" + ", ".join(map(sizes, value)) + "}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {sizes(part)}" for key, part in value.items()) + "}"
    return "missing size"


class ZeroGrad(Module):
    """Gives what it gets; the gradient that goes back is zero. Follows Torch7's ``nn/ZeroGrad.lua``.

    >>> x = torch.ones(2, requires_grad=True)
    >>> ZeroGrad()(x).sum().backward()
    >>> x.grad
    tensor([0., 0.])
    """

    def update_output(self, input: Any) -> Any:
        return mapped(input, lambda t: _stopped(t) if t.is_floating_point() else t)


def _stopped(tensor: Tensor) -> Tensor:
    """The tensor, with a gradient that is zero rather than none."""
    return torch.where(tensor.new_zeros((), dtype=torch.bool), tensor, tensor.detach())
