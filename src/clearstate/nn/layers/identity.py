"""Modules that leave the numbers as they are."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..declarations.bad_input import expect
from ..protocol.module import Module


class Identity(Module):
    """Gives what it gets, tensor or table. Follows Torch7's ``nn/Identity.lua``.

    >>> import torch
    >>> Identity()(torch.ones(2))
    tensor([1., 1.])
    """

    def __init__(self, *unused: Any) -> None:
        super().__init__()

    def update_output(self, input: Any) -> Any:
        return input


class Contiguous(Module):
    """Gives the same numbers, laid out in order. Follows Torch7's ``nn/Contiguous.lua``.

    >>> import torch
    >>> Contiguous()(torch.ones(2, 3).t()).stride()
    (2, 1)
    """

    def update_output(self, input: Tensor) -> Tensor:
        expect(input)
        return input.contiguous()
