"""Which tensors a table holds, in whatever form it was saved: by name, in a list, in an object that is a dict.

Arrays of NumPy, tensors with attributes and tensors wrapped one by one (``{name: (tensor, step)}``) count as tensors.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..layout.models import Place, places
from ..layout.programs import is_module, is_moment, is_subclass, tensor_in
from ..pickle.arrays import array_of
from ..pickle.stubs import LEAVES, Global, Storage, Stub, Value, children

WRAPPED = 4
"""Entries up to which a container is looked into for the one tensor that it is around."""

NESTED = 3
"""Levels of lists that are read as one."""


class Numbers(NamedTuple):
    """What is seen of a tensor or an array: its type, its sizes, and which memory it looks at."""

    dtype: str
    size: tuple[int, ...]
    view: tuple[Any, ...] | None = None

    @property
    def is_floating(self) -> bool:
        """Whether they can be weights."""
        return is_floating(self.dtype)

    @property
    def numel(self) -> int:
        """How many there are."""
        return math.prod(self.size)


def is_floating(dtype: str) -> bool:
    """Whether numbers of a type can be weights.

    >>> is_floating("bfloat16"), is_floating("int64")
    (True, False)
    """
    return dtype.startswith(("float", "bfloat", "complex", "q"))


def numbers_of(value: Value, levels: int = 1) -> Numbers | None:
    """What is seen of a tensor, of an array, or of the one that something is around; ``None`` for any other value.

    >>> numbers_of([3, None]) is None
    True
    """
    if (tensor := tensor_in(value)) is not None:
        view = (id(tensor.storage), tensor.offset, tensor.size, tensor.stride)
        return Numbers(tensor.dtype, tensor.size, view)
    if isinstance(value, Stub):
        if (array := array_of(value)) is not None:
            return Numbers(array.dtype.name, array.shape)
        return _of_subclass(value) if is_subclass(value) else None
    if not levels or not isinstance(value, dict | list | tuple) or isinstance(value, Global) or len(value) > WRAPPED:
        return None
    held = [(key, item) for key, item in children(value) if type(item) not in LEAVES]
    if len(held) != 1 or is_moment(held[0][0]):
        return None
    return numbers_of(held[0][1], levels - 1)


def _of_subclass(value: Stub) -> Numbers | None:
    """A tensor with attributes, or of a class of its own: what rebuilds it has a storage and sizes."""
    for part in value.args:
        if isinstance(part, tuple) and len(part) > 3 and isinstance(part[0], Storage) and isinstance(part[2], tuple):
            return Numbers(part[0].dtype, part[2], (id(part[0]), part[1], part[2], part[3]))
        if isinstance(part, tuple) and (found := [item for item in part if tensor_in(item) is not None]):
            return numbers_of(found[0])
    return None


def entries_of(value: Value) -> dict[Any, Any] | None:
    """The entries of a dict, or of an object that is one (``defaultdict``, a class of a user's); else ``None``.

    >>> entries_of({"a": 1}), entries_of([1])
    ({'a': 1}, None)
    """
    if isinstance(value, dict):
        return value
    if isinstance(value, Stub) and value.entries and not is_module(value):
        return {key: item for key, item in value.entries if isinstance(key, str | int | tuple)}
    if isinstance(value, list) and value and all(_is_pair(item) for item in value):
        return dict(value)
    return None


def _is_pair(item: Value) -> bool:
    return isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str) and type(item[1]) not in LEAVES


def named(value: Value) -> dict[str, Place]:
    """The tensors that a table, or a module, has by name, each with its place; none where it is no table.

    >>> named({"epoch": 3})
    {}
    """
    if is_module(value):
        return {name: place for name, place in places(value).items() if tensor_in(place.value) is not None}
    entries = entries_of(value)
    if entries is None:
        return {}
    found = {name: Place(entries, name) for name in entries if isinstance(name, str)}
    return {name: place for name, place in found.items() if numbers_of(place.value) is not None}


def nested(value: Value) -> dict[str, Place]:
    """The same of tables within tables: names are joined by dots.

    >>> nested({"encoder": {"steps": 3}})
    {}
    """
    if not isinstance(value, dict) or is_module(value):
        return named(value)
    return {name: place for name, place in places(value).items() if numbers_of(place.value, 0) is not None}


def listed(value: Value) -> list[Place]:
    """The places of the tensors of a list, of lists in it, or of a dict by number, where all are floating; else none.

    >>> listed([1, 2]), listed({})
    ([], [])
    """
    found: list[Place] = []
    for place in _flat(value, 0):
        numbers = numbers_of(place.value)
        if numbers is None:
            if type(place.value) in LEAVES:
                continue
            return []
        if not numbers.is_floating:
            return []
        found.append(place)
    return found


def _flat(value: Value, level: int) -> Iterator[Place]:
    if isinstance(value, dict):
        if not value or not all(type(key) is int or (isinstance(key, str) and key.isdecimal()) for key in value):
            return
    elif not isinstance(value, list | tuple) or isinstance(value, Global):
        return
    for key in value if isinstance(value, dict) else range(len(value)):
        item = value[key]
        if level < NESTED and isinstance(item, list | tuple) and not isinstance(item, Global) and len(item) > 1:
            yield from _flat(item, level + 1)
        else:
            yield Place(value, key)
