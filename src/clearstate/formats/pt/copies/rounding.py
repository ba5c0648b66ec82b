"""Floating numbers in another type: bfloat16, which NumPy has not, as the upper half of a float32.

Rounding is to the nearest, ties to even, as in PyTorch's ``Tensor.to``.
"""

from __future__ import annotations

import numpy as np

from ...data import Array

FLOATING = ("float64", "float32", "float16", "bfloat16")
"""The types that are cast, and cast to."""


def widened(bits: Array) -> Array:
    """The float32 numbers that bfloat16's bits are.

    >>> widened(np.array([0x3F80], "u2"))
    array([1.], dtype=float32)
    """
    return (bits.astype("<u4") << 16).view("<f4")


def narrowed(numbers: Array) -> Array:
    """The bits of bfloat16 that are nearest to float32 numbers.

    >>> hex(narrowed(np.array([1.0], "f4"))[0])
    '0x3f80'
    """
    bits = numbers.view("<u4")
    rounded = ((bits + (((bits >> 16) & 1) + 0x7FFF).astype("<u4")) >> 16).astype("<u2")
    return np.where(np.isnan(numbers), np.uint16(0x7FC0), rounded).astype("<u2")
