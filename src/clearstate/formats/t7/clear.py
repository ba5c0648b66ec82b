"""Clears an object graph: what work left behind goes, and every transient field is as its constructor left it.

A transient field is *replaced* by a fresh value. The object it pointed to is never edited: something that
is kept may point to it too. Bytes of a storage that no tensor sees go by giving the tensors a smaller storage.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from ...roles import DROPPED_BY_DEFAULT, Role
from .classes import Fresh, Left
from .coverage import cover, view_of
from .data import Held
from .objects import Object, Storage, Table, Tensor, Value, numeric_class, references
from .survey import Place, survey

DEFAULT_TYPE = "torch.DoubleTensor"


def clear(root: Value, drop: Collection[Role] = DROPPED_BY_DEFAULT) -> Value:
    """Drops these roles from an object graph, in place, and returns it.

    A second call changes nothing.

    Args:
        root: anything that `load` returns; modules are found wherever they are in it.
        drop: the roles to drop.

    >>> net = Object("nn.Linear", Table(weight=Tensor.of([1.0]), output=Tensor.of([2.0, 3.0])))
    >>> clear(net) is net, net["weight"], net["output"]
    (True, Tensor('torch.DoubleTensor', 1), Tensor('torch.DoubleTensor', empty))
    """
    for place in survey(root).places:
        if place.role in drop:
            _restore(place)
    if Role.SLACK in drop:
        compact(root)
    return root


def not_cleared(root: Value, drop: Collection[Role] = DROPPED_BY_DEFAULT) -> list[str]:
    """Paths that `clear` would still change: empty for a cleared graph."""
    return [str(place.path) for place in survey(root).places if place.role in drop and not _is_fresh(place)]


def _is_fresh(place: Place) -> bool:
    old = place.table.get(place.key)
    return _same(old, fresh_value(place.fresh, old, place.owner))


def _restore(place: Place) -> None:
    old = place.table.get(place.key)
    new = fresh_value(place.fresh, old, place.owner)
    if new is None:
        place.table.pop(place.key, None)
    elif not _same(old, new):
        place.table[place.key] = new


def _same(old: Value, new: Value) -> bool:
    """Whether a field is already as constructed; it is then left alone, with whatever shares it."""
    if type(old) is not type(new):
        return False
    if type(new) is Tensor:
        same: bool = old.typename == new.typename and not old.size and old.storage is None
        return same
    if type(new) is Table:
        return len(old) == len(new) and all(_same(old.get(key), value) for key, value in new.items())
    if type(new) is Storage:
        return old.typename == new.typename and len(old) == len(new) and not old.numpy().any()
    return bool(old == new)


def fresh_value(fresh: Fresh, old: Value, owner: Object | None) -> Value:
    """What a constructor leaves in a field, or ``None`` where it leaves nothing.

    Args:
        fresh: the declaration.
        old: what is in the field now; its tensor class is taken over, since a module may have been converted.
        owner: the module, whose ``_type`` is the class of its tensors.
    """
    left, detail = fresh
    if left is Left.TENSOR:
        return Tensor(_tensor_class(detail, old, owner))
    if left is Left.TABLE:
        return Table()
    if left is Left.TENSORS:
        return Table.of(Tensor(_tensor_class(None, None, owner)) for _ in range(detail))
    if left is Left.VALUE:
        return float(detail) if isinstance(detail, int) and not isinstance(detail, bool) else detail
    if left is Left.STORAGE:
        return Storage("torch.LongStorage", Held(np.zeros(detail, "i8")))
    if left is Left.EMPTIED:
        if type(old) is Tensor:
            return Tensor(old.typename)
        return Table() if type(old) is Table else None
    return None


def _tensor_class(detail: str | None, old: Value, owner: Object | None) -> str:
    own = owner.get("_type") if owner is not None else None
    if not isinstance(own, str) or numeric_class(own) is None:
        own = _guessed_type(owner)
    if detail is None:
        return own or (old.typename if type(old) is Tensor else DEFAULT_TYPE)
    converted = own is not None and own.startswith("torch.Cuda") and type(old) is Tensor
    return str(old.typename) if converted else detail


def _guessed_type(owner: Object | None) -> str | None:
    """The type of a module of the years before ``_type``: that of its own tensors."""
    for name in ("weight", "running_mean", "output", "gradInput"):
        found = owner.get(name) if owner is not None else None
        if type(found) is Tensor:
            return found.typename
    return None


def compact(root: Value) -> None:
    """Gives tensors storages without the bytes that none of them sees. Overlapping views overlap as before."""
    viewers, whole = sharing(root)
    for key, (storage, tensors) in viewers.items():
        if key in whole:
            continue
        groups = cover([view_of(t) for t in tensors])
        if sum(group.count for group in groups) == len(storage):
            continue
        runs = [run for group in groups for run in group.runs]
        smaller = Storage(storage.typename, storage.data.select(runs), version=storage.version)
        for tensor in tensors:
            tensor.storage = smaller
            if not tensor.numel:
                tensor.offset = 0
        base = 0
        for group in groups:
            for i, (offset, strides) in group.moved.items():
                tensors[i].offset, tensors[i].stride = base + offset, strides
            base += group.count


def sharing(root: Value) -> tuple[dict[int, tuple[Storage, list[Tensor]]], set[int]]:
    """Every storage that tensors see with those tensors, and the ids of the storages that are values themselves."""
    viewers: dict[int, tuple[Storage, list[Tensor]]] = {}
    whole: set[int] = set()
    seen: set[int] = set()
    stack: list[Any] = [root]
    while stack:
        value = stack.pop()
        kind = type(value)
        if kind is Storage:
            whole.add(id(value))
        elif kind is Tensor:
            if id(value) not in seen and value.storage is not None:
                viewers.setdefault(id(value.storage), (value.storage, []))[1].append(value)
            seen.add(id(value))
        elif id(value) not in seen:
            below = [v for v in references(value) if v is not None]
            if below:
                seen.add(id(value))
                stack.extend(reversed(below))
    return viewers, whole
