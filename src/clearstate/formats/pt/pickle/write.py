"""Pickles, written from plain values, tensors and stubs: what was read is written as the same calls.

Protocol 2, as ``torch.save`` writes, or the protocol that the file had. Follows CPython's ``Lib/pickle.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ...garbage import uncollected
from .read import ORDERED
from .stubs import ABSENT, Global, Ordered, Storage, Stub, Tensor, Value

BATCH = 1000
"""How many entries go into one opcode, as CPython's pickle has it."""


def dumps(
    value: Value,
    *,
    protocol: int = 2,
    persistent: Callable[[Storage], tuple[Value, ...]] | None = None,
    stored: Callable[[Storage], Stub] | None = None,
    sources: Mapping[Global, tuple[Value, Value]] | None = None,
) -> bytes:
    """The pickle of a value.

    Args:
        value: what `unpickle` gives.
        protocol: 2 to 5.
        persistent: the id of a storage in the file.
        stored: the call that makes a storage, in a pickle that has no place for its data but itself.
        sources: source code that goes with a class where it is first named, as a file's name and its text.

    Raises:
        TypeError: something in it is no value of a checkpoint, or needs a later protocol; says what.

    >>> import pickle
    >>> pickle.loads(dumps({"a": [1, (2.5, None)]}))
    {'a': [1, (2.5, None)]}
    """
    with uncollected():
        return _Pickler(protocol, persistent, stored, sources or {}).run(value)


class _Emit(bytes):
    """Bytes to write when their turn comes."""


class _Remember:
    """Gives what is on top of the stack a number, when its turn comes."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value


class _Close:
    """Ends a tuple, when its turn comes."""

    __slots__ = ("value",)

    def __init__(self, value: tuple[Value, ...]) -> None:
        self.value = value


class _Pickler:
    def __init__(
        self,
        protocol: int,
        persistent: Callable[[Storage], tuple[Value, ...]] | None,
        stored: Callable[[Storage], Stub] | None,
        sources: Mapping[Global, tuple[Value, Value]],
    ) -> None:
        if not 2 <= protocol <= 5:
            raise ValueError(f"protocol is 2 to 5, not {protocol}")
        self.protocol = protocol
        self.persistent = persistent
        self.stored = stored
        self.sources = dict(sources)
        self.out = bytearray()
        self.memo: dict[Any, bytes] = {}
        self.alive: list[Value] = []

    def run(self, value: Value) -> bytes:
        self.out += b"\x80" + bytes([self.protocol])
        stack: list[Value] = [value]
        while stack:
            item = stack.pop()
            kind = type(item)
            if kind is _Emit:
                self.out += item
            elif kind is _Remember:
                self.remember(item.value)
            elif kind is _Close:
                self.close(item.value)
            else:
                more = self.save(item)
                if more:
                    stack.extend(reversed(list(more)))
        self.out += b"."
        return bytes(self.out)

    def remember(self, value: Value) -> None:
        number = len(self.memo)
        kind = type(value)
        if number < 256:
            self.out += b"q%c" % number
            recalled = b"h%c" % number
        else:
            packed = number.to_bytes(4, "little")
            self.out += b"r" + packed
            recalled = b"j" + packed
        if kind is str or kind is Global:
            self.memo[value] = recalled
        else:
            self.memo[id(value)] = recalled
            self.alive.append(value)

    def close(self, value: tuple[Value, ...]) -> None:
        known = self.memo.get(id(value))
        if known is not None:  # it holds itself, and was written on the way
            self.out += b"0" * len(value) if len(value) < 4 else b"1"
            self.out += known
            return
        self.out += {1: b"\x85", 2: b"\x86", 3: b"\x87"}.get(len(value), b"t")
        self.remember(value)

    def save(self, value: Value) -> Iterable[Value] | None:
        kind = type(value)
        simple = SIMPLE.get(kind)
        if simple is not None:
            self.out += simple(value)
            return None
        known = self.memo.get(value if kind is str or kind is Global else id(value))
        if known is not None:
            self.out += known
            return None
        if kind is str:
            self.save_text(value)
            return None
        if kind is bytes or kind is bytearray:
            return self.save_bytes(value)
        writer = CONTAINERS.get(kind)
        if writer is None:
            raise TypeError(f"{kind.__module__}.{kind.__qualname__} is no value of a checkpoint")
        return writer(self, value)

    def save_text(self, value: str) -> None:
        data = value.encode("utf-8", "surrogatepass")
        if len(data) < 2**32:
            self.out += b"X" + len(data).to_bytes(4, "little") + data
        elif self.protocol >= 4:
            self.out += b"\x8d" + len(data).to_bytes(8, "little") + data
        else:
            raise TypeError("a text of 4 GB needs protocol 4")
        self.remember(value)

    def builtin(self, name: str) -> Global:
        """A built-in function, under the name that the protocol has for its module."""
        return Global("__builtin__" if self.protocol < 3 else "builtins", name)

    def save_bytes(self, value: bytes | bytearray) -> Iterable[Value] | None:
        array = type(value) is bytearray
        if array and self.protocol < 5:
            return self.save_stub(Stub("reduce", self.builtin("bytearray"), (bytes(value),)))
        if self.protocol < 3:
            text = value.decode("latin1")
            return self.save_stub(Stub("reduce", Global("_codecs", "encode"), (text, "latin1")))
        if len(value) >= 2**32 and self.protocol < 4:
            raise TypeError("bytes of 4 GB need protocol 4")
        opcode, form = (b"\x96", "<Q") if array else (b"B", "<I") if len(value) < 2**32 else (b"\x8e", "<Q")
        self.out += opcode + struct.pack(form, len(value)) + value
        self.remember(value)
        return None

    def save_global(self, value: Global) -> Iterable[Value]:
        source = self.sources.pop(value, None)
        if source is not None:
            return [("module", value, *source), _Emit(b"Q")]
        self.out += b"c" + f"{value.module}\n{value.name}\n".encode("utf-8", "surrogateescape")
        self.remember(value)
        return ()

    def save_tuple(self, value: tuple[Value, ...]) -> Iterable[Value]:
        if not value:
            self.out += b")"
            return ()
        return [_Emit(b"(" if len(value) > 3 else b""), *value, _Close(value)]

    def save_list(self, value: list[Value]) -> Iterable[Value]:
        self.out += b"]"
        self.remember(value)
        return self.save_batches(value, b"e")

    def save_dict(self, value: dict[Value, Value]) -> Iterable[Value]:
        self.out += b"}"
        self.remember(value)
        return self.save_batches([part for pair in value.items() for part in pair], b"u")

    def save_batches(self, parts: list[Value], opcode: bytes) -> Iterable[Value]:
        """Writes numbers and texts at once, as most small dicts have nothing else; the rest when its turn comes."""
        if not parts or len(parts) > BATCH:
            return _batches(parts, opcode)
        out, memo = self.out, self.memo
        out += b"("
        for i, part in enumerate(parts):
            kind = type(part)
            if kind is str:
                known = memo.get(part)
                if known is not None:
                    out += known
                else:
                    self.save_text(part)
            elif kind in SIMPLE:
                out += SIMPLE[kind](part)
            else:
                return [*parts[i:], _Emit(opcode)]
        out += opcode
        return ()

    def save_ordered(self, value: Ordered) -> Iterable[Value]:
        entries = _batches([part for pair in value.items() for part in pair], b"u")
        state = () if value.state is None else (value.state, _Emit(b"b"))
        return [ORDERED, _Emit(b")R"), _Remember(value), *entries, *state]

    def save_set(self, value: set[Value] | frozenset[Value]) -> Iterable[Value]:
        name = "set" if isinstance(value, set) else "frozenset"
        return [
            self.builtin(name),
            (list(value),),
            _Emit(b"R"),
            _Remember(value),
        ]

    def save_stub(self, value: Stub) -> Iterable[Value]:
        if value.how == "newobj_ex" and self.protocol < 4:
            raise TypeError(f"{value.typename} is made in a way that needs protocol 4")
        kwargs = (value.kwargs,) if value.how == "newobj_ex" else ()
        entries = [part for pair in value.entries for part in pair]
        state = () if value.state is ABSENT else (value.state, _Emit(b"b"))
        made = (value.function, value.args, *kwargs, _Emit(MAKING[value.how]), _Remember(value))
        return [*made, *_batches(value.items, b"e"), *_batches(entries, b"u"), *state]

    def save_tensor(self, value: Tensor) -> Iterable[Value]:
        args = (value.storage, value.offset, value.size, value.stride, *value.rest)
        state = () if value.state is ABSENT else (value.state, _Emit(b"b"))
        return [value.maker, args, _Emit(b"R"), _Remember(value), *state]

    def save_storage(self, value: Storage) -> Iterable[Value]:
        if self.stored is not None:
            return [self.stored(value), _Remember(value)]
        if self.persistent is None:
            raise TypeError("a storage, in a pickle that has no place for its data")
        return [self.persistent(value), _Emit(b"Q")]


def _batches(items: list[Value], opcode: bytes) -> Iterator[Value]:
    size = 2 * BATCH if opcode == b"u" else BATCH
    for start in range(0, len(items), size):
        yield _Emit(b"(")
        yield from items[start : start + size]
        yield _Emit(opcode)


def _integer(value: int) -> bytes:
    if 0 <= value < 256:
        return b"K%c" % value
    if 0 <= value < 65536:
        return b"M" + value.to_bytes(2, "little")
    if -(2**31) <= value < 2**31:
        return b"J" + value.to_bytes(4, "little", signed=True)
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data if len(data) < 256 else b"\x8b" + struct.pack("<i", len(data)) + data


MAKING = {"reduce": b"R", "newobj": b"\x81", "newobj_ex": b"\x92"}
"""The opcode of each way of making an object."""

DOUBLE = struct.Struct(">d").pack

SIMPLE: dict[type, Callable[[Any], bytes]] = {
    type(None): lambda value: b"N",
    bool: lambda value: b"\x88" if value else b"\x89",
    int: _integer,
    float: lambda value: b"G" + DOUBLE(value),
}

CONTAINERS: dict[type, Callable[[_Pickler, Any], Iterable[Value]]] = {
    Global: _Pickler.save_global,
    tuple: _Pickler.save_tuple,
    list: _Pickler.save_list,
    dict: _Pickler.save_dict,
    Ordered: _Pickler.save_ordered,
    set: _Pickler.save_set,
    frozenset: _Pickler.save_set,
    Stub: _Pickler.save_stub,
    Tensor: _Pickler.save_tensor,
    Storage: _Pickler.save_storage,
}
