"""``nn.utils``: what Torch7 users call by this name, for nested tables of tensors and for layers of their own.

A table is a list or a dict. Functions that fill a table change it, and the tensors in it, in place.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import torch
from torch import Tensor

from .declarations.bad_input import describe
from .protocol.ownership import emptied, empty
from .protocol.sharing import SharingKept

M = TypeVar("M", bound=torch.nn.Module)

__all__ = [
    "add_singleton_dimension",
    "clear",
    "contiguous_view",
    "recursive_add",
    "recursive_copy",
    "recursive_fill",
    "recursive_resize_as",
    "recursive_type",
]


def recursive_type(param: Any, type: Any, tensor_cache: SharingKept | None = None) -> Any:
    """Converts the tensors and modules in a nested table; tensors that share memory share it afterwards.

    Args:
        param: a tensor, a module, or a table of these, which is changed in place.
        type: ``torch.float64``, or a Torch7 name: ``"torch.DoubleTensor"``.
        tensor_cache: what `cache` gave for an earlier call of the same ``type``, to keep sharing between the calls.

    Returns:
        the table or module itself, or the converted tensor.

    >>> whole = torch.zeros(4)
    >>> a, b = recursive_type([whole[:2], whole[1:]], "torch.DoubleTensor")
    >>> a.dtype, b[0].fill_(7).item() == a[1].item()
    (torch.float64, True)

    Follows Torch7's ``nn.utils.recursiveType``.
    """
    convert = cache(type) if tensor_cache is None else tensor_cache
    if isinstance(param, Tensor):
        return convert(param)
    if isinstance(param, torch.nn.Module):
        return param._apply(convert)  # type: ignore[no-untyped-call]
    for key, value in _items(param):
        param[key] = recursive_type(value, type, convert)
    return param


def cache(type: Any) -> SharingKept:
    """A conversion to a type, for several calls of `recursive_type` that keep sharing between them.

    >>> whole = torch.zeros(2)
    >>> kept = cache(torch.float64)
    >>> a = recursive_type(whole[:1], torch.float64, kept)
    >>> b = recursive_type([whole], torch.float64, kept)[0]
    >>> a.data_ptr() == b.data_ptr()
    True
    """
    return SharingKept(lambda t: t.type(type))


def recursive_resize_as(t1: Any, t2: Any) -> tuple[Any, Any]:
    """Gives ``t1`` the form of ``t2``: the same keys, tensors of the same sizes, with any values.

    Args:
        t1: a tensor or table, changed in place; or anything else, which is replaced.
        t2: a tensor or table.

    Returns:
        ``t1`` and ``t2``.

    Raises:
        TypeError: ``t2`` is neither tensor nor table.

    >>> t1, _ = recursive_resize_as([torch.zeros(1), torch.zeros(9)], [torch.ones(2, 3)])
    >>> len(t1), t1[0].shape
    (1, torch.Size([2, 3]))

    Follows Torch7's ``nn.utils.recursiveResizeAs``.
    """
    if isinstance(t2, Tensor):
        return _sized(t1, t2), t2
    t1 = _as_table(t1, t2)
    for key, value in _items(t2):
        _put(t1, key, recursive_resize_as(_at(t1, key), value)[0])
    if isinstance(t1, list):
        del t1[len(t2) :]
    else:
        for key in [key for key in t1 if key not in t2]:
            del t1[key]
    return t1, t2


def recursive_fill(t2: Any, val: float) -> Any:
    """Fills every tensor of a nested table with a number; returns the table.

    >>> recursive_fill({"a": torch.zeros(2), "b": [torch.zeros(1)]}, 3)
    {'a': tensor([3., 3.]), 'b': [tensor([3.])]}

    Follows Torch7's ``nn.utils.recursiveFill``.
    """
    if isinstance(t2, Tensor):
        with torch.no_grad():
            return t2.fill_(val)
    for key, value in _items(t2):
        t2[key] = recursive_fill(value, val)
    return t2


def recursive_add(t1: Any, val: Any, t2: Any = None) -> tuple[Any, Any]:
    """Adds ``val`` (1 where it is left out) times each tensor of ``t2`` to that of ``t1`` at the same place.

    Returns:
        ``t1`` and ``t2``.

    >>> recursive_add([torch.ones(2)], [torch.ones(2)])[0]
    [tensor([2., 2.])]
    >>> recursive_add([torch.ones(2)], 5, [torch.ones(2)])[0]
    [tensor([6., 6.])]

    Follows Torch7's ``nn.utils.recursiveAdd``.
    """
    if t2 is None:
        val, t2 = 1, val
    if isinstance(t1, Tensor) and isinstance(t2, Tensor):
        with torch.no_grad():
            return t1.add_(t2, alpha=val), t2
    if isinstance(t2, Tensor):
        raise TypeError(f"expected two tensors or two tables, got {describe(t1)} and {describe(t2)}")
    t1 = t1 if isinstance(t1, list | dict) else [t1]
    for key, value in _items(t2):
        t1[key] = recursive_add(t1[key], val, value)[0]
    return t1, t2


def recursive_copy(t1: Any, t2: Any, non_blocking: bool = False) -> tuple[Any, Any]:
    """Copies the tensors of ``t2`` into those of ``t1``, which take their sizes; missing ones are made.

    Returns:
        ``t1`` and ``t2``.

    >>> recursive_copy(None, [torch.ones(2), [torch.zeros(1)]])[0]
    [tensor([1., 1.]), [tensor([0.])]]

    Follows Torch7's ``nn.utils.recursiveCopy``.
    """
    if isinstance(t2, Tensor):
        with torch.no_grad():
            return _sized(t1, t2).copy_(t2, non_blocking=non_blocking), t2
    t1 = _as_table(t1, t2)
    for key, value in _items(t2):
        _put(t1, key, recursive_copy(_at(t1, key), value, non_blocking)[0])
    return t1, t2


def add_singleton_dimension(*arguments: Any) -> Tensor:
    """A view of a tensor with one more dimension, of size 1: ``add_singleton_dimension([view,] tensor [, dim])``.

    Args:
        view: a tensor that becomes the view; a new one unless given.
        tensor: any tensor.
        dim: where the new dimension is: from 0 (where it is unless given) to the number of dimensions.

    Raises:
        ValueError: there is no such place.

    >>> add_singleton_dimension(torch.ones(2, 3), 1).shape
    torch.Size([2, 1, 3])

    Follows Torch7's ``nn.utils.addSingletonDimension``.
    """
    three = len(arguments) == 3
    view, tensor, dim = arguments if three else (None, arguments[0], arguments[1] if len(arguments) > 1 else 0)
    if not isinstance(tensor, Tensor) or not (view is None or isinstance(view, Tensor)):
        raise TypeError(f"expected tensors, got {', '.join(describe(a) for a in arguments)}")
    if not 0 <= dim <= tensor.dim():
        raise ValueError(f"a dimension can be put from 0 to {tensor.dim()} into {describe(tensor)}, not at {dim}")
    return _become(view, tensor.unsqueeze(dim))


def contiguous_view(output: Tensor | None, input: Tensor, *size: int) -> Tensor:
    """The input in another size: a view of it where it is contiguous, else of a contiguous copy.

    Args:
        output: a tensor that becomes the result; a new one if ``None``.
        input: any tensor.
        size: as `torch.Tensor.view` takes it.

    >>> contiguous_view(None, torch.ones(2, 3).t(), 6).shape
    torch.Size([6])

    Follows Torch7's ``nn.utils.contiguousView``.
    """
    return _become(output, input.contiguous().view(*size))


def clear(module: M, *names: str | Iterable[str]) -> M:
    """Empties attributes of a module: for the `clear_state` of layers that one writes oneself.

    A tensor stays the same object and lets go of its memory, a table loses its entries (the tensors in it let go of
    theirs), anything else becomes ``None``; what the module does not have is passed over.

    Args:
        module: any module.
        names: attributes; or one list of them.

    Returns:
        the module.

    Raises:
        ValueError: a parameter is among them.

    >>> import clearstate.nn as nn
    >>> layer = nn.Identity()
    >>> layer.mask, layer.count = torch.ones(3), 7
    >>> _ = clear(layer, "mask", "count")
    >>> layer.mask, layer.count
    (tensor([]), None)

    Follows Torch7's ``nn.utils.clear``.
    """
    for name in [n for given in names for n in ([given] if isinstance(given, str) else given)]:
        held = getattr(module, name, None)
        if isinstance(held, torch.nn.Parameter):
            raise ValueError(f"{name} is a parameter of {type(module).__name__}: clearing never drops those")
        if isinstance(held, Tensor):
            setattr(module, name, empty(held))
        elif isinstance(held, list | dict):
            emptied(held)
        elif held is not None:
            setattr(module, name, None)
    return module


def _items(table: Any) -> list[tuple[Any, Any]]:
    if isinstance(table, dict):
        return list(table.items())
    if isinstance(table, list):
        return list(enumerate(table))
    raise TypeError(f"expected a tensor, or a list or dict of them, got {describe(table)}")


def _as_table(value: Any, like: Any) -> Any:
    """``value`` if it is a table of the kind of ``like``, else a new one with it as the first entry."""
    kind = dict if isinstance(like, dict) else list
    if isinstance(value, kind):
        return value
    return [value] if kind is list and isinstance(value, Tensor) else kind()


def _at(table: Any, key: Any) -> Any:
    if isinstance(table, dict):
        return table.get(key)
    return table[key] if key < len(table) else None


def _put(table: Any, key: Any, value: Any) -> None:
    if isinstance(table, list) and key == len(table):
        table.append(value)
    else:
        table[key] = value


def _sized(t1: Any, t2: Tensor) -> Tensor:
    """``t1`` resized, or a new tensor where it is none."""
    if not isinstance(t1, Tensor):
        return torch.empty_like(t2, requires_grad=False)
    if t1.shape == t2.shape:
        return t1
    if t1.is_contiguous():
        return t1.resize_(t2.shape)
    t1.data = t1.new_empty(t2.shape)
    return t1


def _become(own: Tensor | None, result: Tensor) -> Tensor:
    """The result, as the object ``own`` where there is one."""
    if own is None:
        return result
    own.data = result.detach()
    return own
