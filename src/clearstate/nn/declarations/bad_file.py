"""What is wrong with a module from a file, in words: what it lacks, and tensors of other sizes than are due.

Files are written by strangers. What a class declares says what is due: its ``fields``, its ``sizes_due``, and what its
constructor can do without. Nothing is looked at before a call fails, or printing, or writing.
"""

from __future__ import annotations

import inspect
import math
import re
import typing
from typing import Any

from torch import Tensor

from .bad_input import describe
from .field_types import hints_of


class Lacking:
    """Stands in the place of a container's ``update_output`` where its file has no table of modules.

    It is read, printed and written back, but Torch7 could not run it.
    """

    def __init__(self, module: Any) -> None:
        self.module = module

    def __call__(self, *inputs: Any) -> Any:
        if not self.module.children_in_order():
            raise ValueError("the module from the file is not right: the file lacks modules")
        del self.module.__dict__["update_output"]
        return self.module.update_output(*inputs)


def lacks_modules(module: Any) -> bool:
    """Whether a module is a container from a file that has no table of modules, and still has none."""
    return isinstance(module.__dict__.get("update_output"), Lacking) and not module.children_in_order()


def fault_of_call(module: Any, error: Exception, input: Any) -> str | None:
    """What is wrong with a module from a file, where an error of a call is the file's doing; else ``None``."""
    if _holds_none(input) or not isinstance(error, OF_FILES if "None" in str(error) else TRIPPED):
        return None
    found = _found(module, error)
    return fault(module, error) if found is None and isinstance(error, ODD) else found


ODD = (AttributeError, LookupError, ZeroDivisionError)
"""What a class of this package raises for no input, if its fields go together."""

TRIPPED = (*ODD, RuntimeError)
OF_FILES = (*TRIPPED, TypeError, ValueError)


def fault(module: Any, error: Exception) -> str:
    """What is wrong with a module from a file that cannot be called, printed or written."""
    return _found(module, error) or f"its fields do not go together: {error}"


def _found(module: Any, error: Exception) -> str | None:
    wrong = misfit(module)
    lost = ["modules"] if lacks_modules(module) else [] if wrong else missing(module, error)
    return f"the file lacks {' and '.join(lost)}" if lost else f"its {wrong}" if wrong else None


def missing(module: Any, error: Exception) -> list[str]:
    """The fields that a module has not got, by their names in files, where that is what an error is about.

    Not those that may be missing, if there are others.

    >>> import clearstate.nn as nn
    >>> layer = nn.Max(1)
    >>> layer.dimension = None
    >>> missing(layer, TypeError("an integer is required (got type NoneType)"))
    ['dimension']
    """
    cls, text = type(module), str(error)
    optional = {name for name, hint in hints_of(cls).items() if type(None) in typing.get_args(hint)}
    parameters = module.__dict__.get("_parameters", {})  # none yet, where reading it has only begun
    tensors = [name for name, held in parameters.items() if held is None and name not in optional]
    tensors = [name for name in tensors if not cls.sizes_due or name in cls.sizes_due]
    named = [name for name in tensors if re.search(rf"\b{name}\b", text)]
    if "None" not in text:
        return named
    given = inspect.signature(cls.__init__).parameters.values()
    optional |= {parameter.name for parameter in given if parameter.default is None or parameter.default is False}
    fields = {name: field.attribute for name, field in module.fields.items() if field.attribute}
    fields = {n: a for n, a in fields.items() if not hasattr(cls, a) and getattr(module, a, None) is None}
    return [n for n, a in fields.items() if a not in optional] or [*fields] or named or tensors


def _holds_none(value: Any) -> bool:
    return value is None or (isinstance(value, list | tuple) and any(map(_holds_none, value)))


def misfit(module: Any) -> str | None:
    """Which tensor of a module has not the sizes that are due, in words; ``None`` where all that is known of fit.

    >>> import torch, clearstate.nn as nn
    >>> layer = nn.SpatialConvolution(3, 16, 5, 5)
    >>> misfit(layer)
    >>> layer.bias = torch.nn.Parameter(torch.ones(4))
    >>> misfit(layer)
    'bias is a tensor of 4, and one of 16 is due'
    """
    for name, alternatives in type(module).sizes_due.items():
        held = getattr(module, name, None)
        if not isinstance(held, Tensor):
            continue
        due = [[_size(module, size) for size in sizes.split()] for sizes in alternatives.split("|")]
        if not any(_fits(tuple(held.shape), sizes) for sizes in due):
            text = " or ".join("x".join("?" if size is None else f"{size:g}" for size in sizes) for sizes in due)
            return f"{name} is {describe(held)}, and one of {text} is due"
    return None


def _fits(shape: tuple[int, ...], due: list[float | None]) -> bool:
    return len(shape) == len(due) and all(size in (None, came) for came, size in zip(shape, due, strict=True))


def _size(module: Any, text: str) -> float | None:
    """A size as `sized` has it; ``None`` for any, and where the module has not the numbers."""
    product, _, divisor = text.partition("/")
    factors = [_number(module, factor) for factor in product.split("*")]
    whole = None if None in factors else math.prod(f for f in factors if f is not None)
    return whole / (_number(module, divisor) or 1) if whole and divisor else whole


def _number(module: Any, text: str) -> float | None:
    name, _, place = text.partition(":")
    held = int(text) if text.isdigit() else getattr(module, name, None)
    if place:
        sizes = held.shape if isinstance(held, Tensor) else held
        held = sizes[int(place)] if isinstance(sizes, list | tuple) and len(sizes) > int(place) else None
    return held if isinstance(held, int | float) else None
