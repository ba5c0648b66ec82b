"""The safetensors format: a header in JSON that says where each tensor's bytes are, and the bytes behind it.

Nothing in the header is believed before it is checked: it is read by its own grammar, not as JSON of any shape, so it
takes no more memory than its tensors do, and an error has its place. Follows ``safetensors/src/tensor.rs`` and, for
ties, ``safetensors.torch.save_model``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np

from ..errors import ClearstateError, FormatError
from .data import PIECE, Data, Held, Mapped, Source, append, raw_bytes
from .pt.container.file import File
from .pt.pickle.brief import brief
from .pt.pickle.stubs import DTYPE_BYTES, NUMPY, STORAGE_DTYPE, Global, Ordered, Storage, Tensor, is_in_order

LONGEST_HEADER = 100_000_000
"""Bytes that the format allows the header."""

LARGEST = 1 << 60
"""More elements than any tensor has; what PyTorch and NumPy count in stays far from its end."""

MOST_DIMENSIONS = 64

MUCH = 1 << 28
"""Bytes up to which a tensor whose elements repeat is written whole ..."""

MOST_TIMES = 1000
"""... as are more where they are not so many times what is stored."""

METADATA = "__metadata__"
"""The one name in a header that is no tensor's."""

DTYPES: dict[str, str] = {
    "BOOL": "bool",
    "F4": "float4_e2m1fn_x2",
    "U8": "uint8",
    "I8": "int8",
    "F8_E5M2": "float8_e5m2",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E8M0": "float8_e8m0fnu",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "I16": "int16",
    "U16": "uint16",
    "F16": "float16",
    "BF16": "bfloat16",
    "I32": "int32",
    "U32": "uint32",
    "F32": "float32",
    "C64": "complex64",
    "F64": "float64",
    "I64": "int64",
    "U64": "uint64",
}
"""PyTorch's name of each type of the format that it has, in the format's order: the last is written first."""

CODES = {dtype: code for code, dtype in DTYPES.items()}
RANK = {dtype: -rank for rank, dtype in enumerate(DTYPES.values())}
KINDS = {dtype: Global("torch", kind) for kind, dtype in STORAGE_DTYPE.items() if kind != "UntypedStorage"}


def open_safetensors(path: str) -> File:
    """The tensors of a safetensors file, by name. Their bytes are mapped, not read.

    Types that have no storage class in PyTorch (float8, unsigned integers) are bytes that the tensor gives a type,
    as ``torch.save`` writes them.

    Raises:
        FormatError: the file is not whole, its header makes no sense, or tensors overlap or leave holes; says where.
        OSError: the file cannot be read.

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "x.safetensors")
    >>> head = b'{"w":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}'
    >>> _ = path.write_bytes(len(head).to_bytes(8, "little") + head + bytes([3, 4]))
    >>> open_safetensors(str(path)).root["w"].numpy()
    array([3, 4], dtype=uint8)
    """
    source = Source.open(path)
    try:
        return _opened(path, source)
    except FormatError as error:
        raise FormatError(error.expected, error.found, offset=error.offset, path=path) from None


def _opened(path: str, source: Source) -> File:
    size = len(source.buffer)
    if size < 8:
        raise FormatError("the length of a header (8 bytes)", f"a file of {size} bytes", offset=0)
    length = int.from_bytes(source.buffer[:8], "little")
    if length > LONGEST_HEADER:
        raise FormatError(f"a header of at most {LONGEST_HEADER} bytes", f"one of {length}", offset=0)
    if length > size - 8:
        missing = f"only {size - 8} more bytes ({length - size + 8} bytes are missing)"
        raise FormatError(f"a header of {length} bytes", missing, offset=8)
    try:
        text = source.buffer[8 : 8 + length].decode("utf-8")
    except UnicodeDecodeError as error:
        raise FormatError("text in UTF-8", error.reason, offset=8 + error.start) from None
    header = _Header(text)
    entries, metadata = header.run()
    _check_places(entries, header, 8 + length, size)
    root: dict[str, Tensor] = {}
    for name, entry in entries.items():
        begin, end = (8 + length + place for place in entry.place)
        dtype = DTYPES[entry.code]
        data = Mapped(source, np.dtype("u1"), [(begin, end)])
        root[name] = _tensor(name, dtype, entry.torch_shape(), data)
    storages = [tensor.storage for tensor in root.values()]
    return File(path, "safetensors file", "safetensors", root, size, storages=storages, metadata=metadata)


def _tensor(name: str, dtype: str, shape: tuple[int, ...], data: Data) -> Tensor:
    kind = KINDS.get(dtype)
    stride = tuple(math.prod(max(n, 1) for n in shape[i + 1 :]) for i in range(len(shape)))
    if kind is not None:
        storage = Storage(dtype, name, "cpu", data, kind)
        return Tensor(storage, 0, shape, stride, Global("torch._utils", "_rebuild_tensor_v2"), (False, Ordered()))
    storage = Storage("uint8", name, "cpu", data, Global("torch.storage", "UntypedStorage"))
    rest = (False, Ordered(), Global("torch", dtype))
    return Tensor(storage, 0, shape, stride, Global("torch._utils", "_rebuild_tensor_v3"), rest)


class _Entry:
    """What the header says of a tensor, and where it says so."""

    __slots__ = ("at", "code", "place", "shape")

    def __init__(self, at: int, code: str, shape: list[int], place: list[int]) -> None:
        self.at = at
        self.code = code
        self.shape = shape
        self.place = place

    def torch_shape(self) -> tuple[int, ...]:
        """The shape in PyTorch, where an element of 4 bits is half of one of `float4_e2m1fn_x2`."""
        return (*self.shape[:-1], self.shape[-1] // 2) if self.code == "F4" else tuple(self.shape)

    def nbytes(self) -> int:
        dtype = DTYPES[self.code]
        return math.prod(self.torch_shape()) * int(np.dtype(_unit(dtype)).itemsize)


def _check_places(entries: dict[str, _Entry], header: _Header, start: int, size: int) -> None:
    """That the tensors' bytes lie one behind the other up to the file's end, each as long as its shape says."""
    due, before = 0, ""
    for name, entry in sorted(entries.items(), key=lambda item: item[1].place):
        begin, end = entry.place
        if begin != due:
            what = "a hole" if begin > due else "an overlap"
            after = f"where {brief(before)} ends" if before else "where the data begin"
            raise header.wrong(f"the bytes of {brief(name)} from {due} on, {after}", f"{what}: {begin}", entry.at)
        if end - begin != entry.nbytes():
            shape = "x".join(map(str, entry.shape)) or "one number"
            what = f"{entry.nbytes()} bytes of {brief(name)} ({entry.code}, {shape})"
            raise header.wrong(what, f"{end - begin}", entry.at)
        if start + end > size:
            missing = f"only {max(0, size - start - begin)} more bytes ({start + end - size} bytes are missing)"
            raise FormatError(f"{end - begin} bytes of {brief(name)}", missing, offset=start + begin)
        due, before = end, name
    if start + due != size:
        raise FormatError("the end of the file", f"{size - start - due} more bytes", offset=start + due)


_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"(?:0|[1-9][0-9]{0,18})(?![0-9.eE])")


class _Header:
    """Reads a header by its grammar: an object of tensors, three fields each, and one object of texts."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.pos = 0

    def run(self) -> tuple[dict[str, _Entry], dict[str, str]]:
        entries: dict[str, _Entry] = {}
        metadata: dict[str, str] = {}
        if not self.text.startswith("{"):
            raise self.unexpected("a header that begins with '{'")
        for name, at in self.keys():
            if name == METADATA:
                metadata = {key: self.string("a text") for key, _ in self.keys()}
            else:
                entries[name] = self.entry(name, at)
        self.skip()
        if self.pos != len(self.text):
            raise self.unexpected("nothing but spaces behind the header")
        return entries, metadata

    def entry(self, name: str, at: int) -> _Entry:
        code: str | None = None
        shape: list[int] | None = None
        place: list[int] | None = None
        for key, where in self.keys():
            if key == "dtype":
                code = self.string("the name of a type")
                if code not in DTYPES:
                    raise self.wrong(f"a type of {brief(name)} that PyTorch has", brief(code), where)
            elif key == "shape":
                shape = self.numbers(MOST_DIMENSIONS)
                if math.prod(max(n, 1) for n in shape) >= LARGEST:
                    raise self.wrong(f"a shape of {brief(name)} that memory holds", brief(shape), where)
            elif key == "data_offsets":
                place = self.numbers(2)
                if len(place) != 2 or place[0] > place[1]:
                    raise self.wrong(f"where {brief(name)} begins and ends", brief(place), where)
            else:
                raise self.wrong(f"dtype, shape or data_offsets of {brief(name)}", brief(key), where)
        if code is None or shape is None or place is None:
            lacking = "dtype" if code is None else "shape" if shape is None else "data_offsets"
            raise self.wrong(f"dtype, shape and data_offsets of {brief(name)}", f"no {lacking}", at)
        if code == "F4" and (not shape or shape[-1] % 2):
            raise self.wrong(f"an even number of 4-bit elements in the rows of {brief(name)}", brief(shape), at)
        return _Entry(at, code, shape, place)

    def keys(self) -> Iterator[tuple[str, int]]:
        """An object's keys, and where they are; the reader of its value has its turn before the next."""
        self.need("{")
        met: set[str] = set()
        while not (not met and self.take("}")):
            self.skip()
            at = self.pos
            key = self.string("a name")
            if key in met:
                raise self.wrong("each name once", f"{brief(key)} twice", at)
            met.add(key)
            self.need(":")
            yield key, at
            if self.take("}"):
                return
            self.need(",")

    def numbers(self, most: int) -> list[int]:
        self.need("[")
        found: list[int] = []
        while not (not found and self.take("]")):
            self.skip()
            match = _NUMBER.match(self.text, self.pos)
            if match is None:
                raise self.unexpected("a whole number from 0 on")
            if len(found) == most:
                raise self.unexpected(f"at most {most} numbers")
            found.append(int(match[0]))
            self.pos = match.end()
            if self.take("]"):
                break
            self.need(",")
        return found

    def string(self, what: str) -> str:
        self.skip()
        begin = self.pos
        if not self.text.startswith('"', begin):
            raise self.unexpected(f"{what} in quotes")
        end = begin
        while True:
            end = self.text.find('"', end + 1)
            if end < 0:
                raise self.wrong(f"{what} in quotes", "no end of it", begin)
            slashes = end
            while self.text[slashes - 1] == "\\":
                slashes -= 1
            if (end - slashes) % 2 == 0:
                break
        try:
            value: str = json.loads(self.text[begin : end + 1])
            value.encode("utf-8")
        except ValueError as error:
            raise self.wrong(f"{what} in quotes", str(error)[:80], begin) from None
        self.pos = end + 1
        return value

    def skip(self) -> None:
        match = _SPACE.match(self.text, self.pos)
        self.pos = match.end() if match else self.pos

    def take(self, sign: str) -> bool:
        self.skip()
        there = self.text.startswith(sign, self.pos)
        self.pos += there
        return there

    def need(self, sign: str) -> None:
        if not self.take(sign):
            raise self.unexpected(f"{sign!r} in the header")

    def unexpected(self, expected: str) -> FormatError:
        rest = self.text[self.pos : self.pos + 20]
        return self.wrong(expected, repr(rest) if rest else "the end of the header", self.pos)

    def wrong(self, expected: str, found: str, at: int) -> FormatError:
        return FormatError(expected, found, offset=8 + len(self.text[:at].encode()))


def write_safetensors(
    tensors: Mapping[str, Tensor], handle: BinaryIO, metadata: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Writes tensors as the reference implementation does, byte for byte: by type, then by name, without gaps.

    What lies scattered is gathered, 8 MB at a time. Tensors that see the same memory in the same order are
    written once, under the first of their names; the others stand in the metadata, where
    ``safetensors.torch.save_model`` has them. Tensors that share memory otherwise are each written whole.

    Args:
        tensors: what to write, by name.
        handle: an open file, at its beginning.
        metadata: texts to keep with them; where there are none, the header says nothing of them.

    Returns:
        Names that were not written, each with the one that stands for it.

    Raises:
        ClearstateError: a tensor has no data, or a type or a name that the format has no place for.

    >>> import io
    >>> write_safetensors({}, file := io.BytesIO())
    {}
    >>> file.getvalue()
    b'\\x08\\x00\\x00\\x00\\x00\\x00\\x00\\x00{}      '
    """
    order, header, tied = _planned(tensors, metadata)
    handle.write(header)
    for name in order:
        _write_numbers(tensors[name], handle)
    return tied


def safetensors_size(tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> int:
    """Bytes that `write_safetensors` would write; raises what it would.

    >>> safetensors_size({})
    16
    """
    order, header, _ = _planned(tensors, metadata)
    return len(header) + sum(tensors[name].nbytes for name in order)


def _planned(
    tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None
) -> tuple[list[str], bytes, dict[str, str]]:
    """The names to write in their order, the header before them, and the names that others stand for."""
    for name, tensor in tensors.items():
        _check_writable(name, tensor)
    tied = ties(tensors)
    given = dict(metadata or {})
    texts = {**given, **tied, **given}
    order = sorted(tensors.keys() - tied.keys(), key=lambda name: (RANK[tensors[name].dtype], name))
    header: dict[str, Any] = {METADATA: texts} if texts else {}
    end = 0
    for name in order:
        tensor = tensors[name]
        begin, end = end, end + tensor.nbytes
        double = tensor.dtype == "float4_e2m1fn_x2"
        shape = [*tensor.size[:-1], tensor.size[-1] * 2] if double else list(tensor.size)
        header[name] = {"dtype": CODES[tensor.dtype], "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)
    if len(text) > LONGEST_HEADER:
        raise ClearstateError(f"the names of these tensors take {len(text)} bytes; safetensors allows {LONGEST_HEADER}")
    return order, len(text).to_bytes(8, "little") + text, tied


def _check_writable(name: str, tensor: Tensor) -> None:
    if not isinstance(name, str) or name == METADATA or re.search("[\ud800-\udfff]", name):
        raise ClearstateError(f"safetensors has no place for a tensor under the name {brief(name)}")
    if tensor.dtype not in CODES or (tensor.dtype == "float4_e2m1fn_x2" and not tensor.size):
        raise ClearstateError(f"{name} is {tensor.dtype}, a type that safetensors does not have")
    if tensor.nbytes > MUCH and tensor.nbytes > MOST_TIMES * tensor.storage.nbytes:
        times = f"its {tensor.storage.nbytes} bytes repeat until they are {tensor.nbytes}"
        raise ClearstateError(f"{name}: {times}, and safetensors holds each element; --drop '*{name}' leaves it out")
    if tensor.storage.data is None:
        raise ClearstateError(f"{name} has no data (it was on the meta device): there is nothing to write")


def ties(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Names of tensors that see the same memory as another, in the same order, with the first name of those that do.

    >>> ties({})
    {}
    """
    groups: dict[Any, list[str]] = {}
    for name, tensor in tensors.items():
        if tensor.numel:
            groups.setdefault(_memory(tensor), []).append(name)
    return {name: min(names) for names in groups.values() for name in sorted(names) if name != min(names)}


def _memory(tensor: Tensor) -> Any:
    """What is the same for tensors that see the same memory in the same order."""
    start = tensor.offset * tensor.itemsize
    where = (id(tensor.storage), start, tensor.nbytes, *_signs(tensor))
    return where if is_in_order(tensor) else (*where, tensor.dtype, tensor.size, tensor.stride)


def _signs(tensor: Tensor) -> tuple[bool, bool]:
    """Whether PyTorch sees the elements conjugated, and whether negated: views that only say so."""
    rest = tensor.rest[3:] if tensor.maker.name == "_rebuild_tensor_v3" else tensor.rest[2:]
    said = rest[0] if rest and isinstance(rest[0], dict) else {}
    return bool(said.get("conj")), bool(said.get("neg"))


def _write_numbers(tensor: Tensor, handle: BinaryIO) -> None:
    if not tensor.numel:
        return
    conjugated, negated = _signs(tensor)
    reach = sum((n - 1) * s for n, s in zip(tensor.size, tensor.stride, strict=True))
    start = tensor.offset * tensor.itemsize
    data = _stretch(tensor.storage.data, start, start + (reach + 1) * tensor.itemsize)
    if is_in_order(tensor) and not conjugated and not negated:
        append(data, handle)
        return
    flat = data.array().view(_unit(tensor.dtype))
    view = np.lib.stride_tricks.as_strided(
        flat, tensor.size, [s * flat.itemsize for s in tensor.stride], writeable=False
    )
    for part in _gathered(view):
        values = np.conjugate(part) if conjugated else part
        handle.write(raw_bytes(np.negative(values) if negated else values))


def _unit(dtype: str) -> str:
    """NumPy's type for the elements; for what it has not, unsigned integers as wide."""
    return NUMPY.get(dtype, f"u{DTYPE_BYTES[dtype]}")


def _stretch(data: Data | None, start: int, stop: int) -> Data:
    """The bytes from ``start`` to ``stop``; where they are in a file, they stay there."""
    if not isinstance(data, Mapped):
        assert data is not None
        return Held(data.array().view("u1")[start:stop])
    runs = []
    for begin, end in data.runs:
        first, last = begin + max(start, 0), min(begin + stop, end)
        if first < last:
            runs.append((first, last))
        start, stop = start - (end - begin), stop - (end - begin)
    return Mapped(data.source, np.dtype("u1"), runs)


def _gathered(view: np.ndarray[Any, Any]) -> Iterator[np.ndarray[Any, Any]]:
    """The elements in their order, in flat arrays of at most `PIECE` bytes."""
    if view.nbytes <= PIECE:
        yield np.ascontiguousarray(view).reshape(-1)
        return
    rows = PIECE * len(view) // view.nbytes
    for i in range(0, len(view), max(rows, 1)):
        yield from _gathered(view[i : i + rows] if rows else view[i])
