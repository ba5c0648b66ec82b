"""Functions of each element that nets bend their signals with."""

from __future__ import annotations

import torch
from torch import Tensor

from .module import Module


class Tanh(Module):
    """The hyperbolic tangent of each element. Follows Torch7's ``nn/Tanh.lua``.

    >>> Tanh()(torch.zeros(2))
    tensor([0., 0.])
    """

    def update_output(self, input: Tensor) -> Tensor:
        return torch.tanh(input)
