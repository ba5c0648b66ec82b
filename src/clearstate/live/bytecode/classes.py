"""Keeps what is found out about a class or a piece of code as long as that exists: each is looked at once.

Some classes are made on the fly, one for each module (parametrizations, ``fully_shard``): none is kept alive here.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from types import CodeType
from typing import Any, TypeVar

T = TypeVar("T")
W = TypeVar("W", type, CodeType)

_tables: list[dict[int, tuple[Any, Any]]] = []


def fact(find: Callable[[W], T]) -> Callable[[W], T]:
    """A function of a class or a piece of code that is run once for each; what it gives must not hold it.

    >>> asked = []
    >>> @fact
    ... def short(cls):
    ...     asked.append(cls)
    ...     return cls.__name__
    >>> short(int), short(int), asked
    ('int', 'int', [<class 'int'>])
    """
    table: dict[int, tuple[Any, T]] = {}
    _tables.append(table)

    def found(cls: W) -> T:
        known = table.get(id(cls))
        if known is None:
            key = id(cls)
            known = table[key] = weakref.ref(cls, lambda _: table.pop(key, None)), find(cls)
        return known[1]

    found.__doc__ = find.__doc__
    return found


def forget() -> None:
    """Forgets all that is known of classes: something new was said of one."""
    for table in _tables:
        table.clear()


def qualified(cls: type) -> str:
    """A class's qualified name.

    >>> import torch
    >>> qualified(torch.nn.Linear)
    'torch.nn.modules.linear.Linear'
    """
    return f"{cls.__module__}.{cls.__qualname__}"
