"""The binary variant's primitives: ints, longs, doubles and runs of bytes at a position in a mapped file.

Every length is checked against what is left of the file before it is used.
"""

from __future__ import annotations

import struct
from typing import Any, Literal, TypeAlias

import numpy as np

from ...errors import FormatError
from .data import Mapped, Source
from .layout import BOOLEAN, KIND_NAMES, NIL, NUMBER, STRING, TABLE, TORCH
from .objects import Function, Table, Value

MISSING: Any = object()
"""No key is waiting for its value."""

LONG_STRING = 4096
"""Longer strings take the careful way."""

Progress: TypeAlias = tuple[list[tuple[Table, int]], Value]
"""Tables that are still to be filled, outermost first, with how many entries they wait for; and the key of the
innermost one that waits for its value, or `MISSING`."""


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
        order = "<" if byteorder == "little" else ">"
        self.source = source
        self.buffer = source.buffer
        self.end = len(source.buffer)
        self.pos = 0
        self.order = order
        self.long_size = long_size
        self.byteorder = byteorder
        self.keys: dict[bytes, Value] = {}
        self._int = struct.Struct(order + "i").unpack_from
        self._pair = struct.Struct(order + "II").unpack_from
        self._tagged = struct.Struct(order + "Id").unpack_from
        self._low = 0 if byteorder == "little" else 3
        self._double = struct.Struct(order + "d").unpack_from
        self._long_code = "q" if long_size == 8 else "i"
        self._long = struct.Struct(order + self._long_code).unpack_from

    def truncated(self, expected: str, need: int) -> FormatError:
        left = self.end - self.pos
        found = "the end of the file" if left == 0 else f"only {left} more bytes"
        missing = f" ({need - left} bytes are missing)" if need > left else ""
        return FormatError(expected, found + missing, offset=self.pos)

    def int(self, expected: str) -> int:
        if self.end - self.pos < 4:
            raise self.truncated(f"{expected} (4 bytes)", 4)
        value: int = self._int(self.buffer, self.pos)[0]
        self.pos += 4
        return value

    def long(self, expected: str) -> int:
        return self.longs(1, expected)[0]

    def longs(self, count: int, expected: str) -> tuple[int, ...]:
        need = count * self.long_size
        if self.end - self.pos < need:
            raise self.truncated(f"{expected} ({need} bytes)", need)
        values = struct.unpack_from(f"{self.order}{count}{self._long_code}", self.buffer, self.pos)
        self.pos += need
        return values

    def double(self) -> float:
        if self.end - self.pos < 8:
            raise self.truncated("a number (8 bytes)", 8)
        (value,) = self._double(self.buffer, self.pos)
        self.pos += 8
        return float(value)

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
        count = self.int(f"the length of {expected}")
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

    def entries(self, table: Table, left: int, objects: dict[int, Value], indices: list[int]) -> Progress:
        """Reads entries of a table, and of new tables in it, until something is met that takes more thought.

        This is the loop that a file of many small values spends its time in. It reads keys that are numbers or
        short strings, and values that are nil, numbers, short strings, booleans, objects read before, or new
        tables. At anything else, or at a length that cannot be, it stops before that value (or before
        that entry) and leaves the rest to the reader, which reads on or says what is wrong.
        """
        buffer, pos, keys = self.buffer, self.pos, self.keys
        pair, tagged, int_at, low = self._pair, self._tagged, self._int, self._low
        most = self.end // 8
        outer: list[tuple[Table, int]] = []
        key: Value = MISSING
        start = pos
        plain_numbers = 0
        try:
            while True:
                if not left:
                    if not outer:
                        break
                    table, left = outer.pop()
                start = pos
                if buffer[pos + low] == NUMBER:
                    kind, key = tagged(buffer, pos)
                    if kind != NUMBER or key != key:
                        key = MISSING
                        break
                    pos += 12
                    if plain_numbers > 8 and left > 16:
                        plain_numbers = 0
                        done = self._number_entries(table, left, start)
                        if done:
                            pos = start + 24 * done
                            left -= done
                            key = MISSING
                            continue
                else:
                    kind, n = pair(buffer, pos)
                    if kind != STRING or n > LONG_STRING:
                        break
                    raw = buffer[pos + 8 : (pos := pos + 8 + n)]
                    try:
                        key = keys[raw]
                    except KeyError:
                        key = keys[raw] = text(raw)
                if buffer[pos + low] == NUMBER:
                    kind, value = tagged(buffer, pos)
                    if kind != NUMBER:
                        break
                    pos += 12
                    table[key] = value
                    plain_numbers += 1
                else:
                    plain_numbers = 0
                    kind, n = pair(buffer, pos)
                    if kind == STRING:
                        if n > LONG_STRING:
                            break
                        raw = buffer[pos + 8 : (after := pos + 8 + n)]
                        if len(raw) != n:
                            break
                        pos = after
                        try:
                            table[key] = raw.decode()
                        except UnicodeDecodeError:
                            table[key] = raw
                    elif kind == TABLE:
                        known = objects.get(n)
                        if known is None:
                            (count,) = int_at(buffer, pos + 8)
                            if not 0 <= count <= most:
                                break
                            pos += 12
                            indices.append(n)
                            objects[n] = table[key] = inner = Table()
                            key = MISSING
                            left -= 1
                            if count:
                                if left:
                                    outer.append((table, left))
                                table, left = inner, count
                            continue
                        if type(known) is not Table:
                            break
                        table[key] = known
                        pos += 8
                    elif kind == TORCH:
                        known = objects.get(n)
                        if known is None or type(known) is Table or type(known) is Function:
                            break
                        table[key] = known
                        pos += 8
                    elif kind == BOOLEAN and n < 2:
                        table[key] = n == 1
                        pos += 8
                    elif kind == NIL:
                        table[key] = None
                        pos += 4
                    else:
                        break
                left -= 1
                key = MISSING
        except (struct.error, IndexError):
            pos, key = start, MISSING
        self.pos = pos
        if left:
            outer.append((table, left))
        return outer, key

    def _number_entries(self, table: Table, left: int, start: int) -> int:
        """Reads entries that have a number for key and for value, many at once; how many there were in a row."""
        entry = np.dtype([("kind", "u4"), ("key", "f8"), ("value_kind", "u4"), ("value", "f8")]).newbyteorder(self.order)
        most = min(left, (self.end - start) // entry.itemsize)
        done, window = 0, 32
        while done < most:
            count = min(window, most - done)
            rows = np.frombuffer(self.buffer, entry, count, start + done * entry.itemsize)
            plain = (rows["kind"] == NUMBER) & (rows["value_kind"] == NUMBER) & (rows["key"] == rows["key"])
            run = count if plain.all() else int(plain.argmin())
            table.update(zip(rows["key"][:run].tolist(), rows["value"][:run].tolist(), strict=True))
            done += run
            if run < count:
                break
            window = min(2 * window, 1 << 16)
        return done


def text(raw: bytes) -> str | bytes:
    """A Lua string: ``str`` where its bytes are UTF-8, else the bytes."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def kind_name(kind: int) -> str:
    return KIND_NAMES[kind] if 0 <= kind < len(KIND_NAMES) else f"type number {kind}"
