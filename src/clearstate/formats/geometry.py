"""Sizes, strides and the offset of a tensor as a file gives them: what no array can have is refused when it is read.

Arrays count elements and bytes in 63 bits. Python's own numbers have no end, so a product that leaves these is found
here, where the file and the place in it are known, and not in the library that is given it later.
"""

from __future__ import annotations

import math
from typing import NamedTuple

MOST_DIMENSIONS = 64
"""What NumPy and PyTorch can have."""

LARGEST = 2**63 - 1
"""Bytes, and elements, that they can count."""


class Misfit(NamedTuple):
    """A number that no array has: what was expected, what was found.

    Attributes:
        place: which of all the sizes, the strides after them, and the offset last, counted from 0.
    """

    expected: str
    found: str
    place: int


def misfit(size: tuple[int, ...], stride: tuple[int, ...], offset: int, itemsize: int) -> Misfit | None:
    """The first number of a tensor's geometry that no array of elements of ``itemsize`` bytes has, if there is one.

    Whether its elements lie in the storage is another question.

    >>> misfit((2, 3), (3, 1), 0, 8) is None
    True
    >>> misfit((1,), (2**61,), 0, 8)
    Misfit(expected='a stride that fits 63 bits in bytes', found='2305843009213693952', place=1)
    >>> misfit((2**31, 2**31, 2**31), (0, 0, 0), 0, 4).place
    1
    """
    whole = itemsize
    for place, n in enumerate(size):
        if n < 0:
            return Misfit("the sizes of a tensor", f"a negative one: {by(size)}", place)
        whole *= max(n, 1)
        if whole > LARGEST:
            return Misfit("sizes of a tensor whose bytes fit 63 bits", by(size), place)
    for place, step in enumerate(stride, len(size)):
        if abs(step) * itemsize > LARGEST:
            return Misfit("a stride that fits 63 bits in bytes", str(step), place)
    place = len(size) + len(stride)
    if size and abs(offset) * itemsize > LARGEST:
        return Misfit("an offset that fits 63 bits in bytes", str(offset), place)
    if offset < 0 and not math.prod(size) and size:
        return Misfit("an offset in the storage", str(offset), place)
    return None


def negative(stride: tuple[int, ...], at: int) -> Misfit | None:
    """The first negative stride, if there is one: neither Torch7 nor PyTorch has them. ``at`` is its place if first.

    >>> negative((3, -1), 2).place
    3
    """
    for place, step in enumerate(stride, at):
        if step < 0:
            return Misfit("the strides of a tensor", f"a negative one: {by(stride)}", place)
    return None


def by(numbers: tuple[int, ...]) -> str:
    """Sizes as people write them.

    >>> by((2, 3))
    '2x3'
    """
    return "x".join(map(str, numbers))
