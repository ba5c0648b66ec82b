"""What of a module goes to a ``.t7`` file besides parameters, buffers and children: under which name, in which form.

Names are mechanical: the Lua field ``nInputPlane`` is the attribute ``n_input_plane``. Files count from 1 and Python
from 0, so a field that holds an index or a dimension says so::

    class Select(Module):
        fields = index("dimension index")
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...formats.t7.meaning.classes import ClassEntry, snake_case
from ...roles import Role


class Form(Enum):
    """How a field's value is written."""

    PLAIN = "as it is: a number, string, boolean, tensor, module, list or dict"
    INDEX = "an index or a dimension (or a list, dict or tensor of them): 1 more in files, negative ones the same"
    LONGS = "a list of integers, as a torch.LongStorage"
    CONSTANT = "always this value, which Python has no use for"


class Field(NamedTuple):
    """Where a field is kept in Python, and its form in a file."""

    attribute: str
    form: Form
    constant: object = None


Fields = Mapping[str, Field]


class Longs(list[int]):
    """Whole numbers that a file has as a ``torch.LongStorage``, and not as a table; they are written back as one.

    >>> Longs([2, 3]) == [2, 3]
    True
    """

    __slots__ = ()


def plain(names: str, **attributes: str) -> dict[str, Field]:
    """Fields written as they are. Keywords give the attribute of a field whose name is not mechanical.

    >>> plain("kW inplace", train="training")["train"].attribute
    'training'
    """
    return _fields(names, Form.PLAIN, attributes)


def index(names: str, **attributes: str) -> dict[str, Field]:
    """Fields that hold indices or dimensions: 0-based in Python, 1-based in files."""
    return _fields(names, Form.INDEX, attributes)


def longs(names: str, **attributes: str) -> dict[str, Field]:
    """Lists of integers that are a ``torch.LongStorage`` in files."""
    return _fields(names, Form.LONGS, attributes)


def constant(**values: object) -> dict[str, Field]:
    """Fields that Torch7's code expects and that are always the same: ``v2`` of Dropout."""
    return {name: Field("", Form.CONSTANT, value) for name, value in values.items()}


def sized(**sizes: str) -> Mapping[str, str]:
    """The sizes that a layer's tensors are due to have, said where PyTorch trips over others.

    Args:
        sizes: by tensor, ``|`` between alternatives. A size is a product of numbers and of the layer's numbers by name,
            maybe divided; ``weight:0`` is the first size of another tensor or the first number of a list, ``?`` any.

    >>> sized(weight="n_output_plane n_input_plane*kw", bias="weight:0")["bias"]
    'weight:0'
    """
    return sizes


def _fields(names: str, form: Form, attributes: Mapping[str, str]) -> dict[str, Field]:
    mechanical = {name: snake_case(name) for name in names.split()}
    return {name: Field(attribute, form) for name, attribute in {**mechanical, **attributes}.items()}


def merged(cls: type) -> Fields:
    """The fields of a class and of its parents."""
    return {name: f for parent in reversed(cls.__mro__) for name, f in parent.__dict__.get("fields", {}).items()}


def of_gradient(name: str) -> str:
    """The parameter that a gradient belongs to.

    >>> of_gradient("gradWeight"), of_gradient("gradBias")
    ('weight', 'bias')
    """
    return snake_case(name[4:5].lower() + name[5:])


def of_role(entry: ClassEntry | None, *roles: Role) -> list[str]:
    """The fields that a class declares in these roles, its parents' included; not those inside table fields."""
    return [name for name, role in entry.roles.items() if role in roles and "." not in name] if entry else []


def counted_from_zero(value: Any) -> Any:
    """An index of a file as Python's: 1 less where it is positive.

    >>> counted_from_zero(3), counted_from_zero(-1), counted_from_zero([1, 2])
    (2, -1, [0, 1])
    """
    return _shifted(value, lambda v: v - 1 if v > 0 else v)


def counted_from_one(value: Any) -> Any:
    """An index of Python as files have it: 1 more where it is not negative.

    >>> counted_from_one(2), counted_from_one(-1), counted_from_one({"a": 0})
    (3, -1, {'a': 1})
    """
    return _shifted(value, lambda v: v + 1 if v >= 0 else v)


def _shifted(value: Any, shift: Callable[[int], int]) -> Any:
    if isinstance(value, Tensor):
        return torch.tensor([shift(v) for v in value.flatten().tolist()], dtype=value.dtype).view_as(value)
    if isinstance(value, list | tuple):
        return [_shifted(item, shift) for item in value]
    if isinstance(value, dict):
        return {key: _shifted(item, shift) for key, item in value.items()}
    if isinstance(value, int) and not isinstance(value, bool):
        return shift(value)
    return value
