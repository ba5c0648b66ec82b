"""The zip format of ``torch.save``: a pickle, and a member for each storage, whose bytes stay where they are.

Follows PyTorch's ``caffe2/serialize/inline_container.cc`` and ``torch/serialization.py``. Storages and pickles are
stored, not compressed, so each is a stretch of the file; the code of TorchScript programs is deflated, and stays so.
Python's ``zipfile`` reads the directory, and what it says is checked.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import BinaryIO

import numpy as np

from ....errors import FormatError
from ...data import Data, Held, Mapped, Source
from ..pickle.brief import brief
from ..pickle.read import unpickle
from ..pickle.stubs import STORAGE_DTYPE, Global, Storage, Tensor, Value, walk
from .file import File, tensor_made
from .zip_deflated import LARGEST, Deflated, unpacked

HEADER = 30
"""Bytes of a member's own header, before its name."""

DESCRIPTOR = 24
"""Bytes behind a member that may say its checksum and sizes once more."""

FOLDER = 0x10
"""What says, among a member's attributes, that it is a folder."""

END = 22
"""Bytes of the record that ends an archive, before its comment."""


def open_zip(path: str) -> File:
    """The checkpoint in a zip file. Storages are mapped, not read.

    Raises:
        FormatError: it is no zip file that PyTorch wrote, or one that was changed: names twice, members that overlap
            or lie outside, a pickle that makes no sense.
        OSError: the file cannot be read.

    >>> import os, tempfile
    >>> import torch
    >>> from clearstate.formats import pt
    >>> path = os.path.join(tempfile.mkdtemp(), "net.pt")
    >>> torch.save({"model": {"weight": torch.ones(2)}, "rng_state": torch.zeros(8)}, path)
    >>> pt.open_zip(path).root["model"]["weight"].numpy().tolist()
    [1.0, 1.0]
    """
    try:
        return _opened(path, Source.open(path))
    except FormatError as error:
        error.path = path
        raise


def _opened(path: str, source: Source) -> File:
    size = os.path.getsize(path)
    members = dict(_members(path, source, size))
    pickles = [name for name in members if name.endswith("/data.pkl") and name.count("/") == 1]
    if len(pickles) != 1:
        found = "none" if not pickles else f"{len(pickles)}"
        raise FormatError("a member data.pkl in the folder of the archive", found, path=path)
    folder = pickles[0].removesuffix("data.pkl")
    start, stop = _stored(pickles[0], members[pickles[0]], path).runs[0]
    order = _text(members.get(f"{folder}byteorder")) or "little"
    if order != "little":
        place = members[f"{folder}byteorder"].runs[0][0]
        raise FormatError("numbers in little-endian order", f"byteorder {order!r}", offset=place, path=path)
    storages: dict[str, Storage] = {}

    def persistent(pid: Value, at: int) -> Storage:
        return _storage(pid, at, members, folder, path, storages)

    data = source.buffer[start:stop]
    try:
        root, end = unpickle(data, persistent=persistent, made=tensor_made)
    except FormatError as error:
        at = None if error.offset is None else start + error.offset
        raise FormatError(f"{error.expected} in {pickles[0]}", error.found, offset=at, path=path) from None
    if end != len(data):
        raise FormatError(f"the end of {pickles[0]}", f"{len(data) - end} more bytes", offset=start + end, path=path)
    used = {f"{folder}data/{key}" for key in storages} | {pickles[0]}
    records = {
        name.removeprefix(folder): data
        for name, data in members.items()
        if name not in used and name.startswith(folder)
    }
    kind = "PyTorch program (TorchScript)" if "constants.pkl" in records else "PyTorch checkpoint, zip"
    protocol = max(data[1], 2) if data[:1] == b"\x80" else 2
    return File(path, kind, "zip", root, size, protocol, list(storages.values()), records)


def _members(path: str, source: Source, size: int) -> Iterator[tuple[str, Mapped]]:
    """Every member's name, and its bytes as they lie."""
    try:
        with zipfile.ZipFile(path) as archive:
            infos, directory, comment = archive.infolist(), archive.start_dir, archive.comment
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError) as error:
        place = source.buffer.rfind(b"PK\x05\x06")
        at = place if place >= 0 else size
        raise FormatError("a zip archive with its directory at the end", str(error), offset=at, path=path) from None
    names: set[str] = set()
    places: list[tuple[int, int, int, str]] = []
    for info in infos:
        name = info.filename
        if name in names:
            twice = f"{brief(name)} twice"
            raise FormatError("a name once in the archive", twice, offset=max(info.header_offset, 0), path=path)
        names.add(name)
        begin = info.header_offset
        deflated = info.compress_type == zipfile.ZIP_DEFLATED
        if info.flag_bits & 1 or not (deflated or info.compress_type == zipfile.ZIP_STORED):
            otherwise = "it compressed otherwise or encrypted"
            raise FormatError(f"member {brief(name)} stored or deflated", otherwise, offset=max(begin, 0), path=path)
        if info.external_attr & FOLDER and info.file_size:  # PyTorch takes it for one, and gives what was in memory
            raise FormatError(f"bytes of member {brief(name)}", "a folder", offset=max(begin, 0), path=path)
        head = bytes(source.buffer[begin : begin + HEADER]) if 0 <= begin <= size - HEADER else b""
        if head[:4] != b"PK\x03\x04":
            raise FormatError(f"the header of member {brief(name)}", "none", offset=max(begin, 0), path=path)
        start = begin + HEADER + int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")
        stop = start + info.compress_size
        if stop > size or not (deflated or info.compress_size == info.file_size):
            missing = f"only {size - start} more bytes"
            raise FormatError(f"{info.file_size} bytes of member {brief(name)}", missing, offset=start, path=path)
        if deflated and info.file_size > LARGEST:
            most = f"at most {LARGEST} bytes in the deflated member {brief(name)}"
            raise FormatError(most, f"{info.file_size}", offset=start, path=path)
        places.append((begin, stop, DESCRIPTOR if info.flag_bits & 8 else 0, name))
        if deflated:
            yield name, Deflated(source, (start, stop), info.file_size, info.CRC)
        else:
            yield name, Mapped(source, np.dtype("u1"), [(start, stop)])
    end = source.buffer.rfind(b"PK\x05\x06") + END + len(comment)
    try:
        _check_gaps([(0, 0, 0, ""), *sorted(places), (directory, end, 0, ""), (size, size, 0, "")])
    except FormatError as error:
        error.path = path
        raise


def _check_gaps(places: list[tuple[int, int, int, str]]) -> None:
    """That members lie one behind the other, with nothing between: what is there would be lost on writing.

    A member whose checksum was not known when its header was written has it behind its bytes.
    """
    for (_, stop, more, one), (begin, _, _, other) in pairwise(places):
        if begin < stop:
            raise FormatError("members that lie apart", f"{brief(one)} and {brief(other)} overlap", offset=begin)
        if begin > stop + more:
            what = f"{begin - stop} bytes that are in no member of this archive, as where several files are in a row"
            raise FormatError("an archive and nothing else", what, offset=stop)


def _stored(name: str, data: Mapped, path: str) -> Mapped:
    """The bytes of a member with a pickle or a storage in it."""
    if isinstance(data, Deflated):
        raise FormatError(f"member {brief(name)} stored as it is", "it compressed", offset=data.runs[0][0], path=path)
    return data


def _text(data: Data | None) -> str | None:
    return b"".join(unpacked(data))[:64].decode("latin1") if data is not None and data.count <= 64 else None


def _storage(
    pid: Value,
    at: int,
    members: Mapping[str, Mapped],
    folder: str,
    path: str,
    storages: dict[str, Storage],
) -> Storage:
    """The storage that a persistent id names: ``('storage', class, key, location, elements)``."""
    if not (isinstance(pid, tuple) and len(pid) >= 5 and pid[0] == "storage" and isinstance(pid[1], Global)):
        raise FormatError("the id of a storage", brief(pid), offset=at)
    kind, key, location, count = pid[1], pid[2], pid[3], pid[4]
    dtype = STORAGE_DTYPE.get(kind.name)
    if dtype is None or not isinstance(key, str) or type(count) is not int or not isinstance(location, str):
        raise FormatError("a class, key, location and size of a storage", brief(pid), offset=at)
    if key in storages:
        known = storages[key]
        if known.kind != kind:
            raise FormatError(f"storage {key} as {known.kind} again", str(kind), offset=at)
        return known
    name = f"{folder}data/{key}"
    data: Data | None = None
    if name in members:
        data = _stored(name, members[name], path)
    elif location != "meta":
        raise FormatError(f"a member data/{key}", "none", offset=at)
    made = storages[key] = Storage(dtype, key, location, data, kind)
    if data is not None and made.nbytes < count * made.itemsize:
        found = f"{made.nbytes} bytes in data/{key}"
        raise FormatError(f"{count} elements of {dtype} ({count * made.itemsize} bytes)", found, offset=at)
    if made.nbytes % made.itemsize:
        partly = f"{made.nbytes} bytes in data/{key}"
        raise FormatError(f"whole elements of {dtype} ({made.itemsize} bytes each)", partly, offset=at)
    return made


def write_zip(file: File, handle: BinaryIO, *, folder: str = "archive") -> None:
    """Writes a checkpoint as ``torch.save`` does: the pickle, then each storage at a multiple of 64 bytes.

    Args:
        file: what to write: its root, and the records besides.
        handle: an open file, at its beginning.
        folder: the name of the archive's folder.

    >>> import os, tempfile
    >>> import torch
    >>> from clearstate.formats import pt
    >>> path = os.path.join(tempfile.mkdtemp(), "net.pt")
    >>> torch.save({"model": {"weight": torch.ones(2)}, "rng_state": torch.zeros(8)}, path)
    >>> file = pt.open_zip(path)
    >>> with open(f"{path}.new", "wb") as handle:
    ...     pt.write_zip(file, handle)
    >>> torch.load(f"{path}.new", weights_only=True)["model"]["weight"]
    tensor([1., 1.])
    """
    from .zip_writing import write_members

    write_members(handle, _contents(file, folder))


def written_size(file: File, folder: str = "archive") -> int:
    """Bytes that `write_zip` would write, found out without reading a storage."""
    from .zip_writing import write_members

    return write_members(None, _contents(file, folder))


def _contents(file: File, folder: str) -> Iterator[tuple[str, Data]]:
    """The members of the archive, in PyTorch's order."""
    from ..pickle.write import dumps

    storages = storages_of(file.root)
    keys = {id(storage): str(i) for i, storage in enumerate(storages)}

    def persistent(storage: Storage) -> tuple[Value, ...]:
        return ("storage", storage.kind, keys[id(storage)], storage.location, len(storage))

    pickle = dumps(file.root, protocol=file.protocol, persistent=persistent)
    yield f"{folder}/data.pkl", Held(np.frombuffer(pickle, "u1"))
    before = ("byteorder", ".format_version", ".storage_alignment")
    records = {"byteorder": Held(np.frombuffer(b"little", "u1")), **file.records}
    records.setdefault("version", Held(np.frombuffer(b"3\n", "u1")))
    yield from ((f"{folder}/{name}", records[name]) for name in before if name in records)
    for storage in storages:
        if storage.data is not None:
            yield f"{folder}/data/{keys[id(storage)]}", storage.data
    yield from ((f"{folder}/{name}", data) for name, data in records.items() if name not in before)


def storages_of(root: Value) -> list[Storage]:
    """All storages that tensors of a value see, each once, in the order they are met."""
    found: dict[int, Storage] = {}
    for value in walk(root):
        if isinstance(value, Tensor | Storage):
            storage = value.storage if isinstance(value, Tensor) else value
            found.setdefault(id(storage), storage)
    return list(found.values())
