"""What a field of a file may hold: the type that the class's constructor takes for it, or that the class annotates.

Files are written by strangers. A width that is a string is refused where it is read, by its name, rather than
somewhere in a later forward. Nothing at all is never refused: old files lack fields, and classes have defaults.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Sequence
from functools import cache
from typing import Any

from torch import Tensor
from torch.nn import Module

from .fields import Field, Form

Types = tuple[type, ...]

TAKEN: dict[Any, Types] = {
    bool: (bool, int, float),
    int: (int,),
    float: (int, float),
    str: (str,),
    Tensor: (Tensor,),
}
"""The Python types of a file's values that do for a declared one."""


def misfit(cls: Any, field: Field, value: Any) -> str | None:
    """What a value of a file should have been, in words; ``None`` where it is right.

    Args:
        cls: the module's class.
        field: the field the value was read for.
        value: it, as Python has it.

    >>> import clearstate.nn as nn
    >>> [misfit(nn.Select, nn.Select.fields["dimension"], value) for value in ("one", True, 1)]
    ['a whole number', 'a whole number', None]
    """
    if value is None:
        return None
    if field.form is Form.LONGS:
        return None if _whole_numbers(value) else "whole numbers"
    declared = declarations(cls).get(field.attribute, ())
    if not declared or (isinstance(value, declared) and (bool in declared or not isinstance(value, bool))):
        return None
    said = [kind for kind in declared if not any(wider in declared for wider in WIDER.get(kind, ()))]
    return " or ".join(WORDS.get(kind, kind.__name__) for kind in dict.fromkeys(said))


WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a string",
    Tensor: "a tensor",
    list: "a table",
    Module: "a module",
}
WIDER: dict[type, Types] = {int: (float, bool), float: (bool,)}
"""What goes without saying beside another type."""


def _whole_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, int) for item in value)


@cache
def declarations(cls: Any) -> dict[str, Types]:
    """The types of a class's attributes, where all that may come can be told by type.

    >>> import clearstate.nn as nn
    >>> declarations(nn.SpatialMaxPooling)["kw"]
    (<class 'int'>,)
    """
    sources = hints_of(cls)
    for above in cls.__mro__:
        for name, held in vars(above).items():
            if isinstance(held, property) and held.fget is not None:
                sources.setdefault(name, hints_of(held.fget).get("return"))
            elif type(held) in (bool, int, float):
                sources.setdefault(name, bool if isinstance(held, bool) else float)
    constructor = cls.__init__
    hints = hints_of(constructor)
    for name, parameter in inspect.signature(constructor).parameters.items():
        if name in hints and parameter.kind is not parameter.VAR_POSITIONAL:
            sources.setdefault(name, hints[name])
    return {name: kinds for name, hint in sources.items() if (kinds := _kinds(hint))}


def hints_of(of: Any) -> dict[str, Any]:
    """What is annotated; nothing where a user's class names what is there for type checkers alone."""
    try:
        return dict(typing.get_type_hints(of))
    except NameError:
        return {}


def _kinds(hint: Any) -> Types:
    """The types that do for a hint; none where it says nothing that could be checked."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        parts = [_kinds(part) for part in typing.get_args(hint) if part is not type(None)]
        return tuple(kind for part in parts for kind in part) if all(parts) else ()
    if typing.get_origin(hint) in (list, Sequence):
        return (list,)
    if isinstance(hint, type) and issubclass(hint, Module):
        return (Module,)
    return TAKEN.get(hint, ()) if isinstance(hint, type) else ()
