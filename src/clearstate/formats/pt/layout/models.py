"""The model in a checkpoint: where it is, and its tensors by the names of its state dict.

A whole module that was pickled has the names that its state dict would have, read off its ``_parameters``,
``_buffers`` and ``_modules``; its classes need not be installed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

from ..pickle.stubs import Global, Stub, Tensor, Value
from .programs import MODELS, is_copy, is_module, is_program, is_state_dict, layout_of, role_by_structure, tensor_in

DEEPEST = 2000
"""Letters of a name beyond which nothing is named: a module that holds itself has such names without end."""


class Place(NamedTuple):
    """Where something stands: a dict and a key of it, or a list and a place in it; for a parameter, its stub."""

    table: Any
    key: Value

    @property
    def value(self) -> Value:
        """What stands there."""
        return self.table[self.key]


def main_model(root: Value) -> tuple[tuple[Value, ...], Value]:
    """Where the model's own state dict (or pickled module) is: the keys to it, and it.

    Where no key is one that programs use, it is the only state dict or module beside what is neither. Of a list, it is
    the first, if the others have no names but those that it has.

    >>> main_model({"epoch": 3, "model": {}})[0]
    ('model',)
    """
    if isinstance(root, list | tuple) and not isinstance(root, Global):
        models = [i for i, value in enumerate(root) if is_model(None, value)]
        first = root[models[0]] if models else None
        alike = all(
            isinstance(root[i], dict) and isinstance(first, dict) and root[i].keys() <= first.keys() for i in models[1:]
        )
        return ((models[0],), first) if models and alike else ((), root)
    if not isinstance(root, dict):
        return (), root
    if (layout := layout_of(root)) and layout.model:
        keys = tuple(layout.model.split("."))
        return keys, at(root, keys)
    for key in MODELS:
        if key in root and (isinstance(root[key], dict) or is_module(root[key])):
            return (key,), root[key]
    if all(isinstance(value, dict) or is_module(value) or tensor_in(value) is not None for value in root.values()):
        return (), root
    models = [key for key, value in root.items() if is_model(key, value)]
    return ((models[0],), root[models[0]]) if len(models) == 1 else ((), root)


def at(root: Value, keys: Iterable[Value]) -> Value:
    """What these keys lead to.

    >>> at({"a": [3]}, ("a", 0))
    3
    """
    for key in keys:
        root = root[key]
    return root


def is_model(key: Value, value: Value) -> bool:
    """Whether a value is a state dict or a module, by what it is, and its key does not say that it is an average.

    >>> is_model("model", {"epoch": 3})
    False
    """
    whole = is_state_dict(value) or is_module(value)
    return whole and role_by_structure(value) is None and not is_copy(None, key)


def places(model: Value) -> dict[str, Place]:
    """The entries of a model's state dict by name, nested dicts included; of a pickled module, those it would have.

    >>> list(places({"encoder": {"steps": 3}, "decoder": {}}))
    ['encoder.steps']
    """
    found: dict[str, Place] = {}
    stack: list[tuple[str, Value, Place | None]] = [("", model, None)]
    while stack:
        name, value, place = stack.pop()
        inside = _inside(value)
        if place is not None and (inside is None or tensor_in(value) is not None):
            found[name] = place
        elif inside is not None and len(name) < DEEPEST:
            left_out = _not_saved(value)
            below = [
                (f"{name}.{key}" if name else key, table[key], Place(table, key))
                for table in inside
                for key in table
                if isinstance(key, str) and key not in left_out
            ]
            stack.extend(reversed(below))
    return found


def _not_saved(module: Value) -> Collection[Value]:
    """The names of buffers that a module's state dict leaves out."""
    names = module.attribute("_non_persistent_buffers_set", ()) if is_module(module) else ()
    if isinstance(names, Stub) and isinstance(names.args, tuple) and names.args:
        names = names.args[0]
    return [name for name in names if isinstance(name, str)] if isinstance(names, set | list | frozenset) else ()


def _inside(value: Value) -> list[dict[Any, Any]] | None:
    """The dicts that a module or a state dict has its entries in; ``None`` for what has none.

    Of a module of a TorchScript program, which does not tell a buffer from another attribute, all tensors are entries.
    """
    if is_program(value):
        held = {key: item for key, item in value.state.items() if isinstance(item, Tensor) or is_program(item)}
        return [held]
    if is_module(value):
        tables = [value.attribute(name) for name in ("_parameters", "_buffers", "_modules")]
        return [table for table in tables if isinstance(table, dict)]
    return [value] if isinstance(value, dict) else None


def state_dict(root: Value) -> dict[str, Tensor]:
    """The tensors of a checkpoint's model by the names of its state dict.

    >>> state_dict({"epoch": 3, "state_dict": {}})
    {}
    """
    _, model = main_model(root)
    found = {name: tensor_in(place.value) for name, place in places(model).items()}
    return {name: tensor for name, tensor in found.items() if tensor is not None}
