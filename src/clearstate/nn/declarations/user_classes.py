"""A user's class in the catalog of Torch7 classes: below the class it inherits from."""

from __future__ import annotations

from typing import Any

from ...formats.t7.meaning.classes import lookup, register

_declared: set[str] = set()
"""The classes that `put_into_catalog` put into the catalog."""


def put_into_catalog(cls: Any) -> None:
    """Puts a user's class into the catalog, below the class it inherits from; an entry of the user's own stays."""
    if lookup(cls.typename) is not None and cls.typename not in _declared:
        return
    _declared.add(cls.typename)
    above = (c.__dict__.get("typename") for c in cls.__mro__[1:])
    parent = next(name for name in above if name and name != cls.typename and lookup(name) is not None)
    register(cls.typename, parent, transient=" ".join(cls.__dict__.get("transient", ())))
