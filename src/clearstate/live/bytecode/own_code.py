"""The code that a class itself defines, method by method, and the names that it mentions."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Iterator, Sequence
from types import CodeType
from typing import Any

import torch

from .classes import fact

BASE = torch.nn.Module.__module__
"""Where what every module can do is defined: it says nothing of a class."""

CONSTRUCTORS = ("__init__", "__post_init__", "reset_parameters")
"""Methods that make an object what it is before work."""

INSIDE = ("__func__", "fget", "fset", "fdel", "func")
"""Where methods of classes, properties and partial functions keep their functions."""


@fact
def own_codes(cls: type) -> Sequence[tuple[str, CodeType]]:
    """The code of the methods and properties that a class itself defines, by name; of decorated ones what is inside."""
    found: list[tuple[str, CodeType]] = []
    for name, value in list(cls.__dict__.items()):
        for part in (value, *(getattr(value, field, None) for field in INSIDE)):
            code = getattr(inspect.unwrap(part) if callable(part) else part, "__code__", None)
            if isinstance(code, CodeType):
                found.append((name, code))
    return found


def nested(codes: Iterable[CodeType]) -> Iterator[CodeType]:
    """These pieces of code, and all functions that are defined inside them."""
    waiting = list(codes)
    while waiting:
        code = waiting.pop()
        yield code
        waiting += [inner for inner in code.co_consts if isinstance(inner, CodeType)]


def working(cls: type) -> list[CodeType]:
    """The code of the methods that a class itself defines, save constructors; nothing of what every module can do."""
    return [] if cls.__module__ == BASE else [code for name, code in own_codes(cls) if name not in CONSTRUCTORS]


def reachable(classes: Iterable[type], starts: Collection[str]) -> tuple[CodeType, ...]:
    """The code of methods of some classes, of what they call by name, save ``forward``, and of all functions inside."""
    methods: dict[str, list[CodeType]] = {}
    for cls in classes:
        for name, code in own_codes(cls):
            methods.setdefault(name, []).append(code)
    methods.pop("forward", None)
    found: dict[CodeType, None] = {}
    waiting = [code for name in starts for code in methods.get(name, ())]
    while waiting:
        code = waiting.pop()
        if code not in found:
            found[code] = None
            waiting += [more for name in code.co_names for more in methods.get(name, ())]
    return tuple(nested(found))


def texts(values: Iterable[Any]) -> frozenset[str]:
    """Those of some values that are texts."""
    return frozenset(value for value in values if isinstance(value, str))


def mentions(codes: Iterable[CodeType]) -> frozenset[str]:
    """Every name and every text in some pieces of code."""
    return frozenset().union(*(texts(code.co_consts).union(code.co_names) for code in codes))


@fact
def names(cls: type) -> frozenset[str]:
    """Every name and text that a class's own methods mention: its author knows of these.

    >>> class Layer:
    ...     def __init__(self):
    ...         self.register_buffer("total_ops", None)
    >>> "total_ops" in names(Layer)
    True
    """
    return frozenset().union(*map(_own_names, cls.__mro__))


@fact
def _own_names(cls: type) -> frozenset[str]:
    """Those that the methods mention which a class itself defines, and the fields that it declares."""
    if cls.__module__ == BASE:
        return frozenset()
    fields = {name for name, value in cls.__dict__.items() if not callable(value) and not name.startswith("__")}
    return mentions(nested(code for _, code in own_codes(cls))).union(vars(cls).get("__annotations__", ()), fields)
