"""Ownership: a module's ``output`` and ``grad_input`` are tensor objects of its own, refilled by every forward.

A result is *adopted*: the module's tensor object takes over the result's storage. So an Identity may share
memory with its input but never is its input, emptying the object frees only the module's own hold, and
whoever holds the object from outside sees it emptied by `clear_state` and filled again by the next forward.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from sys import getrefcount
from typing import Any

import torch
from torch import Tensor

Kept = Any
"""A tensor, a number, or a list or dict of these, nested as deep as one likes: what Torch7 calls a table."""


def adopt(own: Kept, result: Kept, former: Former | None = None) -> Kept:
    """The module's own value, holding ``result``.

    Args:
        own: what the module holds now; its objects take the result's parts over.
        result: what was computed; tensors of any shape, alone or in nested lists and dicts.
        former: what `emptied` gave when the value was emptied.

    >>> own, result = torch.empty(0), torch.ones(3)
    >>> adopt(own, result) is own, own.data_ptr() == result.data_ptr()
    (True, True)
    """
    if isinstance(result, Tensor):
        if type(own) is not Tensor or own.requires_grad:
            return result.data
        try:
            own.data = result  # takes nothing of the result's graph
        except RuntimeError:  # another device or layout, an inference tensor: no object can change to that
            return result.data
        return own
    if isinstance(result, list | tuple | dict):
        kind = dict if isinstance(result, dict) else list
        table, members = _table(own, former, kind)
        parts = {
            key: adopt(members.get(key, NOBODY)[0], part, members.get(key, NOBODY)[1]) for key, part in _items(result)
        }
        table.clear()
        table.update(parts) if kind is dict else table.extend(parts.values())
        return table
    return result


NOBODY: tuple[Kept, Former | None] = (None, None)


def _items(table: Kept) -> Iterable[tuple[Any, Kept]]:
    return table.items() if isinstance(table, dict) else enumerate(table)


class Former:
    """The objects that a table held before it was emptied: the tensors weakly, since nobody else may hold them."""

    __slots__ = ("members", "table")

    def __init__(self, table: Kept, members: dict[Any, Any]) -> None:
        self.table = table
        self.members = members


def _table(own: Kept, former: Former | None, kind: type) -> tuple[Any, dict[Any, tuple[Kept, Former | None]]]:
    """The table object that takes a result over; for each place in it, who was there, and the `Former` of that."""
    if former is not None and type(former.table) is kind:
        members = {key: _alive(member) for key, member in former.members.items()}
        return former.table, members | {key: (value, None) for key, value in _items(former.table)}
    if type(own) is kind:
        return own, {key: (value, None) for key, value in _items(own)}
    return kind(), {}


def _alive(member: Any) -> tuple[Kept, Former | None]:
    if isinstance(member, Former):
        return member.table, member
    return (member() if member is not None else None), None


def emptied(own: Kept, keep: int = 0) -> tuple[Kept, Former | None]:
    """Empties what a module holds; returns the value as its constructor left it, and its former members.

    A tensor becomes empty, a table loses its entries save the first ``keep`` ones, which become empty tensors;
    anything else becomes ``None``. The objects themselves stay the same.

    >>> table = [torch.ones(2), torch.ones(3)]
    >>> inner = table[0]
    >>> _, former = emptied(table)
    >>> table, inner
    ([], tensor([]))
    >>> adopt(table, [torch.zeros(2)], former)[0] is inner
    True
    """
    if isinstance(own, Tensor):
        return empty(own), None
    if isinstance(own, TABLES):
        members: dict[Any, Any] = {}
        for key, part in _items(own):
            value, former = emptied(part)
            members[key] = weakref.ref(value) if isinstance(value, Tensor) else former
        if isinstance(own, list):
            del own[keep:]
        else:
            own.clear()
        return own, Former(own, members)
    return None, None


def _references() -> tuple[int, int]:
    held: Any = {"output": object()}
    held = held.pop("output")
    return getrefcount(held), next(map(getrefcount, [object()]))


ALONE, ALONE_IN_TABLE = _references()
"""What ``getrefcount`` says of an object that only one variable holds; of one that only a list holds, under ``map``."""


def alone_in(table: list[Any]) -> bool:
    """Whether nobody but this list holds what is in it: tensors of the kind that constructors make.

    >>> table = [torch.ones(2), torch.ones(3)]
    >>> alone_in(table)
    True
    >>> held = table[1]
    >>> alone_in(table)
    False
    """
    return all(count == ALONE_IN_TABLE for count in map(getrefcount, table)) and all(
        type(part) is Tensor and part.dtype is torch.float32 and part.is_cpu for part in table
    )


TABLES = (list, dict)
"""What a table is in Python."""


def empty(own: Tensor) -> Tensor:
    """Takes the storage away from a tensor object; returns the object.

    To autograd the object is not changed by it: graphs of others that begin at it stay good.
    """
    if not own.numel() and own.dim() == 1 and own.layout is torch.strided and not own.untyped_storage().nbytes():
        return own
    try:
        own.data = own.new_empty(0)
    except RuntimeError:
        return torch.empty(0, dtype=own.dtype, device=own.device)
    return own


def own_alias(value: Tensor) -> Tensor:
    """Another tensor object on the same memory, in the same graph."""
    return value.view_as(value) if value.requires_grad else value.detach()


def tensors(value: Kept) -> Iterator[Tensor]:
    """All tensors in a nested table, in order.

    >>> [t.item() for t in tensors([torch.tensor(1), {"a": torch.tensor(2)}, 3.0])]
    [1, 2]
    """
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from tensors(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from tensors(part)


def mapped(value: Kept, change: Callable[[Tensor], Any]) -> Kept:
    """A nested table of the same form, with every tensor changed.

    >>> mapped([torch.ones(2), [torch.ones(3)]], lambda t: t.numel())
    [2, [3]]
    """
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, list | tuple):
        return [mapped(part, change) for part in value]
    if isinstance(value, dict):
        return {key: mapped(part, change) for key, part in value.items()}
    return value
