"""Makes a stand-in of a model: other modules with the same parameters. Whatever is done to it, the model stays."""

from __future__ import annotations

import copy
import functools
import types
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.utils.hooks import RemovableHandle

from ..holdings.attributes import holds_an_optimizer
from ..holdings.values import TABLES, fields_of
from ..holdings.wrapping import wrapping_step
from .copies import Copies
from .origins import remember
from .sharded import unsharded

M = TypeVar("M", bound=torch.nn.Module)


DEEPEST_TABLE = 100
"""How deep tables inside tables are copied for a stand-in; those inside are the model's own."""

BOUND = (types.MethodType, types.FunctionType, functools.partial)
"""What can call a module."""

REGISTERED = ("_parameters", "_buffers", "_non_persistent_buffers_set")


def stand_in_for(model: M, *, copies: Copies | None = None) -> tuple[M, dict[int, torch.nn.Module]]:
    """A model of the same classes whose modules and tables are new, and whose tensors are the model's own.

    Args:
        model: any module; shared modules are shared in the stand-in, too.
        copies: give the stand-in copies of the buffers and of what attributes hold, so that a run of it writes none of
            the model's.

    Returns:
        the stand-in, and for each module of the model (by id) its stand-in.

    >>> layer = torch.nn.Linear(2, 2)
    >>> other, _ = stand_in_for(layer)
    >>> other is layer, other.weight is layer.weight
    (False, True)
    """
    made: dict[int, Any] = {}
    memo: dict[int, Any] = {}
    _modules_for(model, made, copies)
    for new in list(made.values()):
        if isinstance(new, torch.jit.ScriptModule):
            continue
        for name, value in list(new.__dict__.items()):
            if name not in REGISTERED and name != "_modules":
                whole = _Optimizers() if copies is None and holds_an_optimizer(value) else copies
                new.__dict__[name] = stand_in_value(value, made, memo, whole)
    if copies is not None:
        _without_compilers(made)
    unsharded(model, made, None if copies is None else copies.gathered)
    return made[id(model)], made


class _Optimizers:
    """Copies optimizers, and objects that hold some, for a stand-in: they have the same tensors, in other tables."""

    def tensor(self, tensor: Tensor) -> Tensor:
        """The tensor itself."""
        return tensor

    def thing(self, value: Any, inside: Callable[[Any], Any]) -> Any:
        """The copy of such an object; any other itself."""
        if not holds_an_optimizer(value):
            return value
        try:
            return self._copied(value, inside)
        except Exception:  # what cannot be copied is shared, and is not cleared then
            return value

    def _copied(self, value: Any, inside: Callable[[Any], Any]) -> Any:
        if isinstance(value, tuple):
            items = [inside(item) for item in value]
            return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
        try:
            new = object.__new__(type(value))
        except TypeError:
            new = copy.copy(value)
        for name, item in fields_of(value):
            object.__setattr__(new, name, inside(item))
        if isinstance(value, dict):
            new.update({key: inside(item) for key, item in value.items()})
        elif isinstance(value, list):
            new[:] = [inside(item) for item in value]
        return new


def _modules_for(module: torch.nn.Module, made: dict[int, Any], copies: Copies | None) -> None:
    stack = [module]
    unmade: dict[int, Any] = {}
    while stack:
        old = stack.pop()
        if id(old) in made:
            continue
        if isinstance(old, torch.jit.ScriptModule):  # what it has is not Python's: work leaves nothing there
            made[id(old)] = old if copies is None else copy.deepcopy(old)
            continue
        new = made[id(old)] = object.__new__(old.__class__)  # a class of `fully_shard` makes no other of its kind
        remember(new, old)
        new.__dict__.update(old.__dict__)
        new.__dict__.pop("_compiled_call_impl", None)  # `compile` made it for the model itself
        for table in REGISTERED:
            if table in new.__dict__:
                new.__dict__[table] = copy.copy(new.__dict__[table])
        for table in ("_parameters", "_buffers"):
            tensors = new.__dict__.get(table) or {}
            tensors.update({name: _unmade(t, unmade) for name, t in tensors.items() if is_lazy(t)})
        if copies is not None:
            buffers = new.__dict__.get("_buffers", {})
            buffers.update({name: copies.tensor(b) for name, b in buffers.items() if not (b is None or is_lazy(b))})
        stack += [child for child in old.__dict__.get("_modules", {}).values() if child is not None]
    for new in list(made.values()):
        if isinstance(new, torch.jit.ScriptModule):
            continue
        children = new.__dict__.get("_modules")
        if children is not None:
            renewed = OrderedDict((name, made.get(id(child), child)) for name, child in children.items())
            new.__dict__["_modules"] = renewed if isinstance(children, OrderedDict) else dict(renewed)


def _unmade(tensor: Any, unmade: dict[int, Any]) -> Any:
    """Another parameter that is not yet made: a stand-in's first forward makes it, not the model's own."""
    if id(tensor) not in unmade:
        new = type(tensor)(requires_grad=tensor.requires_grad, device=tensor.device, dtype=tensor.dtype)
        new.__dict__.update(tensor.__dict__)
        unmade[id(tensor)] = new
    return unmade[id(tensor)]


def _without_compilers(made: dict[int, Any]) -> None:
    """What ``torch.compile`` wraps calls the model itself: a stand-in that is run has what is inside in its place."""
    wrappers = [new for new in made.values() if wrapping_step(type(new)) == "_orig_mod"]
    wrapped = {id(new): new._modules["_orig_mod"] for new in wrappers}

    def inside(new: Any) -> Any:
        while id(new) in wrapped:
            new = wrapped[id(new)]
        return new

    if wrapped:
        made.update({key: inside(new) for key, new in made.items()})
        for new in made.values():
            children = new.__dict__.get("_modules") or {}
            children.update({name: inside(child) for name, child in children.items()})


def _rebound(function: Any, cells: list[Any]) -> Any:
    """A function that is the same, but for the variables of the function around it."""
    new = types.FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        function.__defaults__,
        tuple(types.CellType(content) for content in cells),
    )
    new.__dict__.update(function.__dict__)
    new.__kwdefaults__, new.__qualname__ = function.__kwdefaults__, function.__qualname__
    return new


def _handle(handle: Any, table: Callable[[Any], Any]) -> RemovableHandle:
    """A handle that takes the same hook off the stand-in's tables."""
    hooks, number, *extra = handle.__getstate__()
    new = RemovableHandle.__new__(RemovableHandle)
    new.__setstate__((table(hooks), number, *(tuple(map(table, tables or ())) for tables in extra)))
    return new


def stand_in_value(
    value: Any, made: dict[int, Any], memo: dict[int, Any], copies: Copies | _Optimizers | None, depth: int = 0
) -> Any:
    """The value with its tables copied, its bound methods and modules those of the stand-in."""
    if id(value) in made:
        return made[id(value)]
    if id(value) in memo:
        return memo[id(value)]
    if isinstance(value, Tensor):
        return value if copies is None else copies.tensor(value)
    method_of = getattr(value, "__self__", None)
    if isinstance(method_of, torch.nn.Module) and id(method_of) in made and hasattr(value, "__func__"):
        memo[id(value)] = value  # in cycles, the old one
        function = stand_in_value(value.__func__, made, memo, copies, depth + 1)
        memo[id(value)] = types.MethodType(function, made[id(method_of)])
        return memo[id(value)]
    if type(value) is RemovableHandle:  # a lazy module takes its hook off when it has run
        memo[id(value)] = _handle(value, lambda table: stand_in_value(table, made, memo, copies, depth + 1))
        return memo[id(value)]
    if type(value) in TABLES and depth < DEEPEST_TABLE:
        new = memo[id(value)] = copy.copy(value)
        if isinstance(value, dict):
            new.update({key: stand_in_value(item, made, memo, copies, depth + 1) for key, item in value.items()})
        elif isinstance(value, list | deque):
            new.clear()
            new.extend([stand_in_value(item, made, memo, copies, depth + 1) for item in value])
        return new
    if type(value) is tuple:
        return tuple(stand_in_value(item, made, memo, copies, depth + 1) for item in value)
    if type(value) is functools.partial:
        parts = (value.args, value.keywords)
        args, keywords = (stand_in_value(part, made, memo, copies, depth + 1) for part in parts)
        return functools.partial(stand_in_value(value.func, made, memo, copies, depth + 1), *args, **keywords)
    if type(value) is types.FunctionType and value.__closure__ and depth < DEEPEST_TABLE:
        memo[id(value)] = value  # in cycles, the old one
        try:
            cells = [cell.cell_contents for cell in value.__closure__]
        except ValueError:  # one is empty yet
            return value
        ours = [
            stand_in_value(cell, made, memo, copies, depth + 1) if isinstance(cell, BOUND) or id(cell) in made else cell
            for cell in cells
        ]
        if any(new is not old for new, old in zip(ours, cells, strict=True)):
            memo[id(value)] = _rebound(value, ours)
        return memo[id(value)]
    if copies is None:
        return value
    memo[id(value)] = value  # in cycles, the old one
    memo[id(value)] = copies.thing(value, lambda item: stand_in_value(item, made, memo, copies, depth + 1))
    return memo[id(value)]
