"""Layers of a file, made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from clearstate.formats.t7 import Object, Table, Tensor


def layer(typename: str, **fields: Any) -> Object:
    """An object of a class with these fields, of float."""
    numbers = {k: float(v) if type(v) is int else v for k, v in fields.items()}
    return Object(typename, Table(_type="torch.FloatTensor", **numbers))


def numbers(*size: int) -> Tensor:
    """A tensor of this size, of distinct numbers."""
    return Tensor.of(np.arange(np.prod(size), dtype="f4").reshape(size) / 7)
