"""The binary variant's primitives: ints, longs, doubles and runs of bytes at a position in a mapped file.

Every length is checked against what is left of the file before it is used.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from ....errors import FormatError
from ...data import Mapped, Source
from .layout import KIND_NAMES
from .objects import Table, Value

MISSING: Any = object()
"""No key is waiting for its value."""

Progress: TypeAlias = tuple[list[tuple[Table, int]], Value]
"""Tables that are still to be filled, outermost first, with how many entries they wait for; and the key of the
innermost one that waits for its value, or `MISSING`."""

Order: TypeAlias = Literal["<", ">"]

LONG_CODE = {4: "i", 8: "q"}

MOST_DIMENSIONS = 8
"""Tensors of more are read the careful way."""


class _Unpack(NamedTuple):
    """Functions that take a buffer and a position, and give what stands there."""

    integer: Any
    pair: Any
    long: Any
    double: Any
    tagged: Any
    """A type number and a double."""
    named: Any
    """A class version like ``V 1`` and the length of the name after it."""
    geometry: tuple[Any, ...]
    """Sizes, strides and offset of a tensor, by its number of dimensions."""


@lru_cache
def _unpack(order: Order, long_size: int) -> _Unpack:
    long = LONG_CODE[long_size]
    one, pair, longs, double, tagged, named = (
        struct.Struct(order + each).unpack_from for each in ("i", "II", long, "d", "Id", "i3si")
    )
    geometry = (struct.Struct(f"{order}{2 * dims + 1}{long}").unpack_from for dims in range(MOST_DIMENSIONS + 1))
    return _Unpack(one, pair, longs, double, tagged, named, tuple(geometry))


class BinaryDecoder:
    """Reads values of one byte order and long size, moving ``pos`` forward."""

    smallest_value = 4
    """Bytes that the shortest value takes; bounds how many values can be left."""

    def __init__(
        self,
        source: Source,
        long_size: Literal[4, 8] = 8,
        byteorder: Literal["little", "big"] = "little",
    ) -> None:
        order: Order = "<" if byteorder == "little" else ">"
        self.source = source
        self.buffer = source.buffer
        self.end = len(source.buffer)
        self.pos = 0
        self.order = order
        self.long_size = long_size
        self.byteorder = byteorder
        self.unpack = _unpack(order, long_size)

    def truncated(self, expected: str, need: int) -> FormatError:
        left = self.end - self.pos
        found = "the end of the file" if left == 0 else f"only {left} more bytes"
        missing = f" ({need - left} bytes are missing)" if need > left else ""
        return FormatError(expected, found + missing, offset=self.pos)

    def integer(self, expected: str) -> int:
        if self.end - self.pos < 4:
            raise self.truncated(f"{expected} (4 bytes)", 4)
        value: int = self.unpack.integer(self.buffer, self.pos)[0]
        self.pos += 4
        return value

    def long(self, expected: str) -> int:
        return self.longs(1, expected)[0]

    def longs(self, count: int, expected: str) -> tuple[int, ...]:
        need = count * self.long_size
        if self.end - self.pos < need:
            raise self.truncated(f"{expected} ({need} bytes)", need)
        values = struct.unpack_from(f"{self.order}{count}{LONG_CODE[self.long_size]}", self.buffer, self.pos)
        self.pos += need
        return values

    def double(self) -> float:
        if self.end - self.pos < 8:
            raise self.truncated("a number (8 bytes)", 8)
        value: float = self.unpack.double(self.buffer, self.pos)[0]
        self.pos += 8
        return value

    def raw(self, count: int, expected: str) -> bytes:
        if count < 0:
            raise FormatError(f"the length of {expected}", str(count), offset=self.pos)
        if self.end - self.pos < count:
            raise self.truncated(f"{expected} of {count} bytes", count)
        start = self.pos
        self.pos += count
        return self.buffer[start : self.pos]

    def string(self, expected: str) -> bytes:
        at = self.pos
        count = self.integer(f"the length of {expected}")
        if count < 0:
            raise FormatError(f"the length of {expected}", str(count), offset=at)
        return self.raw(count, expected)

    def numbers(self, dtype: np.dtype[Any], count: int, expected: str) -> Mapped:
        """A storage's elements, left where they are."""
        if dtype.kind == "i" and dtype.itemsize == 8:
            dtype = np.dtype(f"i{self.long_size}")
        need = count * dtype.itemsize
        if self.end - self.pos < need:
            raise self.truncated(f"{expected} ({need} bytes)", need)
        data = Mapped(self.source, dtype.newbyteorder(self.order), [(self.pos, self.pos + need)])
        self.pos += need
        return data

    def finish(self) -> bytes:
        """Checks that the file ends here."""
        if self.pos != self.end:
            raise FormatError("the end of the file", f"{self.end - self.pos} more bytes", offset=self.pos)
        return b""


def text(raw: bytes) -> str | bytes:
    """A Lua string: ``str`` where its bytes are UTF-8, else the bytes."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def kind_name(kind: int) -> str:
    return KIND_NAMES[kind] if 0 <= kind < len(KIND_NAMES) else f"type number {kind}"
