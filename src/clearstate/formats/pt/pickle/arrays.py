"""Arrays of NumPy in a pickle: their type, their shape, and where their numbers are."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import numpy as np

from ...geometry import MOST_DIMENSIONS, misfit
from .stubs import Global, Stub, Value

RECONSTRUCTED = re.compile(r"numpy\.(_core|core)\.multiarray\._reconstruct")
"""What makes an array whose state has its numbers."""

BUFFERED = re.compile(r"numpy\.(_core|core)\.numeric\._frombuffer")
"""What makes an array of its numbers, from protocol 5 on."""

LAST_LETTER = 0x10FFFF
"""The last of Unicode."""

_CODE = re.compile(r"[<>|=]?(?:[biufc](?:1|2|4|8|16)|[SU][0-9]{1,9}|b1|O8?)")


class Array(NamedTuple):
    """An array as its pickle has it."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    raw: Value
    """Its numbers: bytes, a call that makes bytes of a text, or a list of objects."""

    @property
    def nbytes(self) -> int:
        """Bytes of its numbers."""
        raw = self.raw.args[0] if isinstance(self.raw, Stub) and self.raw.args else self.raw
        return len(raw) if isinstance(raw, str | bytes | bytearray) else 0


def array_of(value: Value) -> Array | None:
    """What a pickle says of an array; ``None`` for any other value, and for what makes no sense.

    >>> kind = Stub("reduce", Global("numpy", "dtype"), ("f4", False, True))
    >>> kind.state = (3, "<", None, None, None, -1, -1, 0)
    >>> made = Stub("reduce", Global("numpy.core.multiarray", "_reconstruct"), ())
    >>> made.state = (1, (2,), kind, False, bytes(8))
    >>> array_of(made).dtype.name, array_of(made).nbytes
    ('float32', 8)
    """
    if not isinstance(value, Stub) or not isinstance(value.function, Global):
        return None
    if RECONSTRUCTED.fullmatch(value.typename) and isinstance(value.state, tuple) and len(value.state) == 5:
        _, shape, kind, fortran, raw = value.state
        order = bool(fortran)
    elif BUFFERED.fullmatch(value.typename) and isinstance(value.args, tuple) and len(value.args) == 4:
        raw, kind, shape, letter = value.args
        order = letter == "F"
        if letter not in ("C", "F"):
            return None
    else:
        return None
    dtype = type_of(kind)
    if dtype is None or not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape):
        return None
    if len(shape) > MOST_DIMENSIONS or misfit(shape, (), 0, dtype.itemsize):
        return None
    return Array(dtype, shape, order, raw)


def type_of(value: Value) -> np.dtype[Any] | None:
    """The type that a pickled ``numpy.dtype`` is; ``None`` for one of fields, or any other value."""
    code = value.args[0] if isinstance(value, Stub) and value.typename == "numpy.dtype" and value.args else None
    if not isinstance(code, str) or not _CODE.fullmatch(code) or not isinstance(value.state, tuple):
        return None
    order = value.state[1] if len(value.state) > 1 else "|"
    try:
        made = np.dtype(code).newbyteorder(">" if order == ">" else "<")
    except TypeError:
        return None
    return made if made.itemsize else None


def is_text(data: bytes, dtype: np.dtype[Any]) -> bool:
    r"""Whether numbers that a type says are letters all are.

    >>> is_text("a".encode("utf-32-le"), np.dtype("<U1")), is_text(bytes([255] * 4), np.dtype("<U1"))
    (True, False)
    """
    letters = np.frombuffer(data, np.dtype("u4").newbyteorder(dtype.byteorder)) if dtype.kind == "U" else ()
    return not np.any(np.asarray(letters) > LAST_LETTER)
