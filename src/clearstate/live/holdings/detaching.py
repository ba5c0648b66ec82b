"""Detaches tensors from the graphs that hang on them, alone or inside tables and objects: they see the same memory."""

from __future__ import annotations

import copy
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor

from .undoable import Undo
from .values import OPAQUE, fields_of


def detached(value: Any, graphs: Collection[int], done: list[Undo], own: bool = True) -> Any:
    """The value with some of its tensors detached: they see the same memory.

    Lists and dicts stay the same objects and get other entries. Tuples and objects are made anew where something in
    them changes, and so is all that is in objects: others may hold these.

    Args:
        value: a tensor, or what holds some.
        graphs: the ids of the tensors.
        done: gets what undoes each change.
        own: whether tables may be changed themselves.

    >>> weight = torch.nn.Parameter(torch.ones(2))
    >>> views = [weight[:1], 3]
    >>> detached(views, {id(views[0])}, []) is views
    True
    >>> views
    [tensor([1.]), 3]
    """
    return _detached(value, graphs, done, own, {})


def _detached(value: Any, graphs: Collection[int], done: list[Undo], own: bool, met: dict[int, Any]) -> Any:
    if isinstance(value, Tensor):
        return value.detach() if id(value) in graphs else value
    if id(value) in met:
        return met[id(value)]
    met[id(value)] = value  # in cycles, the old one
    changed = {}
    inside = own and isinstance(value, list | tuple | dict)
    for key, item in _items(value):
        new = _detached(item, graphs, done, inside, met)
        if new is not item:
            changed[key] = new
    if changed:
        met[id(value)] = _with(value, changed, done, own)
    return met[id(value)]


def _items(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, list | tuple):
        return list(enumerate(value))
    if isinstance(value, set | frozenset):
        return [(item, item) for item in value]
    return [] if isinstance(value, (torch.nn.Module, *OPAQUE)) else fields_of(value)


def _with(value: Any, changed: dict[Any, Any], done: list[Undo], own: bool) -> Any:
    if isinstance(value, tuple):
        items = [changed.get(i, item) for i, item in enumerate(value)]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, set | frozenset):
        return type(value)(changed.get(item, item) for item in value)
    if isinstance(value, list | dict):
        new = value if own else copy.copy(value)
        for key, item in changed.items():
            old, new[key] = new[key], item
            done.append(lambda key=key, old=old: new.__setitem__(key, old))  # type: ignore[misc]
        return new
    new = copy.copy(value)
    for name, item in changed.items():
        object.__setattr__(new, name, item)
    return new
