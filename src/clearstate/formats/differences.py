"""A difference between two models, and how numbers are compared: bit for bit, in pieces."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..roles import Role
from .data import PIECE, Array, Data

THREADS = 4
"""The most threads that compare numbers; more wait for the same memory."""


@dataclass(frozen=True, slots=True)
class Difference:
    """What differs, where, and the role of it.

    >>> print(Difference("modules[1].weight", "1 of 6 elements differ, by at most 1", Role.PARAMETER))
    modules[1].weight: 1 of 6 elements differ, by at most 1
    """

    path: str
    what: str
    role: Role

    def __str__(self) -> str:
        return f"{self.path or 'the whole file'}: {self.what}"


def same_numbers(a: Data, b: Data) -> bool:
    """Whether two runs are of one type and length and have the same bits."""
    if a.dtype == b.dtype and a.count == b.count:
        return all(_same_bytes(x.view("u1"), y.view("u1")) for x, y in _aligned(a, b))
    return False


def each_same(pairs: Sequence[tuple[Data, Data]]) -> list[bool]:
    """For each two runs, whether they have the same bits; many bytes are read and compared by several threads.

    >>> import numpy as np
    >>> from clearstate.formats.data import Held
    >>> one, two = Held(np.arange(3.0)), Held(np.ones(3))
    >>> each_same([(one, one), (one, two)])
    [True, False]
    """
    if len(pairs) < 2 or sum(a.occupies for a, _ in pairs) < PIECE:
        return [same_numbers(a, b) for a, b in pairs]
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as pool:
        return list(pool.map(same_numbers, *zip(*pairs, strict=True)))


def _same_bytes(x: Array, y: Array) -> bool:
    words = len(x) // 8 * 8
    return np.array_equal(x[:words].view("u8"), y[:words].view("u8")) and np.array_equal(x[words:], y[words:])


def _aligned(a: Data, b: Data) -> Iterator[tuple[Array, Array]]:
    """The pieces of two runs of the same length, cut at the same places."""
    left, right = a.pieces(), b.pieces()
    x: Array = np.empty(0)
    y: Array = np.empty(0)
    for _ in iter(int, 1):
        x = x if len(x) else next(left, x)
        y = y if len(y) else next(right, y)
        count = min(len(x), len(y))
        if not count:
            return
        yield x[:count], y[:count]
        x, y = x[count:], y[count:]


def numbers_differ(a: Array, b: Array) -> str | None:
    """How two arrays of one shape differ, ``None`` where every element has the same bits (or both are NaN)."""
    a, b = a.astype(a.dtype.newbyteorder("=")), b.astype(b.dtype.newbyteorder("="))
    if a.dtype.kind == "f":
        whole = f"i{a.itemsize}"
        differ = (a.view(whole) != b.view(whole)) & ~(np.isnan(a) & np.isnan(b))
    else:
        differ = a != b
    count = int(np.count_nonzero(differ))
    if not count:
        return None
    with np.errstate(all="ignore"):
        most = np.max(np.abs(a[differ].astype("f8") - b[differ].astype("f8")))
    return f"{count} of {a.size} elements differ, by at most {most:.3g}"
