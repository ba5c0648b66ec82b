"""What of a module goes to a ``.t7`` file besides parameters, buffers and children, under which name, and in which form.

Names are mechanical: the Lua field ``nInputPlane`` is the attribute ``n_input_plane``. Files count from 1 and Python
from 0, so a field that holds an index or a dimension says so::

    class Select(Module):
        fields = index("dimension index")
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from ..formats.t7.classes import snake_case


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


def _fields(names: str, form: Form, attributes: Mapping[str, str]) -> dict[str, Field]:
    mechanical = {name: snake_case(name) for name in names.split()}
    return {name: Field(attribute, form) for name, attribute in {**mechanical, **attributes}.items()}


def merged(cls: type) -> Fields:
    """The fields of a class and of its parents."""
    return {name: f for parent in reversed(cls.__mro__) for name, f in parent.__dict__.get("fields", {}).items()}
