"""The fast way through a binary file: small values, tables, objects and tensors in one loop.

It reads what is plainly right and stops before whatever is not, with nothing done. The careful reader goes on
from there, and says what is wrong. So this file has no errors of its own.
"""

from __future__ import annotations

import re
import struct
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np

from ...data import Mapped, Source
from .binary import MISSING, MOST_DIMENSIONS, BinaryDecoder, Order, Progress
from .layout import BOOLEAN, NIL, NUMBER, STRING, TABLE, TORCH
from .objects import (
    PAYLOADS,
    Function,
    Object,
    Storage,
    Table,
    Tensor,
    Value,
    element_type,
    has_header,
    numeric_class,
    storage_of,
)

LONG_STRING = 4096
"""Longer strings take the careful way."""

SHORT_STRING = 64
"""Strings under this length are unpacked together with the number after them."""

KNOWN_KEYS = 4096
"""Different keys of tables that are kept, to be shared by the tables that have them."""

LAST_INDEX = 2**31 - 1
"""The largest number an object can have; anything larger is a negative one here, and takes the careful way."""

PLAIN = 2**48
"""Sizes and strides up to this number are plainly right, and as many elements; larger ones take the careful way."""

_NO_TABLE = Table()


class _Class(NamedTuple):
    """A class of Torch that the fast loop reads: a tensor, a storage, or one whose state is one value."""

    typename: str
    version: int
    form: Literal["Tensor", "Storage", "Object"]
    dtype: np.dtype[Any]
    """Of a storage's elements, as they are in the file."""
    storage: str
    """Class of a tensor's storage."""


@lru_cache(maxsize=1024)
def _declared(version: bytes, name: bytes, order: Order, long_size: int) -> _Class | None:
    """The class of this version and name, ``None`` of one that takes more thought."""
    try:
        typename = name.decode()
    except UnicodeDecodeError:
        return None
    if not re.fullmatch(rb"V [0-9]", version) or typename in PAYLOADS or has_header(typename, int(version[2:])):
        return None
    numeric = numeric_class(typename)
    if numeric is None:
        return _Class(typename, int(version[2:]), "Object", np.dtype("u1"), "")
    dtype = element_type(typename)
    if dtype == np.dtype("i8"):
        dtype = np.dtype(f"i{long_size}")
    form: Literal["Tensor", "Storage"] = "Tensor" if numeric[1] == "Tensor" else "Storage"
    storage = storage_of(typename) if form == "Tensor" else ""
    return _Class(typename, int(version[2:]), form, dtype.newbyteorder(order), storage)


@lru_cache
def _word_with_number(order: Order) -> list[Any]:
    """Functions that give a string key and its number, by the length of the string."""
    return [struct.Struct(f"{order}II{length}sId").unpack_from for length in range(SHORT_STRING)]


class BulkDecoder(BinaryDecoder):
    """A `BinaryDecoder` that also reads many values at once."""

    def __init__(
        self,
        source: Source,
        long_size: Literal[4, 8] = 8,
        byteorder: Literal["little", "big"] = "little",
    ) -> None:
        super().__init__(source, long_size, byteorder)
        self.keys: dict[bytes, Value] = {}
        self._low = 0 if byteorder == "little" else 3

    def entries(self, table: Table, left: int, objects: dict[int, Value], indices: list[int]) -> Progress:
        """Reads entries of a table, and of new tables in it, until something is met that takes more thought.

        This is the loop that a file of many small values spends its time in. It reads keys that are numbers or
        short strings, and values that are nil, numbers, short strings, booleans, objects read before, new
        tables, tensors, or objects that are tables of fields. At anything else, or at a length that cannot be,
        it stops before that value (or before that entry) and leaves the rest to the reader, which reads on
        or says what is wrong.
        """
        buffer, pos, keys = self.buffer, self.pos, self.keys
        pair, tagged, int_at, low = self.unpack.pair, self.unpack.tagged, self.unpack.integer, self._low
        most = self.end // 8
        outer: list[tuple[Table, int]] = []
        key: Value = MISSING
        start = pos
        plain_numbers = words = 0
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
                    if (plain_numbers > 8 or words > 4) and left > 16:
                        if words:
                            done, pos = self._numbered_words(table, left, start)
                        else:
                            done = self._number_entries(table, left, start)
                            pos = start + 24 * done
                        plain_numbers = words = 0
                        if done:
                            left -= done
                            key = MISSING
                            continue
                        pos = start + 12
                else:
                    if plain_numbers > 8 and left > 16:
                        plain_numbers = 0
                        done, pos = self._words_with_numbers(table, left, start)
                        if done:
                            left -= done
                            continue
                    kind, n = pair(buffer, pos)
                    if kind != STRING or n > LONG_STRING:
                        break
                    raw = buffer[pos + 8 : (pos := pos + 8 + n)]
                    key = keys.get(raw)
                    if key is None:
                        try:
                            key = raw.decode()
                        except UnicodeDecodeError:
                            key = raw
                        if len(keys) < KNOWN_KEYS:
                            keys[raw] = key
                if buffer[pos + low] == NUMBER:
                    kind, value = tagged(buffer, pos)
                    if kind != NUMBER:
                        break
                    pos += 12
                    table[key] = value
                    plain_numbers += 1
                    words = 0
                else:
                    plain_numbers = 0
                    kind, n = pair(buffer, pos)
                    if kind == STRING:
                        words += 1
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
                    elif kind in (TABLE, TORCH):
                        known = objects.get(n)
                        if known is not None:
                            if type(known) is Function or (type(known) is Table) != (kind == TABLE):
                                break
                            table[key] = known
                            pos += 8
                        else:
                            if n > LAST_INDEX:
                                break
                            if kind == TABLE:
                                (count,) = int_at(buffer, pos + 8)
                                if not 0 <= count <= most:
                                    break
                                pos += 12
                                indices.append(n)
                                objects[n] = table[key] = inner = Table()
                            else:
                                made = self._torch(pos + 8, n, objects, indices)
                                if made is None:
                                    break
                                table[key], inner, count, pos = made
                            if count:
                                key = MISSING
                                left -= 1
                                if left:
                                    outer.append((table, left))
                                table, left = inner, count
                                continue
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

    def torch(self, index: int, objects: dict[int, Value], indices: list[int]) -> tuple[Value, Table, int] | None:
        """Reads a new Torch object of a plain class: itself, a table of it, and how many entries that waits for.

        ``None``, and nothing read, where it takes more thought.
        """
        try:
            made = self._torch(self.pos, index, objects, indices)
        except struct.error:
            return None
        if made is None:
            return None
        value, table, count, self.pos = made
        return value, table, count

    def _torch(
        self, pos: int, index: int, objects: dict[int, Value], indices: list[int]
    ) -> tuple[Value, Table, int, int] | None:
        """Like `torch`, for an object whose class begins at ``pos``; says where it goes on, and does not move there."""
        named = self._class(pos)
        if named is None or named[0].form == "Storage":
            return None
        declared, pos = named
        if declared.form == "Tensor":
            read = self._tensor(pos, index, declared, objects)
            if read is None:
                return None
            tensor, number, pos = read
            indices.append(index)
            objects[index] = tensor
            if number is not None:
                indices.append(number)
                objects[number] = tensor.storage
            return tensor, _NO_TABLE, 0, pos
        kind, number = self.unpack.pair(self.buffer, pos)
        (count,) = self.unpack.integer(self.buffer, pos + 8)
        if kind != TABLE or number in objects or number == index or number > LAST_INDEX:
            return None
        if not 0 <= count <= self.end // 8:
            return None
        indices += index, number
        objects[number] = fields = Table()
        objects[index] = value = Object(declared.typename, fields, version=declared.version)
        return value, fields, count, pos + 12

    def _class(self, pos: int) -> tuple[_Class, int] | None:
        """The class named at ``pos`` and where its name ends."""
        length, version, more = self.unpack.named(self.buffer, pos)
        after: int = pos + 11 + more
        if length != 3 or not 0 < more <= LONG_STRING or after > self.end:
            return None
        declared = _declared(version, self.buffer[pos + 11 : after], self.order, self.long_size)
        return None if declared is None else (declared, after)

    def _tensor(
        self, pos: int, index: int, declared: _Class, objects: dict[int, Value]
    ) -> tuple[Tensor, int | None, int] | None:
        """A tensor whose geometry begins at ``pos``, the number of its storage if that is a new one, and its end."""
        buffer, unpack = self.buffer, self.unpack
        (dims,) = unpack.integer(buffer, pos)
        if not 0 <= dims <= MOST_DIMENSIONS:
            return None
        geometry = unpack.geometry[dims](buffer, pos + 4)
        size, stride, offset = geometry[:dims], geometry[dims:-1], geometry[-1] - 1
        pos += 4 + self.long_size * len(geometry)
        (kind,) = unpack.integer(buffer, pos)
        storage: Value = None
        new: int | None = None
        if kind == TORCH:
            (number,) = unpack.integer(buffer, pos + 4)
            pos += 8
            storage = objects.get(number)
            if storage is None:
                named = self._class(pos)
                if named is None or number == index:
                    return None
                due, pos = named
                (count,) = unpack.long(buffer, pos)
                pos += self.long_size
                if due.form != "Storage" or not 0 <= count <= (self.end - pos) // due.dtype.itemsize:
                    return None
                after = pos + count * due.dtype.itemsize
                storage = Storage(due.typename, Mapped(self.source, due.dtype, ((pos, after),)), version=due.version)
                new, pos = number, after
            if type(storage) is not Storage or storage.typename != declared.storage:
                return None
        elif kind == NIL:
            pos += 4
        else:
            return None
        if dims:
            last, numel = offset, 1
            for n, step in zip(size, stride, strict=True):
                if n <= 0 or not 0 <= step <= PLAIN:
                    return None
                last += (n - 1) * step
                numel *= n
            if offset < 0 or numel > PLAIN or last >= (0 if storage is None else storage.data.count):
                return None
        return Tensor(declared.typename, size, stride, offset, storage, version=declared.version), new, pos

    def _words_with_numbers(self, table: Table, left: int, pos: int) -> tuple[int, int]:
        """Reads entries that have a short string for key and a number for value; how many in a row, and their end."""
        buffer, entry_of, length_at = self.buffer, _word_with_number(self.order), 4 + self._low
        for done in range(left):
            try:
                n = buffer[pos + length_at]
                kind, length, raw, value_kind, value = entry_of[n](buffer, pos)
                if kind != STRING or length != n or value_kind != NUMBER:
                    return done, pos
                table[raw.decode()] = value
            except (struct.error, IndexError):
                return done, pos
            except UnicodeDecodeError:
                table[raw] = value
            pos += 20 + n
        return left, pos

    def _numbered_words(self, table: Table, left: int, pos: int) -> tuple[int, int]:
        """Reads entries that have a number for key and a short string for value; how many in a row, and their end."""
        buffer, pair, tagged, end = self.buffer, self.unpack.pair, self.unpack.tagged, self.end
        for done in range(left):
            try:
                kind, key = tagged(buffer, pos)
                if kind != NUMBER or key != key:
                    return done, pos
                kind, n = pair(buffer, pos + 12)
                after = pos + 20 + n
                if kind != STRING or n > LONG_STRING or after > end:
                    return done, pos
                raw = buffer[pos + 20 : after]
                table[key] = raw.decode()
            except struct.error:
                return done, pos
            except UnicodeDecodeError:
                table[key] = raw
            pos = after
        return left, pos

    def _number_entries(self, table: Table, left: int, start: int) -> int:
        """Reads entries that have a number for key and for value, many at once; how many there were in a row."""
        entry = np.dtype([("kind", "u4"), ("key", "f8"), ("value_kind", "u4"), ("value", "f8")]).newbyteorder(
            self.order
        )
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
