"""Layers whose input is one tensor, whatever its sizes: how they say that something else came, at no cost else."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from .module import Module
from .tape import describe


class _OfTensor(Module):
    """A layer that does not look at its input before PyTorch does: what PyTorch refuses is said in our words."""

    def told(self, error: Exception, input: Any) -> Exception:
        """
        >>> import clearstate.nn as nn
        >>> nn.Tanh()([1, 2])
        Traceback (most recent call last):
        TypeError: expected a tensor, got a table of 2
        """
        if isinstance(input, Tensor):
            return super().told(error, input)
        return TypeError(f"expected a tensor, got {describe(input)}")
