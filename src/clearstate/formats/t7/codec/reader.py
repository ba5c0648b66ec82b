"""Reads a Torch7 file into an object graph: any variant, without running, trusting or copying anything.

The graph is built with a stack of our own, never Python's; a container is put in its place as soon as
its head is read, so a cycle is no special case.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Protocol

import numpy as np

from ....errors import FormatError, WrongFormat
from ...data import Data, Source
from ...garbage import uncollected
from ...geometry import MOST_DIMENSIONS, Misfit, by, misfit, negative
from .ascii import AsciiDecoder
from .binary import MISSING, BinaryDecoder, Progress, kind_name, text
from .bulk import BulkDecoder
from .layout import BOOLEAN, FUNCTION, LEGACY_FUNCTION, NIL, NUMBER, OLD_FUNCTION, STRING, TABLE, TORCH, Layout
from .objects import (
    Boolean,
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
    view_of,
)

GENERATOR_BYTES = {8: 5048, 4: 2544}
"""Size of ``THGenerator`` by the size of the writing machine's long."""

SHOWN = 256
"""Bytes of a file's start that tell an old layout."""

_ASCII = re.compile(rb"\s*[0-8]\s")
_VERSION = re.compile(rb"V (0|[1-9][0-9]{0,8})")


@dataclass(frozen=True, slots=True)
class File:
    """An opened Torch7 file: its root value, its layout, and its size in bytes.

    >>> import tempfile
    >>> from clearstate.formats import t7
    >>> path = os.path.join(tempfile.mkdtemp(), "x.t7")
    >>> t7.save(t7.Table(epoch=3), path)
    >>> file = t7.open_file(path)
    >>> type(file).__name__, file.size == os.path.getsize(path)
    ('File', True)
    """

    root: Value
    layout: Layout
    size: int
    path: str | None = None


def load(path: str | os.PathLike[str], *, long_size: Literal[4, 8] | None = None) -> Value:
    """The root value of a Torch7 file. Tensor data stays in the file, which is mapped.

    Args:
        path: a ``.t7`` file of any variant.
        long_size: bytes of a C ``long`` on the machine that wrote it; found out unless given.

    Raises:
        FormatError: the file is not a whole Torch7 file; says where and what is due there.
        OSError: the file cannot be opened.

    >>> import tempfile, os
    >>> from clearstate.formats import t7
    >>> path = os.path.join(tempfile.mkdtemp(), "x.t7")
    >>> t7.save(t7.Table(epoch=3), path)
    >>> t7.load(path)["epoch"]
    3.0
    """
    return open_file(path, long_size=long_size).root


def open_file(path: str | os.PathLike[str], *, long_size: Literal[4, 8] | None = None) -> File:
    """Like `load`, with the file's layout beside the root: what `save` needs to write it back unchanged.

    >>> import tempfile
    >>> from clearstate.formats import t7
    >>> path = os.path.join(tempfile.mkdtemp(), "x.t7")
    >>> t7.save(t7.Table(epoch=3), path, t7.Layout("ascii"))
    >>> t7.open_file(path).layout.mode
    'ascii'
    """
    name = os.fspath(path)
    source = Source.open(name)
    try:
        root, layout = _decode(source, long_size)
    except FormatError as error:
        error.path = name
        raise
    return File(root, layout, len(source.buffer), name)


def loads(data: bytes, *, long_size: Literal[4, 8] | None = None) -> Value:
    """The root value of a Torch7 file's bytes, as ``torch.deserialize`` reads them.

    >>> loads(bytes.fromhex("01000000 000000000000f03f"))
    1.0
    """
    return _decode(Source(data), long_size)[0]


def _decode(source: Source, long_size: Literal[4, 8] | None) -> tuple[Value, Layout]:
    head = bytes(source.buffer[:4])
    if len(head) == 0:
        raise FormatError("a Torch7 file", "an empty file", offset=0)
    if _ASCII.match(head):
        return _read(AsciiDecoder(source))
    if len(head) < 4:
        raise FormatError("a type number (4 bytes)", f"only {len(head)} bytes", offset=0)
    byteorder: Literal["little", "big"] = "little" if (head[3] == 0 and head[0]) or not any(head) else "big"
    sizes: tuple[Literal[4, 8], ...] = (8, 4) if long_size is None else (long_size,)
    failures: list[tuple[int, FormatError]] = []
    for size in sizes:
        decoder = BulkDecoder(source, size, byteorder)
        try:
            return _read(decoder)
        except FormatError as error:
            failures.append((max(decoder.pos, error.offset or 0), error))
    named = next((error for _, error in failures if isinstance(error, WrongFormat)), None)
    raise named or max(failures, key=lambda failure: failure[0])[1]  # of two ways, the one that made sense for longer


def _read(decoder: BulkDecoder | AsciiDecoder) -> tuple[Value, Layout]:
    reader = _Reader(decoder)
    try:
        return reader.read()
    except FormatError as error:
        from .before_2012 import named

        head = bytes(decoder.buffer[:SHOWN])
        raise named(error, head, reader.objects.values(), not reader.stack) from None


@lru_cache
def _binary_layout(long_size: Literal[4, 8], byteorder: Literal["little", "big"]) -> Layout:
    return Layout("binary", long_size, byteorder)


class Decoder(Protocol):
    """What the two variants have in common; `BulkDecoder` and `AsciiDecoder` say what each call reads."""

    pos: int
    end: int
    smallest_value: int

    def integer(self, expected: str) -> int: ...
    def long(self, expected: str) -> int: ...
    def longs(self, count: int, expected: str) -> tuple[int, ...]: ...
    def double(self) -> float: ...
    def raw(self, count: int, expected: str) -> bytes: ...
    def string(self, expected: str) -> bytes: ...
    def numbers(self, dtype: np.dtype[Any], count: int, expected: str) -> Data: ...
    def finish(self) -> bytes: ...
    def entries(self, table: Table, left: int, objects: dict[int, Value], indices: list[int]) -> Progress: ...
    def torch(self, index: int, objects: dict[int, Value], indices: list[int]) -> tuple[Value, Table, int] | None: ...


class _Frame:
    """A container of which ``left`` values are still to be read; ``step`` reads the next.

    A step counts down before it opens a value, since that may put a frame on top of its own.
    """

    __slots__ = ("key", "left", "step", "target")

    def __init__(self, step: Callable[[_Frame], None], target: Value, left: int = 1) -> None:
        self.step = step
        self.target = target
        self.left = left
        self.key: Value = MISSING


class _Reader:
    def __init__(self, decoder: BulkDecoder | AsciiDecoder) -> None:
        self.decoder: Any = decoder
        self.objects: dict[int, Value] = {}
        self.indices: list[int] = []
        self.stack: list[_Frame] = []

    def read(self) -> tuple[Value, Layout]:
        """The root value and the layout it was written in."""
        with uncollected():
            root = self.value()
            stack = self.stack
            while stack:
                frame = stack[-1]
                if frame.left:
                    frame.step(frame)
                else:
                    stack.pop()
        return root, self._layout(self.decoder.finish())

    def _layout(self, trailing: bytes) -> Layout:
        count = len(self.indices)
        indices = None if self.indices == list(range(1, count + 1)) else tuple(self.indices)
        decoder = self.decoder
        if isinstance(decoder, AsciiDecoder):
            return Layout("ascii", indices=indices, trailing=trailing)
        if indices is None:
            return _binary_layout(decoder.long_size, decoder.byteorder)
        return Layout("binary", decoder.long_size, decoder.byteorder, indices=indices)

    def value(self) -> Value:
        """The next value. A container comes back empty, with a frame on the stack that will fill it."""
        decoder = self.decoder
        at = decoder.pos
        kind = decoder.integer("a type number")
        if kind == NUMBER:
            return decoder.double()
        if kind == STRING:
            return text(decoder.string("a string"))
        if kind in (TABLE, TORCH, FUNCTION, LEGACY_FUNCTION):
            return self._shared(kind, at)
        if kind == NIL:
            return None
        if kind == BOOLEAN:
            number = decoder.integer("a boolean")
            if number not in (0, 1):
                raise FormatError("a boolean (0 or 1)", str(number), offset=at + 4)
            return number == 1
        if kind == OLD_FUNCTION:
            return self._function(kind)
        raise FormatError("a type number from 0 to 8", str(kind), offset=at)

    def _shared(self, kind: int, at: int) -> Value:
        index = self.decoder.integer("the number of an object")
        value: Value
        known = self.objects.get(index, MISSING)
        if known is not MISSING:
            if _kind_of(known) != (FUNCTION if kind == LEGACY_FUNCTION else kind):
                found = f"a reference to {kind_name(kind)} numbered {index}, which is not one"
                raise FormatError("a reference to an object of its own kind", found, offset=at)
            return known
        if kind == TORCH and (made := self.decoder.torch(index, self.objects, self.indices)) is not None:
            value, table, count = made
            if count:
                self.stack.append(_Frame(self._fill_table, table, count))
            return value
        self.indices.append(index)
        if kind == TABLE:
            value = self._table()
        elif kind == TORCH:
            value = self._torch()
        else:
            value = self._function(kind)
        self.objects[index] = value
        return value

    def _table(self) -> Table:
        table = Table()
        count = self._count("entries of a table", 2)
        if count:
            self.stack.append(_Frame(self._fill_table, table, count))
        return table

    def _count(self, what: str, values_each: int, *, long: bool = False) -> int:
        decoder = self.decoder
        at = decoder.pos
        count: int = decoder.long(f"the number of {what}") if long else decoder.integer(f"the number of {what}")
        most = (decoder.end - decoder.pos) // (values_each * decoder.smallest_value)
        if not 0 <= count <= most:
            raise FormatError(
                f"the number of {what} (at most {most} fit in the rest of the file)", str(count), offset=at
            )
        return count

    def _fill_table(self, frame: _Frame) -> None:
        if frame.key is MISSING:
            open_tables, key = self.decoder.entries(frame.target, frame.left, self.objects, self.indices)
            frame.left = 0
            for table, left in open_tables:
                if table is frame.target:
                    frame.left = left
                else:
                    frame = _Frame(self._fill_table, table, left)
                    self.stack.append(frame)
            if not frame.left:
                return
            frame.key = key
            if key is MISSING:
                at = self.decoder.pos
                key = self.value()
                if key is None or key != key:
                    found = "nil" if key is None else "a number that is none (NaN)"
                    raise FormatError("the key of a table entry", found, offset=at)
                frame.key = Boolean(key) if type(key) is bool else key
                if self.stack[-1] is not frame:
                    return
        key, frame.key = frame.key, MISSING
        frame.left -= 1
        frame.target[key] = self.value()

    def _torch(self) -> Value:
        decoder = self.decoder
        at = decoder.pos
        name = decoder.string("a class name or version")
        version: int | None = None
        if match := _VERSION.fullmatch(name):
            version = int(match[1])
            at = decoder.pos
            name = decoder.string("a class name")
        try:
            typename = name.decode()
        except UnicodeDecodeError:
            raise FormatError("a class name", f"bytes that are no text: {name[:40]!r}", offset=at) from None
        numeric = numeric_class(typename)
        if numeric is None:
            target = Object(typename, version=version)
            payload = _PAYLOADS.get(typename)
            if payload is not None:
                payload(self, target)
            elif has_header(typename, version):
                self.stack.append(_Frame(self._fill_headed, target, 2))
            else:
                self.stack.append(_Frame(self._fill_object, target))
            return target
        return self._tensor(typename, version) if numeric[1] == "Tensor" else self._storage(typename, version)

    def _fill_object(self, frame: _Frame) -> None:
        frame.left = 0
        frame.target.state = self.value()

    def _fill_headed(self, frame: _Frame) -> None:
        frame.left -= 1
        value = self.value()
        if frame.left:
            frame.target.header = value
        else:
            frame.target.state = value

    def _generator(self, target: Object) -> None:
        decoder = self.decoder
        long_size = 8
        if isinstance(decoder, BinaryDecoder) and decoder.long_size == 4 and not _plausible_generator(decoder):
            long_size = 4
        target.state = decoder.raw(GENERATOR_BYTES[long_size], "a torch.Generator")

    def _timer(self, target: Object) -> None:
        target.state = b""

    def _vec(self, target: Object) -> None:
        count = self._count("elements of a tds.Vec", 1, long=True)
        target.state = []
        if count:
            self.stack.append(_Frame(self._fill_list, target.state, count))

    def _fill_list(self, frame: _Frame) -> None:
        frame.left -= 1
        frame.target.append(self.value())

    def _hash(self, target: Object) -> None:
        count = self._count("entries of a tds.Hash", 2, long=True)
        target.state = Table()
        if count:
            self.stack.append(_Frame(self._fill_table, target.state, count))

    def _function(self, kind: int) -> Function:
        function = Function(self.decoder.string("a function's bytecode"), kind=kind)
        self.stack.append(_Frame(self._fill_function, function))
        return function

    def _fill_function(self, frame: _Frame) -> None:
        frame.left = 0
        frame.target.upvalues = self.value()

    def _storage(self, typename: str, version: int | None) -> Storage:
        decoder = self.decoder
        at = decoder.pos
        count = decoder.long(f"the size of a {typename}")
        if count < 0:
            raise FormatError(f"the size of a {typename}", str(count), offset=at)
        data = decoder.numbers(element_type(typename), count, f"{count} elements of a {typename}")
        return Storage(typename, data, version=version)

    def _tensor(self, typename: str, version: int | None) -> Tensor:
        decoder = self.decoder
        at = decoder.pos
        dims = decoder.integer("the number of dimensions of a tensor")
        if not 0 <= dims <= MOST_DIMENSIONS:
            raise FormatError("the number of dimensions of a tensor", str(dims), offset=at)
        begins = [decoder.pos]
        size = decoder.longs(dims, "the sizes of a tensor")
        begins.append(decoder.pos)
        stride = decoder.longs(dims, "the strides of a tensor")
        begins.append(decoder.pos)
        offset = decoder.long("the offset of a tensor") - 1
        tensor = Tensor(typename, size, stride, offset, version=version)
        self.stack.append(frame := _Frame(self._fill_tensor, tensor))
        frame.key = begins
        return tensor

    def _fill_tensor(self, frame: _Frame) -> None:
        frame.left = 0
        tensor: Tensor = frame.target
        at = self.decoder.pos
        storage = self.value()
        due = storage_of(tensor.typename)
        if storage is not None and (type(storage) is not Storage or storage.typename != due):
            raise FormatError(f"a {due} or nil", repr(storage), offset=at)
        tensor.storage = storage
        if tensor.numel > 0 and min(tensor.size) > 0:
            first, stop = view_of(tensor).extent
            have = 0 if storage is None else len(storage)
            if first < 0 or stop > have:
                expected = f"a storage that a tensor of {by(tensor.size)} (strides {by(tensor.stride)}) lies in"
                found = f"elements {first} to {stop - 1} of a storage of {have}"
                raise FormatError(expected, found, offset=at)
        wrong = misfit(tensor.size, tensor.stride, tensor.offset, tensor.itemsize)
        if wrong := wrong or negative(tensor.stride, len(tensor.size)):
            raise FormatError(wrong.expected, wrong.found, offset=self._place(wrong, tensor, frame.key))

    def _place(self, wrong: Misfit, tensor: Tensor, begins: list[int]) -> int:
        """Where a size, a stride or an offset stands; in an ascii file, where those of its kind begin."""
        group, number = divmod(wrong.place, max(len(tensor.size), 1))
        width = self.decoder.long_size if isinstance(self.decoder, BinaryDecoder) else 0
        return begins[group] + number * width


_PAYLOADS = {
    "torch.Generator": _Reader._generator,
    "torch.Timer": _Reader._timer,
    "tds.Vec": _Reader._vec,
    "tds.Hash": _Reader._hash,
    "tds_hash": _Reader._hash,
}


def _kind_of(value: Value) -> int:
    if type(value) is Table:
        return TABLE
    return FUNCTION if type(value) is Function else TORCH


def _plausible_generator(decoder: BinaryDecoder) -> bool:
    """Whether the bytes here are a generator of a machine with 8-byte long, whose file has 4-byte longs."""
    if decoder.end - decoder.pos < GENERATOR_BYTES[8]:
        return False
    fields = np.frombuffer(decoder.buffer, f"{decoder.order}i4", 6, decoder.pos).tolist()
    left, seeded, following, high = fields[2:6]
    return 0 <= left <= 624 and seeded in (0, 1) and 0 <= following <= 624 and high == 0
