"""The tar format of ``torch.save`` before PyTorch 0.1.10: tensors and storages in tables of their own, by number.

Follows ``legacy_load`` in PyTorch's ``torch/serialization.py``. A member ``storages`` has the elements, ``tensors`` the
views of them, ``pickle`` the object, in which both are persistent ids. PyTorch has not written it since; what is read
from it is written as a zip file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ....errors import FormatError
from ...data import Mapped, Source
from ..pickle.brief import brief
from ..pickle.read import unpickle
from ..pickle.stubs import STORAGE_DTYPE, Global, Ordered, Storage, Stub, Tensor, Value
from .file import File, tensor_made

BLOCK = 512
"""Bytes of a member's header; its data fill whole blocks."""

MAKER = Global("torch._utils", "_rebuild_tensor_v2")
"""What makes, in files of today, a tensor of the kind that this format has by number."""


def open_tar(path: str) -> File:
    """The checkpoint in a tar file. Storages are mapped, not read.

    Raises:
        FormatError: it is no tar file that PyTorch wrote, or not whole.
        OSError: the file cannot be read.
    """
    source = Source.open(path)
    size = os.path.getsize(path)
    try:
        members: dict[str, tuple[int, int]] = {}
        for name, start, stop in _members(memoryview(source.buffer)[:size]):
            if name in members:
                raise FormatError("a name once in the archive", f"{brief(name)} twice", offset=start)
            members[name] = (start, stop)
        for name in ("storages", "tensors", "pickle"):
            if name not in members:
                raise FormatError(f"a member {name} in the archive", "none")
        tables = _Tables(source, members)
        root = tables.read()
    except FormatError as error:
        error.path = path
        raise
    wholes = [storage for storage in tables.storages.values() if storage.view is None]
    return File(path, "PyTorch checkpoint, tar", "tar", root, size, 2, wholes)


def _members(data: memoryview) -> Iterator[tuple[str, int, int]]:
    """The files in a tar archive: each one's name, and where its bytes begin and end."""
    at, longer = 0, -1
    while at + BLOCK <= len(data) and data[at]:
        head = bytes(data[at : at + BLOCK])
        if head[257:262] != b"ustar":
            raise FormatError("the header of a member of a tar archive", "none", offset=at)
        start, count = at + BLOCK, _octal(head[124:136], at + 124)
        kind = head[156:157]
        if longer >= 0 and kind != b"x":
            count, longer = longer, -1
        name = head[:100].rstrip(b"\0").decode("latin1")
        stop = start + count
        if stop > len(data):
            missing = f"only {len(data) - start} more bytes"
            raise FormatError(f"{count} bytes of member {brief(name)}", missing, offset=start)
        if kind == b"x":
            longer = _extended(bytes(data[start : min(stop, start + 4 * BLOCK)]))
        elif kind in (b"0", b"\0"):
            yield name, start, stop
        at = stop + (-count) % BLOCK


def _octal(text: bytes, at: int) -> int:
    digits = text.rstrip(b" \0")
    if not digits.isdigit() or b"8" in digits or b"9" in digits:
        raise FormatError("the size of a member, in octal digits", brief(text), offset=at)
    return int(digits, 8)


def _extended(text: bytes) -> int:
    """The size that an extended header gives to the member after it, or -1."""
    for line in text.split(b"\n"):
        word, _, value = line.partition(b"=")
        if word.endswith(b" size") and value.isdigit() and len(value) < 20:
            return int(value)
    return -1


@dataclass(slots=True)
class _Tables:
    """Storages and tensors by their numbers, which are in one count."""

    source: Source
    members: dict[str, tuple[int, int]]
    storages: dict[int, Storage] = field(default_factory=dict)
    tensors: dict[int, Tensor] = field(default_factory=dict)

    def read(self) -> Value:
        if "sys_info" in self.members:
            machine, _ = self.value(*self.members["sys_info"])
            if isinstance(machine, dict) and machine.get("little_endian") is False:
                begin = self.members["sys_info"][0]
                raise FormatError("numbers in little-endian order", "those of a big-endian machine", offset=begin)
        self.read_storages(*self.members["storages"])
        self.read_tensors(*self.members["tensors"])
        root, _ = self.value(*self.members["pickle"], whole=True, persistent=self.persistent, made=tensor_made)
        return root

    def value(self, at: int, stop: int, *, whole: bool = False, **how: Any) -> tuple[Value, int]:
        value, end = unpickle(memoryview(self.source.buffer)[:stop], at, **how)
        if whole and end != stop:
            raise FormatError("the end of a member after its pickle", f"{stop - end} more bytes", offset=end)
        return value, end

    def count(self, at: int, stop: int) -> tuple[int, int]:
        value, end = self.value(at, stop)
        if type(value) is not int or value < 0:
            raise FormatError("how many there are", brief(value), offset=at)
        return value, end

    def number(self, at: int, stop: int) -> int:
        if stop - at < 8:
            raise FormatError("a number of 8 bytes", f"only {stop - at} more bytes", offset=at)
        return int.from_bytes(self.source.buffer[at : at + 8], "little", signed=True)

    def read_storages(self, at: int, stop: int) -> None:
        count, at = self.count(at, stop)
        for _ in range(count):
            begin = at
            value, at = self.value(at, stop)
            key, location, kind = value if type(value) is tuple and len(value) == 3 else (None, None, None)
            dtype = STORAGE_DTYPE.get(kind.name) if isinstance(kind, Global) else None
            if type(key) is not int or type(location) is not str or dtype is None or not isinstance(kind, Global):
                raise FormatError("a number, location and class of a storage", brief(value), offset=begin)
            if key in self.storages:
                raise FormatError("a number once", f"storage {key} twice", offset=begin)
            made = self.storages[key] = Storage(dtype, str(key), location, None, kind)
            elements, start = self.number(at, stop), at + 8
            at = start + elements * made.itemsize
            if elements < 0 or at > stop:
                found = f"only {stop - start} more bytes"
                raise FormatError(f"{elements} elements of storage {key}", found, offset=start)
            made.data = Mapped(self.source, np.dtype("u1"), [(start, at)])
        begin = at
        views, at = self.value(at, stop, whole=True)
        if not isinstance(views, list):
            raise FormatError("the list of storages that are parts of others", brief(views), offset=begin)
        for view in views:
            self.read_view(view, begin)

    def read_view(self, view: Value, at: int) -> None:
        """A part of a storage that goes by a number of its own: ``(number, storage, first element, elements)``."""
        if type(view) is not tuple or len(view) != 4 or not all(type(n) is int for n in view):
            raise FormatError("two numbers, a first element and a size of a part of a storage", brief(view), offset=at)
        key, root, first, count = view
        whole = self.storages.get(root)
        if whole is None or not isinstance(whole.data, Mapped) or not 0 <= first <= first + count <= len(whole):
            raise FormatError("a part of a storage that there is", brief(view), offset=at)
        if whole.view is not None:
            whole, begin = whole.view
            first += begin
        assert isinstance(whole.data, Mapped)
        start, size = whole.data.runs[0][0] + first * whole.itemsize, count * whole.itemsize
        data = Mapped(self.source, np.dtype("u1"), [(start, start + size)])
        self.storages[key] = Storage(whole.dtype, str(key), whole.location, data, whole.kind, (whole, first))

    def read_tensors(self, at: int, stop: int) -> None:
        count, at = self.count(at, stop)
        for _ in range(count):
            begin = at
            value, at = self.value(at, stop)
            key, of, _kind = value if type(value) is tuple and len(value) == 3 else (None, None, None)
            storage = self.storages.get(of) if type(of) is int else None
            if type(key) is not int or storage is None:
                raise FormatError("a number of a tensor and one of a storage", brief(value), offset=begin)
            dimensions = self.number(at, stop) & 0xFFFFFFFF
            if dimensions > (stop - at) // 16:
                raise FormatError("sizes and strides", f"{dimensions} dimensions", offset=at)
            numbers = [self.number(place, stop) for place in range(at + 8, at + 16 + 16 * dimensions, 8)]
            at += 16 + 16 * dimensions
            size, stride = tuple(numbers[:dimensions]), tuple(numbers[dimensions:-1])
            stub = Stub("reduce", MAKER, (storage, numbers[-1], size, stride, False, Ordered()))
            try:
                tensor = tensor_made(stub)
            except FormatError as error:
                error.offset = begin
                raise
            self.tensors[key] = tensor
        if at != stop:
            raise FormatError("the end of member tensors", f"{stop - at} more bytes", offset=at)

    def persistent(self, pid: Value, at: int) -> Value:
        """A class with its source code, or the number of a tensor or a storage."""
        if type(pid) is tuple and len(pid) == 3 and isinstance(pid[0], Global):
            return pid[0]
        if type(pid) is str and pid.isdigit() and len(pid) < 30:
            pid = int(pid)
        if type(pid) is int and pid in self.tensors:
            return self.tensors[pid]
        if type(pid) is int and pid in self.storages:
            return self.storages[pid]
        raise FormatError("the number of a tensor or a storage, or a class", brief(pid), offset=at)
