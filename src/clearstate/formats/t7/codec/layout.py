"""The variant of the format a file is written in; reading finds it out, writing is told it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

NIL, NUMBER, STRING, TABLE, TORCH, BOOLEAN, OLD_FUNCTION, LEGACY_FUNCTION, FUNCTION = range(9)
"""The type numbers that begin every value (Torch7's ``File.lua``)."""

KIND_NAMES = (
    "nil",
    "a number",
    "a string",
    "a table",
    "a Torch object",
    "a boolean",
    "a function",
    "a function",
    "a function",
)


@dataclass(frozen=True, slots=True)
class Layout:
    """One variant of the format.

    ``indices`` are the numbers a file gave its shared objects, where they are not 1, 2, 3, ...;
    ``trailing`` is white space after the last value of an ascii file. Both only serve to write a file back
    byte for byte.

    >>> str(Layout()), str(Layout(mode="ascii")), str(Layout(long_size=4, byteorder="big"))
    ('binary, 8-byte long', 'ascii', 'binary, 4-byte long, big-endian')
    """

    mode: Literal["binary", "ascii"] = "binary"
    long_size: Literal[4, 8] = 8
    byteorder: Literal["little", "big"] = "little"
    referenced: bool = True
    indices: tuple[int, ...] | None = None
    trailing: bytes = b""

    def __str__(self) -> str:
        if self.mode == "ascii":
            return "ascii"
        big = ", big-endian" if self.byteorder == "big" else ""
        return f"binary, {self.long_size}-byte long{big}"
