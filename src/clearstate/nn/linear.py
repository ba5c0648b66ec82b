"""Layers that are linear in their input: a matrix, a vector, a number, a distance."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter

from .checks import expect
from .fields import plain
from .module import Module


class Linear(Module):
    """``y = x W' + b``: a vector, or a batch of vectors.

    Shapes: ``n_input`` or ``batch x n_input`` in, ``n_output`` or ``batch x n_output`` out; ``weight`` is
    ``n_output x n_input``, ``bias`` is ``n_output``. Follows Torch7's ``nn/Linear.lua``.

    >>> Linear(3, 2)(torch.ones(5, 3)).shape
    torch.Size([5, 2])
    """

    def __init__(self, input_size: int, output_size: int, bias: bool = True) -> None:
        super().__init__()
        self.weight = Parameter(torch.empty(output_size, input_size))
        self.bias = Parameter(torch.empty(output_size)) if bias else None
        self.reset()

    def reset(self, stdv: float | None = None) -> Linear:
        """Draws the parameters anew, uniformly within ``stdv`` times the root of 3 (within ``1/sqrt(n_input)``)."""
        bound = stdv * math.sqrt(3) if stdv else 1 / math.sqrt(self.weight.shape[1])
        for parameter in self.parameters(recurse=False):
            torch.nn.init.uniform_(parameter, -bound, bound)
        return self

    def update_output(self, input: Tensor) -> Tensor:
        expect(input, dims=(1, 2), size={-1: self.weight.shape[1]})
        return F.linear(input, self.weight, self.bias)

    def to_string(self) -> str:
        suffix = "" if self.bias is not None else " without bias"
        return f"{self.typename}({self.weight.shape[1]} -> {self.weight.shape[0]}){suffix}"
