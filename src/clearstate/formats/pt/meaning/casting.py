"""Floating parameters in another type: cast as they are written, piece by piece.

Running statistics, integers and quantized numbers keep their type. Rounding is to the nearest, ties to even, as in
PyTorch's ``Tensor.to``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ....errors import ClearstateError
from ....roles import Role
from ...data import PIECE, Array, Data, Held
from ..copies.rounding import FLOATING, narrowed, widened
from ..pickle.stubs import DTYPE_BYTES, NUMPY, STORAGE_DTYPE, Global, Storage, Tensor, Value
from .survey import survey

KINDS = {dtype: Global("torch", kind) for kind, dtype in STORAGE_DTYPE.items()}


class Cast:
    """The bytes of numbers in another type than they are kept in.

    >>> data = Held(np.array([1.0, 2.5], "f4").view("u1"))
    >>> Cast(data, "float32", "float16", "w").array().view("f2")
    array([1. , 2.5], dtype=float16)
    """

    __slots__ = ("before", "data", "dtype", "name", "now")

    def __init__(self, data: Data, before: str, now: str, name: str) -> None:
        self.data = data
        self.before = before
        self.now = now
        self.name = name
        self.dtype = np.dtype("u1")

    @property
    def count(self) -> int:
        return self.data.count // DTYPE_BYTES[self.before] * DTYPE_BYTES[self.now]

    @property
    def occupies(self) -> int:
        return self.count

    def array(self) -> Array:
        return np.concatenate([*self.pieces(), np.empty(0, "u1")])

    def pieces(self) -> Iterator[Array]:
        """The bytes in order; the numbers are read and cast a piece at a time."""
        unit = DTYPE_BYTES[self.before]
        rest = np.empty(0, "u1")
        for piece in self.data.pieces():
            whole = np.concatenate([rest, piece]) if len(rest) else piece
            cut = len(whole) // unit * unit
            rest = whole[cut:].copy()
            for start in range(0, cut, PIECE):
                yield self._cast(np.ascontiguousarray(whole[start : min(start + PIECE, cut)]))

    def select(self, runs: Sequence[tuple[int, int]]) -> Data:
        """Only some of the bytes: whole numbers stay cast."""
        old, new = DTYPE_BYTES[self.before], DTYPE_BYTES[self.now]
        if all(start % new == 0 and stop % new == 0 for start, stop in runs):
            return Cast(self.data.select([(a // new * old, b // new * old) for a, b in runs]), *self._how)
        return Held(self.array()).select(runs)

    @property
    def _how(self) -> tuple[str, str, str]:
        return self.before, self.now, self.name

    def _cast(self, raw: Array) -> Array:
        numbers = widened(raw.view("<u2")) if self.before == "bfloat16" else raw.view(NUMPY[self.before])
        with np.errstate(over="ignore", invalid="ignore"):
            single = numbers.astype("<f4")  # PyTorch rounds to it first, also where it starts from double
            made = narrowed(single) if self.now == "bfloat16" else single.astype(NUMPY[self.now])
        lost = np.isfinite(numbers) & ~np.isfinite(widened(made) if self.now == "bfloat16" else made)
        if lost.any():
            count = int(np.count_nonzero(lost))
            what = f"{count} numbers are" if count > 1 else "a number is"
            raise ClearstateError(f"{self.name}: {what} too large for {self.now}; nothing was written")
        return made.view("u1")


def cast(root: Value, dtype: str) -> int:
    """Casts all floating parameters in a checkpoint, in place, without reading one; returns how many.

    What shares memory does so afterwards; only where a parameter shares it with something that is none do they part.

    >>> cast({"epoch": 3}, "float16")
    0
    """
    names: dict[int, tuple[Tensor, str]] = {}
    for piece in survey(root).pieces:
        value = piece.value
        if "<args>" in piece.path:
            continue  # a part of a tensor of another class, which says itself of what type it is
        if isinstance(value, Tensor) and piece.role is Role.PARAMETER and value.storage.dtype in FLOATING:
            names.setdefault(id(value), (value, piece.path))
    made: dict[int, Storage] = {}
    count = 0
    for tensor, path in names.values():
        if tensor.dtype == dtype:
            continue
        old = tensor.storage
        if id(old) not in made:
            data = None if old.data is None else Cast(old.data, old.dtype, dtype, path)
            made[id(old)] = Storage(dtype, old.key, old.location, data, KINDS[dtype])
        tensor.storage = made[id(old)]
        count += 1
    return count
