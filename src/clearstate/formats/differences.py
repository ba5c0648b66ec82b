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


PART = 1 << 18
"""Elements of two arrays that are compared at a time."""

MOST_REPEATED = 1 << 26
"""Elements that are compared where they are more than the places they lie in."""


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


def numbers_differ(a: Array, b: Array, *, bits: bool = False) -> str | None:
    """How two arrays of one shape differ, ``None`` where every element has the same bits (or both are NaN).

    Elements that repeat in both are compared once, so the sizes that a file gives cost nothing. With ``bits`` they are
    whole numbers of as many bits, whatever their type says.
    """
    size = a.size
    a, b = once(a, b)
    if _repeats(a) and _repeats(b) and a.size > MOST_REPEATED:
        return f"of {size} elements most repeat: too many to be compared"
    count, most = 0, 0.0
    for one, other in in_pieces(a, b):
        x, y = (each.astype(each.dtype.newbyteorder("=")) for each in (one, other))
        if bits:
            x, y = (np.ascontiguousarray(each).view(f"u{min(each.itemsize, 8)}") for each in (x, y))
        if x.dtype.kind == "f":
            whole = f"i{x.itemsize}"
            differ = (x.view(whole) != y.view(whole)) & ~(np.isnan(x) & np.isnan(y))
        else:
            differ = x != y
        found = int(np.count_nonzero(differ))
        if found:
            count += found
            with np.errstate(all="ignore"):
                most = float(np.maximum(most, np.max(np.abs(x[differ].astype("f8") - y[differ].astype("f8")))))
    if not count:
        return None
    words = a.itemsize // 8 if bits and a.itemsize > 8 else 1
    return f"{count * max(size // a.size, 1)} of {size * words} elements differ, by at most {most:.3g}"


def once(a: Array, b: Array) -> tuple[Array, Array]:
    """Two arrays without the dimensions along which both only repeat; of overlapping windows, what is under them.

    >>> import numpy as np
    >>> a = np.broadcast_to(np.arange(3), (2**40, 3))
    >>> [each.tolist() for each in once(a, a)]
    [[[0, 1, 2]], [[0, 1, 2]]]
    """
    steps = zip(a.strides, b.strides, strict=True)
    places = tuple(slice(0, 1) if one == 0 == other else slice(None) for one, other in steps)
    a, b = a[places], b[places]
    if a.strides == b.strides and a.itemsize == b.itemsize and _repeats(a):
        under = (_extent(a),), (a.itemsize,)
        one, other = (np.lib.stride_tricks.as_strided(each, *under, writeable=False) for each in (a, b))
        if a.size > MOST_REPEATED or one.tobytes() == other.tobytes():
            return one, other
    return a, b


def _repeats(a: Array) -> bool:
    """Whether an array has more elements than there are places under it."""
    return a.size > _extent(a)


def _extent(a: Array) -> int:
    """Places from the first element to the last."""
    return (
        sum((n - 1) * abs(step) for n, step in zip(a.shape, a.strides, strict=True)) // a.itemsize + 1 if a.size else 0
    )


def in_pieces(a: Array, b: Array) -> Iterator[tuple[Array, Array]]:
    """The elements of two arrays of one shape, in arrays of at most `PART` elements.

    >>> import numpy as np
    >>> a = np.broadcast_to(np.arange(3), (2, 3))
    >>> [x.tolist() for x, y in in_pieces(a, a)]
    [[[0, 1, 2], [0, 1, 2]]]
    """
    stack = [(a, b)]
    while stack:
        x, y = stack.pop()
        if x.size <= PART:
            if x.size:
                yield x, y
            continue
        axis = max(range(x.ndim), key=lambda axis: x.shape[axis])
        stack += reversed(list(zip(np.array_split(x, 2, axis), np.array_split(y, 2, axis), strict=True)))
