"""What a PyTorch checkpoint is made of: plain values, tensors on storages, and stubs for everything else.

Plain values are Python's own (``None``, numbers, strings, bytes, lists, tuples, dicts, sets). Whatever else a pickle
holds is what the pickle says of it: a `Global` is a name, a `Stub` is a call of one with what was put into the
result. Nothing is imported and nothing is called, so a stub is written back as it came.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ...coverage import View
from ...data import Data

Value = Any


class Global(NamedTuple):
    """A class or function, by its module and name.

    >>> str(Global("collections", "OrderedDict"))
    'collections.OrderedDict'
    """

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


class Ordered(dict[Any, Any]):
    """A ``collections.OrderedDict``; ``state`` is what was set on the object besides its entries (``_metadata``)."""

    __slots__ = ("state",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.state: Value = None


class Stub:
    """An object of a class that is not imported: how the pickle makes it, and what it puts into it.

    Attributes:
        how: ``reduce``, ``newobj`` or ``newobj_ex``: the pickle's way of making it.
        function: what is called: a `Global`, or a stub.
        args: the arguments.
        kwargs: keyword arguments, of ``newobj_ex``.
        state: what ``__setstate__`` is given, or is put into ``__dict__``; `ABSENT` for nothing.
        items: what is appended, for a list-like object.
        entries: what is set, for a dict-like object, as pairs.
    """

    __slots__ = ("args", "entries", "function", "how", "items", "kwargs", "state")

    def __init__(self, how: str, function: Value, args: Value, kwargs: Value = None) -> None:
        self.how = how
        self.function = function
        self.args = args
        self.kwargs = kwargs
        self.state: Value = ABSENT
        self.items: list[Value] = []
        self.entries: list[tuple[Value, Value]] = []

    @property
    def typename(self) -> str:
        """The name of the class or function."""
        return str(self.function) if isinstance(self.function, Global) else "an object made by another"

    def attribute(self, name: str, default: Value = None) -> Value:
        """What the object has under a name, where its state is a dict, as most have."""
        state = self.state[0] if isinstance(self.state, tuple) and self.state else self.state
        return state.get(name, default) if isinstance(state, dict) else default

    def __repr__(self) -> str:
        return f"Stub({self.typename})"


class Absent:
    """Says that there is no state; ``None`` is one."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT = Absent()


class Storage:
    """A run of elements of one type, shared by the tensors that see it.

    Attributes:
        dtype: PyTorch's name of the element type: ``float32``, ``bfloat16``, ...
        key: its name in the file.
        location: the device it was on.
        data: its bytes; those of a file stay there until they are looked at.
        kind: the `Global` that the pickle names the type by: ``torch.FloatStorage``.
        view: what a legacy file says of storages that are parts of others.
    """

    __slots__ = ("data", "dtype", "key", "kind", "location", "view")

    def __init__(
        self, dtype: str, key: str, location: str, data: Data | None, kind: Global, view: Value = None
    ) -> None:
        self.dtype = dtype
        self.key = key
        self.location = location
        self.data = data
        self.kind = kind
        self.view = view

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return DTYPE_BYTES[self.dtype]

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.data.count * self.data.dtype.itemsize if self.data is not None else 0

    def __len__(self) -> int:
        return self.nbytes // self.itemsize

    def __repr__(self) -> str:
        return f"Storage({self.dtype}, {len(self)})"


class Tensor:
    """A view of a storage: sizes and strides in elements, the offset counted from 0.

    Attributes:
        maker: the function of ``torch._utils`` that rebuilds it.
        rest: the arguments of that function after the stride (``requires_grad``, hooks, metadata).
        wrapped: the stub around it (a parameter), or ``None``.
    """

    __slots__ = ("maker", "offset", "rest", "size", "state", "storage", "stride")

    def __init__(
        self,
        storage: Storage,
        offset: int,
        size: tuple[int, ...],
        stride: tuple[int, ...],
        maker: Global,
        rest: tuple[Value, ...],
    ) -> None:
        self.storage = storage
        self.offset = offset
        self.size = size
        self.stride = stride
        self.maker = maker
        self.rest = rest
        self.state: Value = ABSENT

    @property
    def dtype(self) -> str:
        """PyTorch's name of the element type: that of the storage, save where the maker is told another."""
        if self.maker.name == "_rebuild_tensor_v3" and len(self.rest) > 2 and isinstance(self.rest[2], Global):
            return self.rest[2].name
        return self.storage.dtype

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return DTYPE_BYTES[self.dtype]

    @property
    def numel(self) -> int:
        """How many elements it has."""
        return math.prod(self.size)

    @property
    def nbytes(self) -> int:
        """Bytes of its elements; views share them."""
        return self.numel * self.itemsize

    def numpy(self) -> np.ndarray[Any, Any]:
        """The elements, shape ``size``; types that NumPy has not (``bfloat16``, float8) as integers of the same bits.

        Raises:
            ValueError: the storage's data is not there (a meta tensor).
        """
        if self.storage.data is None:
            raise ValueError("a tensor without data (on the meta device)")
        raw = self.storage.data.array().view("u1")
        flat = raw[: len(raw) - len(raw) % self.itemsize].view(NUMPY.get(self.dtype, f"u{self.itemsize}"))
        strides = [s * flat.itemsize for s in self.stride]
        return np.lib.stride_tricks.as_strided(flat[self.offset :], self.size, strides, writeable=False)

    def __repr__(self) -> str:
        return f"Tensor({self.dtype}, {'x'.join(map(str, self.size)) or 'one number'})"


DTYPE_BYTES: dict[str, int] = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
    "float4_e2m1fn_x2": 1,
    "complex128": 16,
    "complex64": 8,
    "complex32": 4,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint64": 8,
    "uint32": 4,
    "uint16": 2,
    "uint8": 1,
    "bool": 1,
    "bits8": 1,
    "bits16": 2,
    "bits1x8": 1,
    "bits2x4": 1,
    "bits4x2": 1,
    "qint32": 4,
    "qint8": 1,
    "quint8": 1,
    "quint4x2": 1,
    "quint2x4": 1,
}
"""Bytes of an element of each type that PyTorch writes."""

NUMPY: dict[str, str] = {
    "float64": "<f8",
    "float32": "<f4",
    "float16": "<f2",
    "complex128": "<c16",
    "complex64": "<c8",
    "int64": "<i8",
    "int32": "<i4",
    "int16": "<i2",
    "int8": "i1",
    "uint64": "<u8",
    "uint32": "<u4",
    "uint16": "<u2",
    "uint8": "u1",
    "bool": "?",
    "qint32": "<i4",
    "qint8": "i1",
    "quint8": "u1",
}
"""NumPy's name of each type that it has."""

STORAGE_DTYPE: dict[str, str] = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "ComplexDoubleStorage": "complex128",
    "ComplexFloatStorage": "complex64",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "QInt32Storage": "qint32",
    "QInt8Storage": "qint8",
    "QUInt8Storage": "quint8",
    "QUInt4x2Storage": "quint4x2",
    "QUInt2x4Storage": "quint2x4",
    "UntypedStorage": "uint8",
}
"""The element type of each storage class that PyTorch pickles by name."""


def view_of(value: Tensor | Storage) -> View:
    """The geometry of a tensor; a storage that is a value of its own sees all of itself."""
    if isinstance(value, Storage):
        return View(0, (len(value),), (1,))
    return View(value.offset, value.size, value.stride)


def is_in_order(tensor: Tensor) -> bool:
    """Whether a tensor's elements lie one behind the other, in their order."""
    expected = 1
    for size, stride in zip(reversed(tensor.size), reversed(tensor.stride), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def bytes_in(value: Value) -> bytes | None:
    """Bytes, also where an old pickle has them as a call of ``_codecs.encode``; ``None`` for any other value.

    >>> bytes_in(Stub("reduce", Global("_codecs", "encode"), ("ab", "latin1")))
    b'ab'
    """
    if isinstance(value, Stub) and value.args == () and str(value.function) in ("__builtin__.bytes", "builtins.bytes"):
        return b""
    if isinstance(value, Stub) and value.function == Global("_codecs", "encode") and len(value.args) == 2:
        text, code = value.args
        if not isinstance(text, str) or code != "latin1":
            return None
        try:
            return text.encode("latin1")
        except UnicodeError:
            return None
    return value if isinstance(value, bytes) else None


LEAVES = frozenset((type(None), bool, int, float, str, bytes, bytearray))
"""Types of values that hold no others."""


def walk(root: Value) -> Iterator[Value]:
    """Everything in a value save numbers and texts, each object once, what holds before what is held; keys, too.

    >>> [type(value).__name__ for value in walk([1, {"a": ()}])]
    ['list', 'dict', 'tuple']
    """
    met: set[int] = set()
    stack = [root]
    while stack:
        value = stack.pop()
        if type(value) in LEAVES or id(value) in met:
            continue
        met.add(id(value))
        yield value
        for key, item in reversed(list(children(value))):
            stack.append(item)
            if type(key) not in LEAVES:
                stack.append(key)


def children(value: Value) -> Iterator[tuple[Value, Value]]:
    """What a value holds, each with the key it is under: an index, a dict's key, or a word for a stub's parts."""
    if isinstance(value, dict):
        yield from value.items()
        if isinstance(value, Ordered) and value.state is not None:
            yield "<state>", value.state
    elif isinstance(value, list | tuple | set | frozenset):
        yield from enumerate(value)
    elif isinstance(value, Stub):
        yield "<function>", value.function
        yield "<args>", value.args
        if value.kwargs:
            yield "<kwargs>", value.kwargs
        if value.state is not ABSENT:
            yield "<state>", value.state
        yield from enumerate(value.items)
        yield from value.entries
    elif isinstance(value, Tensor):
        yield "<rest>", value.rest
        if value.state is not ABSENT:
            yield "<state>", value.state
