"""The stream format of ``torch.save`` before PyTorch 1.6, and plain pickles: everything in a row in one file.

A stream is five pickles (a magic number, a version, the machine, the object, the storages' keys), then a count and the
raw elements of each storage. Follows ``_legacy_save`` and ``_legacy_load`` of PyTorch's ``torch/serialization.py``. A
tensor in a plain pickle is a stream of its own, inside bytes that ``torch.storage._load_from_bytes`` is called with.
"""

from __future__ import annotations

import io
import os
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np

from ....errors import FormatError
from ...data import Counter, Mapped, Source, append
from ..pickle.brief import brief
from ..pickle.read import unpickle
from ..pickle.stubs import STORAGE_DTYPE, Global, Storage, Stub, Value, bytes_in
from ..pickle.write import dumps
from .file import File, tensor_made
from .zip import storages_of

MAGIC = 0x1950A86A20F9469CFC6C
"""What a stream begins with, as a pickle of its own."""

VERSION = 1001
"""The only version of the stream there ever was."""

MACHINE = {
    "protocol_version": VERSION,
    "little_endian": True,
    "type_sizes": {"short": 2, "int": 4, "long": 4},
}
"""What a stream says of the machine that wrote it."""

FROM_BYTES = Global("torch.storage", "_load_from_bytes")
"""What makes a storage of the bytes that a plain pickle holds."""


BYTES = Global("torch", "ByteStorage")
"""What a storage without a type is written as: ``torch.load`` reads no stream that has one, though it writes them."""


def is_stream(data: bytes | memoryview) -> bool:
    """Whether bytes begin as PyTorch's stream format does, in a pickle of whatever protocol.

    >>> is_stream(dumps(MAGIC, protocol=2)), is_stream(dumps({}, protocol=2))
    (True, False)
    """
    try:
        return bool(unpickle(bytes(data[:64]))[0] == MAGIC)
    except FormatError:
        return False


def open_legacy(path: str) -> File:
    """The checkpoint in a stream (layout ``legacy``), or what a plain pickle holds (layout ``pickle``).

    Storages of a stream are mapped, not read.

    Raises:
        FormatError: it is neither, or not whole.
        OSError: the file cannot be read.
    """
    source = Source.open(path)
    size = os.path.getsize(path)
    try:
        if is_stream(source.buffer[:64]):
            return _stream(path, source, size)
        return _pickle(path, source, size)
    except FormatError as error:
        error.path = path
        raise


def _protocol(data: bytes) -> int:
    return max(2, data[1]) if data[:1] == b"\x80" else 2


def _stream(path: str, source: Source, size: int) -> File:
    reader = Stream(source, size)
    root = reader.read()
    protocol = _protocol(bytes(source.buffer[:2]))
    storages = list(reader.storages.values())
    return File(path, "PyTorch checkpoint, legacy", "legacy", root, size, protocol, storages, sources=reader.sources)


def _pickle(path: str, source: Source, size: int) -> File:
    found: list[Storage] = []

    def made(stub: Stub) -> Value:
        value = tensor_made(stub)
        if value is stub and stub.function == FROM_BYTES:
            value = _within(stub)
            if isinstance(value, Storage):
                found.append(value)
        return value

    root, end = unpickle(source.buffer[:size], made=made)
    if end != size:
        raise FormatError("the end of the file after its pickle", f"{size - end} more bytes", offset=end)
    return File(path, "Python pickle", "pickle", root, size, _protocol(bytes(source.buffer[:2])), found)


def _within(stub: Stub) -> Value:
    """The storage whose stream a call of ``torch.storage._load_from_bytes`` holds; any other call as it is."""
    data = bytes_in(stub.args[0]) if len(stub.args) == 1 else None
    if data is None or not is_stream(data):
        return stub
    root = Stream(Source(data), len(data)).read()
    return root if type(root) is Storage and root.view is None else stub


@dataclass(slots=True)
class Stream:
    """Reads a stream.

    Attributes:
        source: its bytes.
        size: how many there are.
        storages: those met, by key.
        views: parts of them that the stream gives keys of their own.
        sources: classes whose source code the stream holds: the file's name and the text.
    """

    source: Source
    size: int
    storages: dict[str, Storage] = field(default_factory=dict)
    views: dict[str, Storage] = field(default_factory=dict)
    sources: dict[Global, tuple[Value, Value]] = field(default_factory=dict)

    def read(self) -> Value:
        """The object in the stream; its storages are where the stream has their elements.

        Raises:
            FormatError: it is no stream, it is not whole, or a big-endian machine wrote it.
        """
        data = memoryview(self.source.buffer)[: self.size]
        magic, at = unpickle(data)
        if magic != MAGIC:
            raise FormatError("PyTorch's magic number", brief(magic), offset=0)
        version, end = unpickle(data, at)
        if version != VERSION:
            raise FormatError(f"version {VERSION} of the stream format", brief(version), offset=at)
        machine, start = unpickle(data, end)
        if not isinstance(machine, dict) or machine.get("little_endian") is not True:
            big = isinstance(machine, dict) and machine.get("little_endian") is False
            found = "those of a big-endian machine" if big else brief(machine)
            raise FormatError("numbers in little-endian order", found, offset=end)
        root, at = unpickle(data, start, persistent=self.persistent, made=tensor_made)
        keys, end = unpickle(data, at)
        if not isinstance(keys, list) or not all(type(key) is str for key in keys):
            raise FormatError("the list of the storages' keys", brief(keys), offset=at)
        if set(keys) != set(self.storages) or len(keys) != len(self.storages):
            strange = sorted(set(keys) ^ set(self.storages)) or sorted(keys)
            found = f"{len(keys)} keys, among them {strange[0][:40]!r}"
            raise FormatError(f"the keys of the {len(self.storages)} storages that the object has", found, offset=at)
        self.place(keys, end)
        return root

    def place(self, keys: list[str], at: int) -> None:
        """Finds each storage's elements: a count of 8 bytes, and then so many elements."""
        for key in keys:
            storage = self.storages[key]
            due = len(storage)
            if self.size - at < 8:
                raise FormatError(f"the size of storage {key}", f"only {self.size - at} more bytes", offset=at)
            count = int.from_bytes(self.source.buffer[at : at + 8], "little", signed=True)
            if count != due:
                raise FormatError(f"{due} elements of storage {key}", f"a count of {count}", offset=at)
            start, at = at + 8, at + 8 + storage.nbytes
            if at > self.size:
                missing = f"only {self.size - start} more bytes ({at - self.size} bytes are missing)"
                raise FormatError(f"{storage.nbytes} bytes of storage {key}", missing, offset=start)
            storage.data = Mapped(self.source, np.dtype("u1"), [(start, at)])
        if at != self.size:
            raise FormatError("the end of the file after its storages", f"{self.size - at} more bytes", offset=at)
        for part in self.views.values():
            whole, first = part.view
            begin = whole.data.runs[0][0] + first * part.itemsize
            part.data = Mapped(self.source, np.dtype("u1"), [(begin, begin + part.nbytes)])

    def persistent(self, pid: Value, at: int) -> Value:
        """What an id stands for: a class, or a storage: ``('storage', class, key, location, elements, part)``."""
        if isinstance(pid, tuple) and len(pid) == 4 and pid[0] == "module" and isinstance(pid[1], Global):
            self.sources.setdefault(pid[1], (pid[2], pid[3]))
            return pid[1]
        if not (isinstance(pid, tuple) and len(pid) == 6 and pid[0] == "storage" and isinstance(pid[1], Global)):
            raise FormatError("the id of a storage or of a class", brief(pid), offset=at)
        kind, key, location, count, part = pid[1:]
        dtype = STORAGE_DTYPE.get(kind.name)
        if dtype is None or type(key) is not str or type(location) is not str or type(count) is not int or count < 0:
            raise FormatError("a class, key, location and size of a storage", brief(pid), offset=at)
        whole = self.storages.get(key)
        if whole is None:
            whole = self.storages[key] = _due(Storage(dtype, key, location, None, kind), count, self.size, at)
        elif whole.kind != kind and whole.nbytes:
            raise FormatError(f"storage {key} as {whole.kind} again", str(kind), offset=at)
        elif whole.kind != kind:
            return _due(Storage(dtype, key, location, None, kind), 0, self.size, at)
        return whole if part is None else self.part(whole, part, at)

    def part(self, whole: Storage, part: Value, at: int) -> Storage:
        """A part of a storage that goes by a key of its own: ``(key, first element, elements)``."""
        if not (isinstance(part, tuple) and len(part) == 3 and type(part[0]) is str):
            raise FormatError("a key, a first element and a size of a part of a storage", brief(part), offset=at)
        key, first, count = part
        if type(first) is not int or type(count) is not int or not 0 <= first <= first + count <= len(whole):
            found = f"elements {first} and {count} more"[:120]
            raise FormatError(f"a part of the {len(whole)} elements of storage {whole.key}", found, offset=at)
        known = self.views.get(key)
        if known is None:
            known = Storage(whole.dtype, key, whole.location, None, whole.kind, (whole, first))
            self.views[key] = _due(known, count, self.size, at)
        return known


def _due(storage: Storage, count: int, size: int, at: int) -> Storage:
    """A storage that is to have so many elements, which the file has room for; where they are is not known yet."""
    if count * storage.itemsize > size:
        raise FormatError(f"{count} elements of {storage.dtype}", f"a file of {size} bytes", offset=at)
    storage.data = Mapped(Source(b""), np.dtype("u1"), [(0, count * storage.itemsize)])
    return storage


def write_legacy(file: File, handle: BinaryIO) -> None:
    """Writes a checkpoint as a stream, or as a plain pickle where its layout is ``pickle``.

    Args:
        file: what to write: its root, and the source code of classes in it.
        handle: an open file, at its beginning.
    """
    if file.layout == "pickle":
        _write_pickle(file, handle)
    else:
        _write_stream(file.root, file.protocol, handle, dict(file.sources))


def _write_stream(
    root: Value, protocol: int, handle: BinaryIO, sources: dict[Global, tuple[Value, Value]] | None = None
) -> None:
    wholes: dict[int, Storage] = {}
    for storage in storages_of(root):
        whole = storage if storage.view is None else storage.view[0]
        wholes.setdefault(id(whole), whole)
    keys = {number: str(i) for i, number in enumerate(wholes)}

    def persistent(storage: Storage) -> tuple[Value, ...]:
        whole, part = storage, None
        if storage.view is not None:
            whole, first = storage.view
            part = (f"{keys[id(whole)]}:{storage.key}", first, len(storage))
        kind = BYTES if whole.kind.name == "UntypedStorage" else whole.kind
        return ("storage", kind, keys[id(whole)], whole.location, len(whole), part)

    for value in (MAGIC, VERSION, MACHINE):
        handle.write(dumps(value, protocol=protocol))
    handle.write(dumps(root, protocol=protocol, persistent=persistent, sources=sources))
    handle.write(dumps([keys[number] for number in wholes], protocol=protocol))
    for whole in wholes.values():
        handle.write(len(whole).to_bytes(8, "little"))
        if whole.data is not None:
            append(whole.data, handle)


def _write_pickle(file: File, handle: BinaryIO) -> None:
    """A plain pickle: each storage is a call that makes it of a stream's bytes."""

    def stored(storage: Storage) -> Stub:
        stream = io.BytesIO()
        _write_stream(storage, 2, stream)
        return Stub("reduce", FROM_BYTES, (stream.getvalue(),))

    handle.write(dumps(file.root, protocol=file.protocol, stored=stored))


def legacy_size(file: File) -> int:
    """Bytes that `write_legacy` would write, found out without reading a storage."""
    counter = Counter()
    write_legacy(file, counter)
    return counter.count
