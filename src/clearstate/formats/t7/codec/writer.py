"""Writes an object graph as a Torch7 file: any variant, numbered and laid out as Torch7's own ``File.lua`` does.

Numbers that are mapped in another file are copied from file to file in large pieces.
"""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from ...data import Array, Counter, Mapped, Text, raw_bytes
from ...garbage import uncollected
from .ascii import Written, number_text, storage_text
from .binary import Order
from .layout import BOOLEAN, NIL, NUMBER, OLD_FUNCTION, STRING, TABLE, TORCH, Layout
from .objects import Boolean, Function, Object, Storage, Table, Tensor, Value, has_header, numeric_class, references

DEFAULT = Layout()


def save(root: Value, path: str | os.PathLike[str], layout: Layout = DEFAULT) -> None:
    """Writes a value as a Torch7 file, whole or not at all.

    The file is written beside ``path`` and renamed once it is on the disk.

    Args:
        root: a `Table`, `Object`, `Tensor`, `Storage`, `Function` or a plain value.
        path: the file to write; one that is there is replaced.
        layout: the variant; that of a file read before writes it back byte for byte.

    Raises:
        TypeError: the graph holds a Python value that Torch7 has no type for.
        ValueError: a number does not fit the variant, or an unreferenced file would never end.
        OSError: the file cannot be written; an old one is left as it was.

    >>> import tempfile, os
    >>> from clearstate.formats import t7
    >>> path = os.path.join(tempfile.mkdtemp(), "x.t7")
    >>> t7.save(t7.Table.of([1, "two"]), path)
    >>> t7.load(path).array()
    [1.0, 'two']
    """
    from ...atomic import replacing

    with replacing(path) as handle:
        write(root, handle, layout)


def dumps(root: Value, layout: Layout = DEFAULT) -> bytes:
    """The bytes of the Torch7 file that `save` would write, as ``torch.serialize`` gives them.

    >>> dumps(True).hex()
    '0500000001000000'
    """
    handle = io.BytesIO()
    write(root, handle, layout)
    return handle.getvalue()


def write(root: Value, handle: BinaryIO, layout: Layout = DEFAULT) -> None:
    """Writes a value to an open binary file; see `save`.

    >>> import io
    >>> handle = io.BytesIO()
    >>> write(1.0, handle)
    >>> handle.getvalue().hex()
    '01000000000000000000f03f'
    """
    encoder = _AsciiEncoder(handle) if layout.mode == "ascii" else _BinaryEncoder(handle, layout)
    with uncollected():
        _Writer(encoder, layout).write(root)
    encoder.raw(layout.trailing)
    encoder.flush()


def written_size(root: Value, layout: Layout = DEFAULT) -> int:
    """Bytes of the Torch7 file that `save` would write; numbers that are mapped are not read.

    >>> written_size(True)
    8
    """
    counter = Counter()
    write(root, counter, layout)
    return counter.count


class _Writer:
    def __init__(self, encoder: _BinaryEncoder | _AsciiEncoder, layout: Layout) -> None:
        self.encoder = encoder
        self.layout = layout
        self.numbers: dict[int, int] = {}
        self.alive: list[Value] = []
        self.count = 0
        self.open: set[int] = set()

    def write(self, root: Value) -> None:
        stack = [iter((root,))]
        owners: list[Value] = [None]
        while stack:
            for value in stack[-1]:
                contents = self.value(value)
                if contents is not None:
                    if not self.layout.referenced:
                        self._enter(value)
                    stack.append(contents)
                    owners.append(value)
                    break
            else:
                stack.pop()
                self.open.discard(id(owners.pop()))

    def _enter(self, value: Value) -> None:
        if id(value) in self.open:
            raise ValueError(f"{value!r} contains itself: an unreferenced file of it would never end")
        self.open.add(id(value))

    def value(self, value: Value) -> Iterator[Value] | None:
        """Writes a value up to its contents, and returns those."""
        put = self.encoder
        kind = type(value)
        if kind is float or kind is Written:
            put.number(value)
        elif kind is int:
            put.number(float(value))
        elif kind is str:
            put.string(value.encode("utf-8"))
        elif kind is bytes:
            put.string(value)
        elif kind is bool:
            put.ints(BOOLEAN, value)
        elif kind is Boolean:
            put.ints(BOOLEAN, value.value)
        elif value is None:
            put.ints(NIL)
        elif kind is Table:
            if self._new(value, TABLE):
                put.ints(len(value))
                return references(value)
        elif kind is Function:
            if value.kind == OLD_FUNCTION:
                put.ints(OLD_FUNCTION)
            elif not self._new(value, value.kind):
                return None
            put.text(value.bytecode)
            return references(value)
        elif kind is Tensor or kind is Storage or kind is Object:
            if self._new(value, TORCH):
                if value.version is not None:
                    put.text(b"V %d" % value.version)
                put.text(value.typename.encode("utf-8"))
                return self._contents(value, kind)
        else:
            raise TypeError(
                f"Torch7 has no type for {kind.__module__}.{kind.__qualname__}: "
                "use clearstate.formats.t7's Table, Object, Tensor, Storage, or a plain number, string or boolean"
            )
        return None

    def _new(self, value: Value, kind: int) -> bool:
        """Writes type and number of a shared object; whether its contents are still to be written."""
        known = self.numbers.get(id(value)) if self.layout.referenced else None
        if known is not None:
            self.encoder.ints(kind, known)
            return False
        indices = self.layout.indices
        number = self.count + 1 if indices is None or self.count >= len(indices) else indices[self.count]
        self.count += 1
        self.numbers[id(value)] = number
        self.alive.append(value)
        self.encoder.ints(kind, number)
        return True

    def _contents(self, value: Value, kind: type) -> Iterator[Value] | None:
        put = self.encoder
        if kind is Tensor:
            put.ints(len(value.size))
            put.longs(value.size)
            put.longs(value.stride)
            put.longs((value.offset + 1,))
            return references(value)
        if kind is Storage:
            put.longs((len(value),))
            put.data(value)
            return None
        state = value.state
        if has_header(value.typename, value.version):
            return references(value)
        if value.typename == "torch.Timer":
            return None
        if value.typename == "torch.Generator":
            put.chars(state)
            return None
        if type(state) is list:
            put.longs((len(state),))
            return iter(state)
        if value.typename in ("tds.Hash", "tds_hash"):
            put.longs((len(state),))
            return references(state)
        return iter((state,))


class _Buffered:
    """Collects small writes; large ones go through at once."""

    def __init__(self, handle: BinaryIO) -> None:
        self.handle = handle
        self.chunks = bytearray()

    def raw(self, data: bytes | memoryview) -> None:
        if len(data) >= 1 << 16:
            self.flush()
            self.handle.write(data)
            return
        self.chunks += data
        if len(self.chunks) >= 1 << 20:
            self.flush()

    def flush(self) -> None:
        self.handle.write(self.chunks)
        self.chunks.clear()


class _BinaryEncoder(_Buffered):
    def __init__(self, handle: BinaryIO, layout: Layout) -> None:
        super().__init__(handle)
        self.order: Order = "<" if layout.byteorder == "little" else ">"
        self.long_size = layout.long_size
        self.long_code = "q" if layout.long_size == 8 else "i"
        self._int = struct.Struct(self.order + "i").pack
        self._pair = struct.Struct(self.order + "ii").pack
        self._number = struct.Struct(self.order + "id").pack

    def ints(self, first: int, second: int | None = None) -> None:
        self.chunks += self._int(first) if second is None else self._pair(first, second)

    def number(self, value: float) -> None:
        self.chunks += self._number(NUMBER, value)

    def string(self, value: bytes) -> None:
        self.chunks += self._pair(STRING, len(value))
        self.raw(value)

    def text(self, value: bytes) -> None:
        self.chunks += self._int(len(value))
        self.raw(value)

    def chars(self, value: bytes) -> None:
        self.raw(value)

    def longs(self, values: tuple[int, ...]) -> None:
        try:
            self.chunks += struct.pack(f"{self.order}{len(values)}{self.long_code}", *values)
        except struct.error:
            raise ValueError(f"{max(values, key=abs)} does not fit a {self.long_size}-byte long") from None

    def data(self, storage: Storage) -> None:
        data = storage.data
        numeric = numeric_class(storage.typename)
        size = self.long_size if numeric and numeric[0] == "Long" else data.dtype.itemsize
        due = data.dtype.newbyteorder("=").newbyteorder(self.order)
        if size != due.itemsize:
            due = np.dtype(f"{self.order}i{size}")
        if isinstance(data, Mapped) and data.dtype == due:
            self.flush()
            data.copy_to(self.handle)
            return
        for piece in data.pieces():
            self.raw(raw_bytes(_fitting(piece, due)))


def _fitting(piece: Array, due: np.dtype[Any]) -> Array:
    converted = np.ascontiguousarray(piece, dtype=due)
    if due.itemsize < piece.dtype.itemsize and not np.array_equal(converted, piece):
        raise ValueError("a LongStorage holds numbers that do not fit a 4-byte long")
    return converted


class _AsciiEncoder(_Buffered):
    def ints(self, first: int, second: int | None = None) -> None:
        self.chunks += b"%d\n" % first if second is None else b"%d\n%d\n" % (first, second)

    def number(self, value: float) -> None:
        text = value.text if type(value) is Written else number_text(value).encode()
        self.chunks += b"%d\n%s\n" % (NUMBER, text)

    def string(self, value: bytes) -> None:
        self.chunks += b"%d\n" % STRING
        self.text(value)

    def text(self, value: bytes) -> None:
        self.chunks += b"%d\n" % len(value)
        self.chars(value)

    def chars(self, value: bytes) -> None:
        if value:
            self.raw(value)
            self.chunks += b"\n"

    def longs(self, values: tuple[int, ...]) -> None:
        self.chars(" ".join(map(str, values)).encode())

    def data(self, storage: Storage) -> None:
        data = storage.data
        if not data.count:
            return
        if isinstance(data, Text):
            self.raw(data.text)
        elif data.dtype.itemsize == 1:
            for piece in data.pieces():
                self.raw(piece.tobytes())
        else:
            for number, piece in enumerate(data.pieces()):
                self.raw((" " if number else "").encode() + storage_text(piece).encode())
        self.chunks += b"\n"
