"""Pickles, read without running them: no import, no call, no attribute set on anything.

Every opcode of protocols 0 to 5 is carried out on plain values, `Global` names and `Stub` objects. An opcode that
would call something makes a stub that says so. No length is trusted before it is checked against what is left, no
memo is bigger than the pickle, nothing recurses.

Follows CPython's ``Lib/pickle.py`` and ``Lib/pickletools.py`` (the opcodes) and PyTorch's ``torch/serialization.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from ...errors import FormatError
from .objects import Global, Ordered, Stub, Tensor, Value

Persistent = Callable[[Value, int], Value]
Maker = Callable[[Stub], Value]


class _Mark:
    def __repr__(self) -> str:
        return "a mark"


MARK = _Mark()


def unpickle(
    data: bytes | memoryview, start: int = 0, *, persistent: Persistent | None = None, made: Maker | None = None
) -> tuple[Value, int]:
    """The value of a pickle, and where the pickle ends.

    Args:
        data: bytes that hold a pickle.
        start: where it begins.
        persistent: what a persistent id stands for, given the id and the place; without it one is refused.
        made: called with each stub a call makes; what it returns takes the stub's place.

    Raises:
        FormatError: the bytes are no whole pickle; says where, what is due and what is there.

    >>> import pickle
    >>> unpickle(pickle.dumps({"a": [1, (2.5, None)]}))[0]
    {'a': [1, (2.5, None)]}
    >>> import os
    >>> unpickle(pickle.dumps(os.system))[0]
    Global(module='posix', name='system')
    """
    machine = _Machine(memoryview(data).cast("B"), start, persistent, made)
    return machine.run(), machine.pos


class _Machine:
    def __init__(self, data: memoryview, start: int, persistent: Persistent | None, made: Maker | None) -> None:
        self.data = data
        self.pos = start
        self.end = len(data)
        self.persistent = persistent
        self.made = made or (lambda stub: stub)
        self.stack: list[Value] = []
        self.marks: list[int] = []
        self.memo: dict[int, Value] = {}

    def run(self) -> Value:
        codes, data = CODES, self.data
        while True:
            at = self.pos
            if at >= self.end:
                raise FormatError("an opcode of a pickle", "the end of the data", offset=at)
            code = data[at]
            self.pos = at + 1
            if code == STOP:
                return self.pop(at)
            step = codes.get(code)
            if step is None:
                raise FormatError("an opcode of a pickle", f"byte {code:#04x}", offset=at)
            try:
                step(self)
            except IndexError:
                raise FormatError("a value on the pickle's stack", "an empty stack", offset=at) from None
            except (TypeError, ValueError, struct.error) as error:
                raise FormatError("a pickle that makes sense", str(error), offset=at) from None

    # Bytes

    def take(self, count: int) -> bytes:
        start = self.pos
        if count < 0 or count > self.end - start:
            missing = f"only {self.end - start} more bytes ({count - self.end + start} bytes are missing)"
            raise FormatError(f"{count} bytes of a pickle's value", missing, offset=start)
        self.pos = start + count
        return bytes(self.data[start : self.pos])

    def number(self, form: str, size: int) -> int:
        return int(struct.unpack(form, self.take(size))[0])

    def line(self) -> bytes:
        start, chunk = self.pos, 256
        while True:
            stop = min(start + chunk, self.end)
            found = bytes(self.data[start:stop]).find(b"\n")
            if found >= 0:
                self.pos = start + found + 1
                return bytes(self.data[start : start + found])
            if stop == self.end:
                raise FormatError("a line of a pickle", "no end of the line", offset=start)
            chunk *= 4

    # The stack

    def pop(self, at: int = -1) -> Value:
        if len(self.stack) <= (self.marks[-1] if self.marks else 0):
            raise FormatError("a value on the pickle's stack", "none", offset=at if at >= 0 else self.pos - 1)
        return self.stack.pop()

    def push(self, value: Value) -> None:
        self.stack.append(value)

    def since_mark(self) -> list[Value]:
        if not self.marks:
            raise FormatError("a mark on the pickle's stack", "none", offset=self.pos - 1)
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def put(self, index: int) -> None:
        if index < 0:
            raise ValueError(f"a memo at {index}")
        self.memo[index] = self.stack[-1]

    def get(self, index: int) -> None:
        if index not in self.memo:
            raise ValueError(f"memo {index}, which nothing was put into")
        self.push(self.memo[index])

    # Objects

    def named(self, module: bytes | str, name: bytes | str) -> Global:
        return Global(_text(module), _text(name))

    def call(self, how: str, function: Value, args: Value, kwargs: Value = None) -> None:
        if not isinstance(args, tuple):
            raise TypeError(f"arguments that are a {type(args).__name__}")
        if function == ORDERED and how == "reduce" and len(args) <= 1:
            self.push(Ordered(_pairs(args[0]) if args else ()))
            return
        if not isinstance(function, Global | Stub):
            raise TypeError(f"a call of a {type(function).__name__}")
        self.push(self.made(Stub(how, function, args, kwargs)))

    def build(self) -> None:
        state = self.pop()
        target = self.stack[-1]
        if not isinstance(target, Ordered | Stub | Tensor):
            raise TypeError(f"a state for a {type(target).__name__}")
        target.state = state

    def extend(self, items: list[Value]) -> None:
        target = self.stack[-1]
        if isinstance(target, list):
            target.extend(items)
        elif isinstance(target, Stub):
            target.items.extend(items)
        else:
            raise TypeError(f"items for a {type(target).__name__}")

    def update(self, items: list[Value]) -> None:
        target = self.stack[-1]
        if len(items) % 2:
            raise ValueError("a key without a value")
        pairs = zip(items[::2], items[1::2], strict=True)
        if isinstance(target, dict):
            target.update((hashable(key), value) for key, value in pairs)
        elif isinstance(target, Stub):
            target.entries.extend(pairs)
        else:
            raise TypeError(f"entries for a {type(target).__name__}")

    def add(self, items: list[Value]) -> None:
        target = self.stack[-1]
        if not isinstance(target, set):
            raise TypeError(f"members for a {type(target).__name__}")
        target.update(map(hashable, items))

    def persist(self, pid: Value) -> None:
        if self.persistent is None:
            raise TypeError("a persistent id, which only PyTorch's own files have")
        self.push(self.persistent(pid, self.pos))


ORDERED = Global("collections", "OrderedDict")


LARGEST_KEY = 1000
"""Parts that a tuple may have, all told, that is a key: hashing one visits every part of it anew."""


def hashable(key: Value) -> Value:
    """The key itself.

    Raises:
        TypeError: no dict or set takes it.
        ValueError: it is a tuple of too many parts: hashing it could take for ever, or go too deep.

    >>> hashable((1, "a"))
    (1, 'a')
    """
    if isinstance(key, tuple | frozenset):
        stack, left = [key], LARGEST_KEY
        while stack:
            part = stack.pop()
            left -= 1
            if left < 0:
                raise ValueError(f"a key of more than {LARGEST_KEY} parts")
            if isinstance(part, tuple | frozenset):
                stack.extend(part)
    hash(key)
    return key


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "surrogateescape")


def _pairs(value: Value) -> list[tuple[Value, Value]]:
    pairs = list(value.items()) if isinstance(value, dict) else value
    if not isinstance(pairs, list | tuple):
        raise TypeError(f"entries of an OrderedDict that are a {type(pairs).__name__}")
    return [(hashable(key), item) for key, item in pairs]


def _int_line(text: bytes) -> Value:
    if text in (b"00", b"01"):
        return text == b"01"
    return _decimal(text)


def _decimal(text: bytes) -> int:
    if len(text) > 4000:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def _long(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True)


def _quoted(line: bytes) -> str:
    text = line.strip()
    if len(text) < 2 or text[:1] not in (b"'", b'"') or text[:1] != text[-1:]:
        raise ValueError("a string without quotes")
    return text[1:-1].decode("latin1").encode("latin1").decode("unicode_escape")


def _protocol(m: _Machine) -> None:
    number = m.take(1)[0]
    if number > 5:
        raise ValueError(f"protocol {number}, later than any there is")


def _put_top(machine: _Machine) -> None:
    machine.put(len(machine.memo))


def _mark(m: _Machine) -> None:
    m.marks.append(len(m.stack))


def _pop(m: _Machine) -> None:
    if m.marks and m.marks[-1] == len(m.stack):
        m.marks.pop()
    else:
        m.pop()


def _dict(m: _Machine) -> None:
    items = m.since_mark()
    m.push({})
    m.update(items)


def _object(m: _Machine) -> None:
    items = m.since_mark()
    m.call("newobj", items[0], tuple(items[1:]))


def _instance(m: _Machine) -> None:
    function = m.named(m.line(), m.line())
    m.call("reduce", function, tuple(m.since_mark()))


def _new_ex(m: _Machine) -> None:
    kwargs, args, function = m.pop(), m.pop(), m.pop()
    m.call("newobj_ex", function, args, kwargs)


def _two(how: str) -> Callable[[_Machine], None]:
    def step(m: _Machine) -> None:
        args, function = m.pop(), m.pop()
        m.call(how, function, args)

    return step


def _one_entry(m: _Machine) -> None:
    value, key = m.pop(), m.pop()
    m.update([key, value])


def _stack_global(m: _Machine) -> None:
    name, module = m.pop(), m.pop()
    if not isinstance(name, str) or not isinstance(module, str):
        raise TypeError("a global whose name is no text")
    m.push(m.named(module, name))


def _tuple(count: int) -> Callable[[_Machine], None]:
    def step(m: _Machine) -> None:
        items = [m.pop() for _ in range(count)]
        m.push(tuple(reversed(items)))

    return step


def _sized(form: str, size: int, convert: Callable[[bytes], Any]) -> Callable[[_Machine], None]:
    return lambda m: m.push(convert(m.take(m.number(form, size))))


def _fixed(form: str, size: int) -> Callable[[_Machine], None]:
    return lambda m: m.push(struct.unpack(form, m.take(size))[0])


def _refused(what: str) -> Callable[[_Machine], None]:
    def step(m: _Machine) -> None:
        raise TypeError(what)

    return step


def _utf8(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


STOP = ord(".")

CODES: dict[int, Callable[[_Machine], None]] = {
    ord(code): step
    for code, step in {
        "(": _mark,
        "0": _pop,
        "1": lambda m: m.since_mark() and None,
        "2": lambda m: m.push(m.stack[-1]),
        "F": lambda m: m.push(float(m.line())),
        "I": lambda m: m.push(_int_line(m.line())),
        "J": _fixed("<i", 4),
        "K": _fixed("<B", 1),
        "L": lambda m: m.push(_decimal(m.line().rstrip(b"L"))),
        "M": _fixed("<H", 2),
        "N": lambda m: m.push(None),
        "P": lambda m: m.persist(_text(m.line())),
        "Q": lambda m: m.persist(m.pop()),
        "R": _two("reduce"),
        "S": lambda m: m.push(_quoted(m.line())),
        "T": _sized("<i", 4, lambda data: data.decode("latin1")),
        "U": _sized("<B", 1, lambda data: data.decode("latin1")),
        "V": lambda m: m.push(m.line().decode("raw-unicode-escape")),
        "X": _sized("<I", 4, _utf8),
        "a": lambda m: m.extend([m.pop()]),
        "b": lambda m: m.build(),
        "c": lambda m: m.push(m.named(m.line(), m.line())),
        "d": _dict,
        "}": lambda m: m.push({}),
        "e": lambda m: m.extend(m.since_mark()),
        "g": lambda m: m.get(_decimal(m.line())),
        "h": lambda m: m.get(m.number("<B", 1)),
        "i": _instance,
        "j": lambda m: m.get(m.number("<I", 4)),
        "l": lambda m: m.push(m.since_mark()),
        "]": lambda m: m.push([]),
        "o": _object,
        "p": lambda m: m.put(_decimal(m.line())),
        "q": lambda m: m.put(m.number("<B", 1)),
        "r": lambda m: m.put(m.number("<I", 4)),
        "s": _one_entry,
        "t": lambda m: m.push(tuple(m.since_mark())),
        ")": lambda m: m.push(()),
        "u": lambda m: m.update(m.since_mark()),
        "G": _fixed(">d", 8),
        "\x80": _protocol,
        "\x81": _two("newobj"),
        "\x82": _refused("an extension code, which PyTorch does not write"),
        "\x83": _refused("an extension code, which PyTorch does not write"),
        "\x84": _refused("an extension code, which PyTorch does not write"),
        "\x85": _tuple(1),
        "\x86": _tuple(2),
        "\x87": _tuple(3),
        "\x88": lambda m: m.push(True),
        "\x89": lambda m: m.push(False),
        "\x8a": _sized("<B", 1, _long),
        "\x8b": _sized("<i", 4, _long),
        "B": _sized("<I", 4, bytes),
        "C": _sized("<B", 1, bytes),
        "\x8c": _sized("<B", 1, _utf8),
        "\x8d": _sized("<Q", 8, _utf8),
        "\x8e": _sized("<Q", 8, bytes),
        "\x8f": lambda m: m.push(set()),
        "\x90": lambda m: m.add(m.since_mark()),
        "\x91": lambda m: m.push(frozenset(map(hashable, m.since_mark()))),
        "\x92": _new_ex,
        "\x93": _stack_global,
        "\x94": _put_top,
        "\x95": lambda m: m.take(8) and None,
        "\x96": _sized("<Q", 8, bytearray),
        "\x97": _refused("a buffer outside the pickle, which PyTorch does not write"),
        "\x98": lambda m: None,
    }.items()
}
"""What each opcode does."""
