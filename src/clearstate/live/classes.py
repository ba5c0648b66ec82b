"""What is found out about a class is found once, and forgotten with the class.

Some classes are made on the fly, one for each module (parametrizations, ``fully_shard``): none is kept alive here.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

_tables: list[dict[int, tuple[Any, Any]]] = []


def fact(find: Callable[[type], T]) -> Callable[[type], T]:
    """A function of a class that is run once for each class; what it gives must not hold the class.

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

    def found(cls: type) -> T:
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
