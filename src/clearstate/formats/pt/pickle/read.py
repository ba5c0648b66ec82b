"""Pickles, read without running them: no import, no call, no attribute set on anything.

Every opcode of protocols 0 to 5 is carried out on plain values, `Global` names and `Stub` objects. An opcode that
would call something makes a stub that says so. No length is trusted before it is checked against what is left, no
memo is bigger than the pickle, nothing recurses.

Follows CPython's ``Lib/pickle.py`` and ``Lib/pickletools.py`` (the opcodes) and PyTorch's ``torch/serialization.py``.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any

from ....errors import FormatError
from ...garbage import uncollected
from .stubs import Global, Ordered, Stub, Tensor, Value

Persistent = Callable[[Value, int], Value]
Maker = Callable[[Stub], Value]


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
    machine = _Machine(data if isinstance(data, bytes) else memoryview(data).cast("B"), start, persistent, made)
    with uncollected():
        return machine.run(), machine.pos


class _Machine:
    """What carries the opcodes out: a stack, the stacks below the marks, and the memo."""

    __slots__ = ("below", "data", "end", "made", "memo", "persistent", "pos", "stack")

    def __init__(self, data: bytes | memoryview, start: int, persistent: Persistent | None, made: Maker | None) -> None:
        self.data = data
        self.pos = start
        self.end = len(data)
        self.persistent = persistent
        self.made = made or (lambda stub: stub)
        self.stack: list[Value] = []
        self.below: list[list[Value]] = []
        self.memo: dict[int, Value] = {}

    def run(self) -> Value:
        """Carries out opcodes up to the end of the pickle.

        Those that most of a pickle consists of are carried out in the loop itself, the others by `CODES`: a call for
        each would take twice the time.
        """
        codes, data, end, memo, below, stack = CODES, self.data, self.end, self.memo, self.below, self.stack
        pos = at = self.pos
        code = -1
        try:
            while True:
                at = pos
                code = data[pos]
                pos += 1
                if code == 104:  # h: a value of the memo
                    stack.append(memo[data[pos]])
                    pos += 1
                elif code == 106:  # j
                    stack.append(memo[UINT(data, pos)[0]])
                    pos += 4
                elif code == 113:  # q: into the memo
                    memo[data[pos]] = stack[-1]
                    pos += 1
                elif code == 114:  # r
                    memo[UINT(data, pos)[0]] = stack[-1]
                    pos += 4
                elif code == 148:  # MEMOIZE
                    memo[len(memo)] = stack[-1]
                elif code == 88 or code == 140:  # X and SHORT_BINUNICODE: a text
                    if code == 88:
                        start = pos + 4
                        pos = start + UINT(data, pos)[0]
                    else:
                        start = pos + 1
                        pos = start + data[pos]
                    if pos > end:
                        raise _cut(pos - start, end - start, start)
                    stack.append(str(data[start:pos], "utf-8", "surrogatepass"))
                elif code == 75:  # K: a small number
                    stack.append(data[pos])
                    pos += 1
                elif code == 77:  # M
                    stack.append(USHORT(data, pos)[0])
                    pos += 2
                elif code == 74:  # J
                    stack.append(INT(data, pos)[0])
                    pos += 4
                elif code == 71:  # G: a float
                    stack.append(DOUBLE(data, pos)[0])
                    pos += 8
                elif code == 125:  # }: a dict
                    stack.append({})
                elif code == 40:  # (: a mark
                    below.append(stack)
                    stack = self.stack = []
                else:
                    self.pos = pos
                    if code == STOP:
                        return stack.pop()
                    step = codes.get(code)
                    if step is None:
                        raise FormatError("an opcode of a pickle", f"byte {code:#04x}", offset=at)
                    step(self)
                    pos, stack = self.pos, self.stack
        except (IndexError, struct.error):
            if at >= end:
                raise FormatError("an opcode of a pickle", "the end of the data", offset=at) from None
            if at + 1 + FIXED.get(code, 0) > end:
                raise _cut(FIXED[code], end - at - 1, at + 1) from None
            what = "a mark" if code in b"(1tlduoie\x90\x91" and not below else "a value"
            raise FormatError(f"{what} on the pickle's stack", "none", offset=at) from None
        except KeyError as error:
            raise FormatError("a memo that something was put into", f"memo {error}", offset=at) from None
        except FormatError as error:
            if error.offset is None:
                error.offset = at
            raise
        except (TypeError, ValueError, OverflowError) as error:
            raise FormatError("a pickle that makes sense", str(error)[:200], offset=at) from None

    # Bytes

    def take(self, count: int) -> bytes:
        start = self.pos
        if count < 0 or count > self.end - start:
            raise _cut(count, self.end - start, start)
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

    def pop(self) -> Value:
        return self.stack.pop()

    def push(self, value: Value) -> None:
        self.stack.append(value)

    def since_mark(self) -> list[Value]:
        items, self.stack = self.stack, self.below.pop()
        return items

    def put(self, index: int) -> None:
        if index < 0:
            raise ValueError(f"a memo at {index}")
        self.memo[index] = self.stack[-1]

    # Objects

    def named(self, module: bytes | str, name: bytes | str) -> Global:
        return Global(_text(module), _text(name))

    def call(self, how: str, function: Value, args: Value, kwargs: Value = None) -> None:
        if type(args) is not tuple:
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
            for key in items[::2]:
                if type(key) is not str:
                    hashable(key)
            target.update(pairs)
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


def _cut(due: int, there: int, at: int) -> FormatError:
    missing = f"only {there} more bytes ({due - there} bytes are missing)"
    return FormatError(f"{due} bytes of a pickle's value", missing, offset=at)


UINT = struct.Struct("<I").unpack_from
USHORT = struct.Struct("<H").unpack_from
INT = struct.Struct("<i").unpack_from
DOUBLE = struct.Struct(">d").unpack_from

FIXED = {ord(code): size for code, size in zip("hjqrXKMJG\x8c", (1, 4, 1, 4, 4, 1, 2, 4, 8, 1), strict=True)}
"""Bytes that follow each of the opcodes that the loop carries out itself."""

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
    if len(data) > 1600:  # what Python does not write in digits
        raise ValueError(f"a number of {len(data)} bytes")
    return int.from_bytes(data, "little", signed=True)


def _quoted(line: bytes) -> str:
    text = line.strip()
    if len(text) < 2 or text[:1] not in (b"'", b'"') or text[:1] != text[-1:]:
        raise ValueError("a string without quotes")
    return ESCAPE.sub(_escaped, text[1:-1]).decode("latin1")


ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|[0-7]{1,3}|.)")
"""An escape in a text that Python 2 put between quotes."""


def _escaped(match: re.Match[bytes]) -> bytes:
    text = match[1]
    if text[:1].isdigit():
        return bytes([int(text, 8) & 255]) if text[:1] < b"8" else match[0]
    if len(text) == 3:
        return bytes([int(text[1:], 16)])
    return ESCAPED.get(text, match[0])


ESCAPED = {b"%c" % a: b"%c" % b for a, b in zip(b"\\'\"abfnrtv", b"\\'\"\a\b\f\n\r\t\v", strict=True)}


def _protocol(m: _Machine) -> None:
    number = m.take(1)[0]
    if number > 5:
        raise ValueError(f"protocol {number}, later than any there is")


def _pop(m: _Machine) -> None:
    if m.stack or not m.below:
        m.pop()
    else:
        m.since_mark()


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
        "0": _pop,
        "1": lambda m: m.since_mark() and None,
        "2": lambda m: m.push(m.stack[-1]),
        "F": lambda m: m.push(float(m.line())),
        "I": lambda m: m.push(_int_line(m.line())),
        "L": lambda m: m.push(_decimal(m.line().rstrip(b"L"))),
        "N": lambda m: m.push(None),
        "P": lambda m: m.persist(_text(m.line())),
        "Q": lambda m: m.persist(m.pop()),
        "R": _two("reduce"),
        "S": lambda m: m.push(_quoted(m.line())),
        "T": _sized("<i", 4, lambda data: data.decode("latin1")),
        "U": _sized("<B", 1, lambda data: data.decode("latin1")),
        "V": lambda m: m.push(m.line().decode("raw-unicode-escape")),
        "a": lambda m: m.extend([m.pop()]),
        "b": lambda m: m.build(),
        "c": lambda m: m.push(m.named(m.line(), m.line())),
        "d": _dict,
        "e": lambda m: m.extend(m.since_mark()),
        "g": lambda m: m.push(m.memo[_decimal(m.line())]),
        "i": _instance,
        "l": lambda m: m.push(m.since_mark()),
        "]": lambda m: m.push([]),
        "o": _object,
        "p": lambda m: m.put(_decimal(m.line())),
        "s": _one_entry,
        "t": lambda m: m.push(tuple(m.since_mark())),
        ")": lambda m: m.push(()),
        "u": lambda m: m.update(m.since_mark()),
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
        "\x8d": _sized("<Q", 8, _utf8),
        "\x8e": _sized("<Q", 8, bytes),
        "\x8f": lambda m: m.push(set()),
        "\x90": lambda m: m.add(m.since_mark()),
        "\x91": lambda m: m.push(frozenset(map(hashable, m.since_mark()))),
        "\x92": _new_ex,
        "\x93": _stack_global,
        "\x95": lambda m: m.take(8) and None,
        "\x96": _sized("<Q", 8, bytearray),
        "\x97": _refused("a buffer outside the pickle, which PyTorch does not write"),
        "\x98": lambda m: None,
    }.items()
}
"""What each opcode does that `_Machine.run` does not carry out itself."""
