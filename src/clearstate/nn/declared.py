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

TAKEN: dict[Any, Types] = {int: (int,), float: (int, float), str: (str,), Tensor: (Tensor,)}
"""The Python types of a file's values that do for a declared one."""


def misfit(cls: Any, field: Field, value: Any) -> str | None:
    """What a value of a file should have been, in words; ``None`` where it is right.

    Args:
        cls: the module's class.
        field: the field the value was read for.
        value: it, as Python has it.

    >>> import clearstate.nn as nn
    >>> misfit(nn.Select, nn.Select.fields["dimension"], "one"), misfit(nn.Select, nn.Select.fields["dimension"], 1)
    ('a whole number', None)
    """
    if value is None:
        return None
    if field.form is Form.LONGS:
        return None if _whole_numbers(value) else "whole numbers"
    declared = declarations(cls).get(field.attribute, ())
    if not declared or isinstance(value, declared):
        return None
    return " or ".join(WORDS.get(kind, kind.__name__) for kind in declared if kind is not int or float not in declared)


WORDS = {int: "a whole number", float: "a number", str: "a string", Tensor: "a tensor"}


def _whole_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, int) for item in value)


@cache
def declarations(cls: Any) -> dict[str, Types]:
    """The types of a class's attributes, where all that may come can be told by type.

    >>> import clearstate.nn as nn
    >>> declarations(nn.SpatialMaxPooling)["kw"]
    (<class 'int'>,)
    """
    sources = typing.get_type_hints(cls)
    constructor = cls.__init__
    hints = typing.get_type_hints(constructor)
    for name, parameter in inspect.signature(constructor).parameters.items():
        if name in hints and parameter.kind is not parameter.VAR_POSITIONAL:
            sources.setdefault(name, hints[name])
    return {name: kinds for name, hint in sources.items() if (kinds := _kinds(hint))}


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
