"""What a Torch7 file holds: Table, Object, Tensor, Storage, Function, and plain Python values.

Lua's nil, numbers and booleans are ``None``, ``float`` and ``bool``. A Lua string is ``str`` where its
bytes are UTF-8 and ``bytes`` where they are not, so that every string survives a round trip.
Objects compare by identity, as in Lua; sharing in the file is sharing here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import Any, TypeAlias

import numpy as np

from ...coverage import View
from ...data import Data, Held

Value: TypeAlias = Any
"""``None | bool | float | str | bytes | Table | Object | Tensor | Storage | Function``."""


class Boolean(Enum):
    """A Lua boolean as a table *key*; in Python ``True`` and ``1`` would be the same key.

    >>> Table({Boolean.TRUE: "yes", 1: "one"})[1]
    'one'
    """

    FALSE = 0
    TRUE = 1


class Table(dict[Any, Any]):
    """A Lua table: a dict in file order that compares and hashes by identity, as a Lua table does.

    Keys are ``float`` (``int`` works, being equal), ``str``, ``bytes``, `Boolean` or any object.

    >>> sizes = Table.of(["a", "b"])
    >>> sizes[1], sizes.array(), sizes == Table.of(["a", "b"])
    ('a', ['a', 'b'], False)
    """

    __slots__ = ()
    __hash__ = object.__hash__  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    @classmethod
    def of(cls, values: Iterable[Value]) -> Table:
        """The table ``{v1, v2, ...}``, with keys 1..n."""
        return cls((float(i), v) for i, v in enumerate(values, 1))

    def array(self) -> list[Value]:
        """The values at keys 1, 2, ... up to the first that is missing (Lua's ``ipairs``)."""
        values: list[Value] = []
        while (value := self.get(len(values) + 1)) is not None:
            values.append(value)
        return values

    def __repr__(self) -> str:
        return f"Table({len(self)})"


class Object:
    """An instance of a Torch class: its class name, class version and state.

    ``state`` is what the class's ``write`` wrote: a `Table` of fields for nearly every class, ``bytes`` for
    ``torch.Generator`` (none for ``torch.Timer``), a list for ``tds.Vec``. ``header`` is what ``nn.GPU`` and
    ``nn.DataParallelTable`` write before it. ``version`` is ``None`` in files older than class versions.

    >>> linear = Object("nn.Linear", Table(train=True))
    >>> linear["train"], linear.get("bias"), "bias" in linear
    (True, None, False)
    """

    __slots__ = ("header", "state", "typename", "version")

    def __init__(self, typename: str, state: Value = None, *, version: int | None = 1, header: Value = None) -> None:
        self.typename = typename
        self.version = version
        self.state = state
        self.header = header

    @property
    def fields(self) -> Table:
        """The state where it is a table, else an empty one."""
        return self.state if type(self.state) is Table else Table()

    def with_state(self, state: Value) -> Object:
        """Another object of the same class and version.

        >>> Object("nn.Reshape", Table(), version=2).with_state(Table(nelement=4))["nelement"]
        4
        """
        return Object(self.typename, state, version=self.version)

    def __getitem__(self, name: Value) -> Value:
        return self.state[name]

    def __setitem__(self, name: Value, value: Value) -> None:
        self.state[name] = value

    def __contains__(self, name: Value) -> bool:
        return name in self.fields

    def get(self, name: Value, default: Value = None) -> Value:
        return self.fields.get(name, default)

    def __repr__(self) -> str:
        return f"Object({self.typename!r})"


class Storage:
    """A run of numbers of one type. ``data`` says where they are: in a mapped file, or held in memory.

    >>> Storage.of("torch.FloatStorage", [1, 2]).numpy()
    array([1., 2.], dtype=float32)
    """

    __slots__ = ("data", "typename", "version")

    def __init__(self, typename: str, data: Data, *, version: int | None = 1) -> None:
        self.typename = typename
        self.version = version
        self.data = data

    @classmethod
    def of(cls, typename: str, values: Any = ()) -> Storage:
        """A storage of this type holding ``values`` (anything NumPy takes; they are flattened)."""
        return cls(typename, Held(np.ascontiguousarray(values, dtype=element_type(typename)).reshape(-1)))

    def __len__(self) -> int:
        return self.data.count

    @property
    def nbytes(self) -> int:
        return self.data.count * self.data.dtype.itemsize

    def numpy(self) -> np.ndarray[Any, Any]:
        """The numbers, shape ``(len(self),)``: a read-only view of the file where it is a binary one."""
        return self.data.array()

    def __repr__(self) -> str:
        return f"Storage({self.typename!r}, {len(self)})"


class Tensor:
    """A view of a storage: sizes and strides in elements, the offset counted from 0.

    A tensor without dimensions is empty, as in Torch7; it may have a storage all the same.

    >>> t = Tensor.of(np.arange(6.0).reshape(2, 3))
    >>> t.typename, t.size, t.stride, float(t.numpy()[1, 2])
    ('torch.DoubleTensor', (2, 3), (3, 1), 5.0)
    """

    __slots__ = ("offset", "size", "storage", "stride", "typename", "version")

    def __init__(
        self,
        typename: str,
        size: Sequence[int] = (),
        stride: Sequence[int] = (),
        offset: int = 0,
        storage: Storage | None = None,
        *,
        version: int | None = 1,
    ) -> None:
        self.typename = typename
        self.version = version
        self.size = tuple(size)
        self.stride = tuple(stride)
        self.offset = offset
        self.storage = storage

    @classmethod
    def of(cls, values: Any, typename: str | None = None) -> Tensor:
        """A contiguous tensor holding ``values``; its type follows the array's dtype unless given.

        Raises:
            TypeError: Torch7 has no tensor of this dtype.
        """
        array = np.asarray(values)
        name = typename or _TENSOR_OF_DTYPE.get(array.dtype.newbyteorder("=").str[1:])
        if name is None:
            raise TypeError(f"Torch7 has no tensor of {array.dtype}; convert it first")
        if array.size == 0:
            return cls(name)
        stride = [math.prod(array.shape[i + 1 :]) for i in range(array.ndim)]
        return cls(name, array.shape or (1,), stride or (1,), 0, Storage.of(storage_of(name), array))

    @property
    def numel(self) -> int:
        return math.prod(self.size) if self.size else 0

    @property
    def itemsize(self) -> int:
        return self.storage.data.dtype.itemsize if self.storage else element_type(self.typename).itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of the elements this tensor has; views share them."""
        return self.numel * self.itemsize

    def numpy(self) -> np.ndarray[Any, Any]:
        """The elements, shape ``size``: a read-only view of the mapped file where it is a binary one."""
        if self.storage is None or not self.size:
            return np.empty(0, element_type(self.typename))
        flat = self.storage.numpy()
        strides = [s * flat.itemsize for s in self.stride]
        return np.lib.stride_tricks.as_strided(flat[self.offset :], self.size, strides, writeable=flat.flags.writeable)

    def __repr__(self) -> str:
        return f"Tensor({self.typename!r}, {'x'.join(map(str, self.size)) or 'empty'})"


class Function:
    """A Lua function: its bytecode and upvalues, kept as they came; never run, never parsed.

    ``kind`` is the type number it had in the file: 6 (oldest, not shared), 7 or 8.

    >>> Function(b"\\x1bLJ", Table())
    Function(3 bytes)
    """

    __slots__ = ("bytecode", "kind", "upvalues")

    def __init__(self, bytecode: bytes, upvalues: Value = None, *, kind: int = 8) -> None:
        self.kind = kind
        self.bytecode = bytecode
        self.upvalues = upvalues

    def __repr__(self) -> str:
        return f"Function({len(self.bytecode)} bytes)"


ELEMENT = {
    "Byte": "u1",
    "Char": "i1",
    "Short": "i2",
    "Int": "i4",
    "Long": "i8",
    "Half": "f2",
    "Float": "f4",
    "Double": "f8",
}
"""Torch7's element types, as NumPy type codes. ``Cuda`` alone is float."""

_TENSOR_OF_DTYPE = {code: f"torch.{name}Tensor" for name, code in ELEMENT.items()}
_NUMERIC = re.compile(rf"torch\.(Cuda)?({'|'.join(ELEMENT)})?(Tensor|Storage)")


def numeric_class(typename: str) -> tuple[str, str] | None:
    """``(element, "Tensor" | "Storage")`` of a tensor or storage class, ``None`` of any other.

    >>> numeric_class("torch.CudaTensor"), numeric_class("torch.CudaLongStorage"), numeric_class("nn.Linear")
    (('Float', 'Tensor'), ('Long', 'Storage'), None)
    """
    match = _NUMERIC.fullmatch(typename)
    if match is None or not (match[1] or match[2]):
        return None
    return match[2] or "Float", match[3]


def element_type(typename: str) -> np.dtype[Any]:
    """The NumPy dtype of a tensor or storage class, with 8-byte longs.

    Raises:
        ValueError: the class is neither.

    >>> element_type("torch.CudaHalfTensor")
    dtype('float16')
    """
    numeric = numeric_class(typename)
    if numeric is None:
        raise ValueError(f"{typename} is neither a tensor nor a storage class of Torch7")
    return np.dtype(ELEMENT[numeric[0]])


def view_of(value: Tensor | Storage) -> View:
    """The geometry of a tensor; a storage that is a value of its own sees all of itself.

    A tensor without dimensions is empty in Torch7.
    """
    if isinstance(value, Storage):
        return View(0, (len(value),), (1,))
    return View(value.offset, value.size or (0,), value.stride or (1,))


def storage_of(tensor: str) -> str:
    """The storage class of a tensor class.

    >>> storage_of("torch.CudaTensor")
    'torch.CudaStorage'
    """
    return tensor.removesuffix("Tensor") + "Storage"


PAYLOADS = frozenset({"torch.Generator", "torch.Timer", "tds.Vec", "tds.Hash", "tds_hash"})
"""Classes that write no value as their state, but bytes or elements of their own, or nothing (``torch.Timer``)."""

HEADED = {"nn.GPU": 0, "nn.DataParallelTable": 2}
"""Classes whose ``write`` puts a header before the state, and the class version since which it does."""


def has_header(typename: str, version: int | None) -> bool:
    """Whether objects of this class and version are written as two values."""
    since = HEADED.get(typename)
    return since is not None and (version or 0) >= since


def references(value: Value) -> Iterator[Value]:
    """The values that ``value`` points to directly, keys included, in file order.

    >>> list(references(Table(epoch=3)))
    ['epoch', 3]
    """
    kind = type(value)
    if kind is Table:
        for key, item in value.items():
            yield key
            yield item
    elif kind is Object:
        yield value.header
        if type(value.state) is list:
            yield from value.state
        else:
            yield value.state
    elif kind is Tensor:
        yield value.storage
    elif kind is Function:
        yield value.upvalues
