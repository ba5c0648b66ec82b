"""The ascii variant's primitives: numbers as text, each run of them on a line; strings as they are.

Numbers of a storage stay text until somebody asks for them, and are written back as that text. So are numbers outside
storages, where the file has another text than Torch7 writes today: until April 2014 it wrote six digits (C's ``%g``).
"""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from ....errors import FormatError
from ...data import Array, Data, Mapped, Source, Text
from .binary import MISSING, Progress
from .objects import Table, Value

_INT = re.compile(rb"\s*([+-]?[0-9]+)(?=\s|\Z)")
_TOKEN = re.compile(rb"\s*(\S+)")
_NUMERIC = b"0123456789+-.eEinfatyINFATY \t\r\n"


class AsciiDecoder:
    """Reads values as C's ``fscanf`` does in ``THDiskFile.c``, moving ``pos`` forward."""

    smallest_value = 2
    """Bytes that the shortest value takes (``0`` and a newline); bounds how many values can be left."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.buffer = source.buffer
        self.end = len(source.buffer)
        self.pos = 0

    def _unexpected(self, expected: str) -> FormatError:
        match = _TOKEN.match(self.buffer, self.pos)
        found = repr(match[1][:40].decode("latin-1")) if match else "the end of the file"
        return FormatError(expected, found, offset=match.start(1) if match else self.end)

    def _newline(self) -> None:
        if self.buffer[self.pos : self.pos + 1] == b"\n":
            self.pos += 1

    def integer(self, expected: str) -> int:
        return self._whole(expected, 31)

    def _whole(self, expected: str, bits: int) -> int:
        match = _INT.match(self.buffer, self.pos)
        if match is None or len(match[1]) > 20 or not -(1 << bits) <= (value := int(match[1])) < 1 << bits:
            raise self._unexpected(f"{expected} (an integer of {bits} bits)")
        self.pos = match.end()
        self._newline()
        return value

    def long(self, expected: str) -> int:
        return self._whole(expected, 63)

    def longs(self, count: int, expected: str) -> tuple[int, ...]:
        return tuple(self.long(expected) for _ in range(count))

    def double(self) -> float:
        match = _TOKEN.match(self.buffer, self.pos)
        try:
            value = float(match[1]) if match else None
        except ValueError:
            value = None
        if match is None or value is None:
            raise self._unexpected("a number")
        self.pos = match.end()
        self._newline()
        return as_written(value, match[1])

    def raw(self, count: int, expected: str) -> bytes:
        left = self.end - self.pos
        if not 0 <= count <= left:
            missing = f"only {left} more bytes ({count - left} bytes are missing)"
            raise FormatError(f"{expected} of {count} bytes", missing, offset=self.pos)
        start = self.pos
        self.pos += count
        if count:
            self._newline()
        return self.buffer[start : start + count]

    def string(self, expected: str) -> bytes:
        at = self.pos
        count = self.integer(f"the length of {expected}")
        if count < 0:
            raise FormatError(f"the length of {expected}", str(count), offset=at)
        return self.raw(count, expected)

    def numbers(self, dtype: np.dtype[Any], count: int, expected: str) -> Data:
        """A storage's elements: bytes as they are, other types as text that is parsed when asked for."""
        start = self.pos
        if dtype.itemsize == 1:
            self.raw(count, expected)
            return Mapped(self.source, dtype, [(start, start + count)])
        if count == 0:
            return Text(self.source, dtype, 0, start, start, parse)
        if count > (self.end - start + 1) // 2:
            found = f"only {self.end - start} more bytes, which hold fewer"
            raise FormatError(expected, found, offset=start)
        stop = self.buffer.find(b"\n", start)
        stop = self.end if stop < 0 else stop
        line = self.buffer[start:stop]
        if line.count(b" ") != count - 1 or line[:1] in b" \t\r":
            stop = self._after_tokens(count, expected)
            line = self.buffer[start:stop]
        if wrong := line.translate(None, _NUMERIC):
            at = start + line.index(wrong[:1])
            raise FormatError(expected, f"{wrong[:1]!r}, which is no part of a number", offset=at)
        self.pos = stop
        self._newline()
        return Text(self.source, dtype, count, start, stop, parse)

    def _after_tokens(self, count: int, expected: str) -> int:
        position = self.pos
        for done in range(count):
            match = _TOKEN.match(self.buffer, position)
            if match is None:
                raise FormatError(expected, f"the end of the file after {done}", offset=self.end)
            position = match.end()
        return position

    def finish(self) -> bytes:
        """Checks that only white space is left, and returns it."""
        rest = self.buffer[self.pos : self.end]
        if rest.strip():
            raise FormatError("the end of the file", f"{len(rest)} more bytes", offset=self.pos)
        return rest

    def entries(self, table: Table, left: int, objects: dict[int, Value], indices: list[int]) -> Progress:
        return [(table, left)], MISSING

    def torch(self, index: int, objects: dict[int, Value], indices: list[int]) -> tuple[Value, Table, int] | None:
        return None


def parse(text: bytes, dtype: np.dtype[Any]) -> Array:
    """The numbers of a storage's text.

    Raises:
        FormatError: a word is no number of this type.

    >>> parse(b"1 -nan 1e-300", np.dtype("f8"))
    array([1.e+000,     nan, 1.e-300])
    """
    words = text.split()
    try:
        return np.array([int(w) for w in words] if dtype.kind in "iu" else [float(w) for w in words], dtype)
    except (ValueError, OverflowError) as error:
        raise FormatError(f"numbers of type {dtype}", str(error)) from None


def number_text(value: float) -> str:
    """A number as C's ``%.17g`` writes it, the sign of a NaN included.

    >>> number_text(0.1), number_text(3.0), number_text(float("-nan"))
    ('0.10000000000000001', '3', '-nan')
    """
    if value != value:
        return "-nan" if math.copysign(1.0, value) < 0 else "nan"
    return f"{value:.17g}"


class Written(float):
    """A number that remembers the text it had in a file; what is computed from it is a plain number.

    >>> number = Written(1e-06, b"1e-06")
    >>> number, number.text, type(number * 2).__name__
    (1e-06, b'1e-06', 'float')
    """

    __slots__ = ("text",)
    text: bytes

    def __new__(cls, value: float, text: bytes) -> Written:
        made = super().__new__(cls, value)
        made.text = text
        return made

    def __reduce__(self) -> tuple[type[Written], tuple[float, bytes]]:
        return Written, (float(self), self.text)


def as_written(value: float, text: bytes) -> float:
    """The number, with its text where that is not the one `number_text` would write.

    >>> type(as_written(0.1, b"0.10000000000000001")).__name__, type(as_written(0.1, b"0.1")).__name__
    ('float', 'Written')
    """
    return value if number_text(value).encode() == text else Written(value, text)


def storage_text(piece: Array) -> str:
    """Elements of a storage as ``THDiskFile.c`` writes them: 9 digits for float and half, 17 for double."""
    if piece.dtype.kind in "iu":
        return " ".join(map(str, piece.tolist()))
    digits = 17 if piece.dtype.itemsize == 8 else 9
    words = [f"{value:.{digits}g}" for value in piece.astype("f8").tolist()]
    for i in np.flatnonzero(np.isnan(piece) & np.signbit(piece)).tolist():
        words[i] = "-nan"
    return " ".join(words)
