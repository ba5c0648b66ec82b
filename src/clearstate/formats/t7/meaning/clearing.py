"""Clears an object graph: what work left behind goes, and every transient field is as its constructor left it.

A transient field is *replaced* by a fresh value. The object it pointed to is never edited: something that
is kept may point to it too. Bytes of a storage that no tensor sees go by giving the tensors a smaller storage.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from ....roles import DROPPED_BY_DEFAULT, Role
from ...coverage import cover
from ...differences import numbers_differ
from ..codec.objects import Object, Storage, Table, Tensor, Value, numeric_class, references, storage_of, view_of
from .classes import Left
from .survey import Place, survey

DEFAULT_TYPE = "torch.DoubleTensor"

LINKED = frozenset((Left.HOLDING, Left.SAME))
"""What is restored last, since it is made of what other fields hold then."""


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
    places = [place for place in survey(root).places if place.role in drop]
    for place in sorted(places, key=lambda place: place.fresh.left in LINKED):
        _restore(place)
    if Role.SLACK in drop:
        compact(root)
    return root


def not_cleared(root: Value, drop: Collection[Role] = DROPPED_BY_DEFAULT) -> list[str]:
    """Paths that `clear` would still change: empty for a cleared graph.

    >>> from clearstate.formats import t7
    >>> net = t7.Object("nn.Identity", t7.Table(output=t7.Tensor.of([1.0])))
    >>> not_cleared(net)
    ['output']
    >>> not_cleared(clear(net))
    []
    """
    return [str(place.path) for place in survey(root).places if place.role in drop and not _is_fresh(place)]


def _is_fresh(place: Place) -> bool:
    return _same(place.table.get(place.key), fresh_value(place), place.fresh.left)


def _restore(place: Place) -> None:
    old, new = place.table.get(place.key), fresh_value(place)
    if new is None:
        place.table.pop(place.key, None)
    elif not _same(old, new, place.fresh.left):
        place.table[place.key] = new


def _same(old: Value, new: Value, left: Left) -> bool:
    """Whether a field is already as constructed; it is then left alone, with whatever shares it."""
    if old is new:
        return True
    if type(old) is not type(new):
        return False
    if type(new) is Tensor:
        return left not in LINKED and _same_tensor(old, new)
    if type(new) is Table:
        return (
            left is not Left.SAME and len(old) == len(new) and all(_same(old.get(k), v, left) for k, v in new.items())
        )
    if type(new) is Storage:
        return old.typename == new.typename and np.array_equal(old.numpy(), new.numpy())
    return bool(old == new)


def _same_tensor(old: Tensor, new: Tensor) -> bool:
    if old.typename != new.typename or old.size != new.size:
        return False
    return old.storage is None if new.storage is None else numbers_differ(old.numpy(), new.numpy()) is None


def fresh_value(place: Place) -> Value:
    """What a constructor leaves in a field, or ``None`` where it leaves nothing.

    A tensor is of the class that the module's ``_type`` names; where nothing tells, of the class of the one
    that is there, since a module may have been converted.
    """
    fresh = place.fresh
    if fresh.when is not None and not fresh.when(place.table):
        if fresh.otherwise is None:
            return None
        fresh = fresh.otherwise
    left, detail, number = fresh[:3]
    owner, old = place.owner, place.table.get(place.key)
    if left is Left.TENSOR:
        return _tensor(_tensor_class(detail, old, owner), number, fresh.dims)
    if left is Left.TABLE:
        return Table()
    if left is Left.TENSORS:
        there = old if type(old) is Table else Table()
        return Table.of(_tensor(_tensor_class(None, there.get(i), owner), number) for i in range(1, detail + 1))
    if left is Left.VALUE:
        return float(detail) if isinstance(detail, int) and not isinstance(detail, bool) else detail
    if left is Left.ZEROS:
        return _zeros(old) if type(old) is Tensor else None
    if left is Left.STORAGE:
        return _longs(detail, place.table)
    if left is Left.HOLDING:
        return Table.of(value for path in detail if (value := _at(owner, path)) is not None)
    if left is Left.SAME:
        return _at(owner, detail)
    if left is Left.EMPTIED:
        if type(old) is Tensor:
            return Tensor(old.typename)
        return Table() if type(old) is Table else None
    return None


def _tensor(typename: str, number: float | None, dims: int = 1) -> Tensor:
    return Tensor(typename) if number is None else Tensor.of(np.full((1,) * dims, number), typename)


def _zeros(old: Tensor) -> Tensor:
    if not old.numel or old.storage is None:
        return Tensor(old.typename)
    if old.numel <= len(old.storage):
        return Tensor.of(np.zeros(old.size), old.typename)
    first, stop = view_of(old).extent  # elements that repeat go on doing so
    zeros = Storage.of(storage_of(old.typename), np.zeros(stop - first))
    return Tensor(old.typename, old.size, old.stride, 0, zeros)


def _longs(detail: int | str, table: Table) -> Storage:
    count = detail if isinstance(detail, int) else 1
    after = table.get(detail)
    values = after.numpy() if type(after) is Storage else ()
    return Storage.of("torch.LongStorage", [*[0] * count, *values])


def _at(owner: Object | None, path: str) -> Value:
    value: Value = owner
    for name in path.split("."):
        value = value.get(name) if type(value) in (Object, Table) else None
    return value


def _tensor_class(detail: str | None, old: Value, owner: Object | None) -> str:
    own = owner.get("_type") if owner is not None else None
    if not isinstance(own, str) or numeric_class(own) is None:
        own = _guessed_type(owner)
    if detail is None:
        return own or (old.typename if type(old) is Tensor else DEFAULT_TYPE)
    converted = own is not None and own.startswith("torch.Cuda") and type(old) is Tensor
    return str(old.typename) if converted else detail


def _guessed_type(owner: Object | None) -> str | None:
    """The type of a criterion, or a module of the years before ``_type``: that of its own tensors."""
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
