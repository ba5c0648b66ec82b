"""What a class's constructors leave in an attribute, read off their bytecode: nothing is run.

``self.attention = None`` in ``__init__`` says that ``None`` is what to put back; an attribute that no constructor
stores was made later, and goes altogether.
"""

from __future__ import annotations

import dis
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from enum import Enum
from types import CodeType
from typing import Any

from .classes import fact
from .instructions import CONSTANTS, instructions, read
from .own_code import BASE, CONSTRUCTORS, own_codes, reachable, texts


class Left(Enum):
    """What is known of an attribute after construction."""

    NOTHING = "no constructor stores it"
    SOMETHING = "a constructor stores a value that is computed"


def left_by(cls: type, name: str) -> Callable[[], Any] | Left:
    """What makes the value that a class's constructors leave in an attribute, as far as it is known.

    A table is known to be empty only where nothing on the way fills it. What constructors mention as a text, and what
    PyTorch's own layers mention anywhere, is something.

    >>> class Layer:
    ...     def __init__(self):
    ...         self.table = {"scale": 2}
    ...         self.empty = {}
    ...         self.steps = {}
    ...         self.add("state")
    ...     def add(self, name):
    ...         self.steps[name] = 0
    >>> left_by(Layer, "empty")(), left_by(Layer, "table").name, left_by(Layer, "steps").name
    ({}, 'SOMETHING', 'SOMETHING')
    >>> left_by(Layer, "state").name, left_by(Layer, "last").name
    ('SOMETHING', 'NOTHING')
    """
    left = stores(cls).get(name, Left.NOTHING)
    if left is Left.NOTHING:
        return Left.SOMETHING if name in _mentioned(cls) else left
    if isinstance(left, Left) or name not in _touched(cls):
        return left
    return Left.SOMETHING if isinstance(left(), list | dict | set | deque) else left


@fact
def _construction(cls: type) -> tuple[CodeType, ...]:
    """The code of all constructors of a class, and of the methods that these call; not of what every module can do."""
    return reachable([parent for parent in cls.__mro__ if parent.__module__ != BASE], CONSTRUCTORS)


@fact
def _touched(cls: type) -> frozenset[str]:
    """The attributes that construction reads, or mentions as a text: their tables may have been filled by it."""
    return frozenset().union(*(read(code).loads | texts(code.co_consts) for code in _construction(cls)))


@fact
def _mentioned(cls: type) -> frozenset[str]:
    """The attributes that construction stores in methods it calls, or mentions as a text: it may well make them.

    A text may be what a constructor takes unless it is given another. Of PyTorch's own layers, all that they store.
    """
    codes = _construction(cls)
    found = {text for code in codes for text in texts(code.co_consts)}
    for parent in cls.__mro__:
        if parent.__module__.startswith("torch.nn.") and parent.__module__ != BASE:
            codes += tuple(code for _, code in own_codes(parent))
        for name in CONSTRUCTORS:
            found.update(texts(getattr(parent.__dict__.get(name), "__defaults__", None) or ()))
    return frozenset(found).union(store.name for code in codes for store in read(code).stores)


@fact
def stores(cls: type) -> dict[str, Callable[[], Any] | Left]:
    """For each attribute that a class's constructors store, what makes its value, or `Left.SOMETHING`.

    >>> class Layer:
    ...     def __init__(self, scale):
    ...         self.scale = scale
    ...         self.attention = None
    ...         self.maps = {}
    >>> made = stores(Layer)
    >>> made["scale"], made["attention"](), made["maps"]()
    (<Left.SOMETHING: 'a constructor stores a value that is computed'>, None, {})
    """
    found: dict[str, Callable[[], Any] | Left] = {}
    for parent in reversed(cls.__mro__):
        found.update(_own_stores(parent))
    return found


@fact
def _own_stores(cls: type) -> dict[str, Callable[[], Any] | Left]:
    """What the constructors that a class itself defines store."""
    found: dict[str, Callable[[], Any] | Left] = {}
    for name in CONSTRUCTORS:
        code = getattr(cls.__dict__.get(name), "__code__", None)
        if isinstance(code, CodeType) and not cls.__module__.startswith("torch.nn."):
            found.update(_stored(code))
    return found


def _stored(code: CodeType) -> dict[str, Callable[[], Any] | Left]:
    found: dict[str, Callable[[], Any] | Left] = {}
    before: list[dis.Instruction] = []
    for _, step in instructions(code):
        if _registers_none(before, step):
            found[str(before[-1].argval)] = lambda: None
        if step.opname == "STORE_ATTR":
            value = _made_by(before)
            name = str(step.argval)
            found[name] = value if name not in found or _same(found[name], value) else Left.SOMETHING
        before.append(step)
    return found


def _registers_none(before: list[dis.Instruction], step: dis.Instruction) -> bool:
    """Whether the step loads the second argument of ``self.register_buffer("mask", None)``."""
    if step.opname != "LOAD_CONST" or step.argval is not None or len(before) < 2:
        return False
    method, name = before[-2:]
    return method.argval == "register_buffer" and isinstance(name.argval, str)


def _same(one: Callable[[], Any] | Left, other: Callable[[], Any] | Left) -> bool:
    if isinstance(one, Left) or isinstance(other, Left):
        return one is other
    a, b = one(), other()
    return type(a) is type(b) and bool(a == b)


def _made_by(before: list[dis.Instruction]) -> Callable[[], Any] | Left:
    """What makes the value that is stored: the instruction before the one that loads ``self``."""
    if len(before) < 2 or not before[-1].opname.startswith("LOAD_FAST") or before[-1].argval != "self":
        return Left.SOMETHING
    step = before[-2]
    if step.opname in (*CONSTANTS, "RETURN_CONST"):
        value = step.argval
        return lambda: value
    if step.arg != 0:
        return _table_made_by(before[:-1]) or Left.SOMETHING
    if step.opname in ("CALL", "CALL_FUNCTION", "CALL_METHOD") and len(before) > 2:
        called = [one for one in before[-5:-2] if one.opname not in ("PRECALL", "PUSH_NULL")]
        loads = bool(called) and called[-1].opname in ("LOAD_GLOBAL", "LOAD_ATTR", "LOAD_METHOD")
        return EMPTY.get(called[-1].argval, Left.SOMETHING) if loads else Left.SOMETHING
    return {"BUILD_LIST": list, "BUILD_MAP": dict}.get(step.opname, Left.SOMETHING)


def _table_made_by(before: list[dis.Instruction]) -> Callable[[], Any] | None:
    """What makes the empty table of ``deque(maxlen=...)`` or ``defaultdict(...)``, where that was called last."""
    steps = []
    for step in reversed(before[-7:]):
        if step.opname.startswith("STORE"):
            break
        steps.append(step)
    by_name = any(step.opname in ("KW_NAMES", "CALL_KW", "CALL_FUNCTION_KW") for step in steps)
    called = {step.argval for step in steps if step.opname in ("LOAD_GLOBAL", "LOAD_ATTR", "LOAD_METHOD")}
    return deque if by_name and "deque" in called else defaultdict if "defaultdict" in called and not by_name else None


EMPTY: dict[str, Callable[[], Any]] = {"dict": dict, "list": list, "set": set, "OrderedDict": OrderedDict}
"""What makes an empty table when it is called with nothing."""
