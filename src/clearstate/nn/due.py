"""Which sizes the tensors of a module from a file are due to have: said where PyTorch trips over others.

Files are written by strangers: a weight may have sizes that do not go with the module's other fields. Nothing is looked
at before a call fails.
"""

from __future__ import annotations

import inspect
import math
import re
import typing
from collections.abc import Callable
from functools import cache
from typing import Any

from torch import Tensor

from .declared import hints_of
from .lacking import lacks_modules
from .tape import describe

_PLANES = {
    "weight": "n_output_plane n_input_plane/groups kh kw | n_output_plane n_input_plane*kh*kw",
    "bias": "n_output_plane",
}
_VOLUMES = {
    "weight": "n_output_plane n_input_plane kt kh kw | n_output_plane n_input_plane*kt*kh*kw",
    "bias": "n_output_plane",
}
_FEATURES = dict.fromkeys(("weight", "bias", "running_var"), "running_mean:0")

DUE: dict[str, dict[str, str]] = {
    "Linear": {"weight": "? ?", "bias": "weight:0"},
    "LinearWeightNorm": {"v": "output_size input_size", "g": "output_size 1", "bias": "output_size"},
    "Bilinear": {"weight": "? ? ?", "bias": "weight:0"},
    "PartialLinear": {"weight": "outputsize inputsize", "bias": "1 outputsize"},
    "SparseLinear": {"weight": "? ?", "bias": "weight:0"},
    "IndexLinear": {"weight": "input_size ?", "bias": "output_size"},
    "LookupTable": {"weight": "? ?"},
    "WeightedEuclidean": {"weight": "? ?", "diag_cov": "weight:0 weight:1"},
    "PReLU": {"weight": "n_output_plane | 1"},
    "Add": {"bias": "?"},
    "Mul": {"weight": "1"},
    "BatchNormalization": {"running_mean": "?", **_FEATURES},
    "TemporalConvolution": {"weight": "output_frame_size input_frame_size*kw", "bias": "output_frame_size"},
    "TemporalRowConvolution": {"weight": "input_frame_size 1 kw", "bias": "input_frame_size"},
    "TemporalSubSampling": {"weight": "input_frame_size", "bias": "input_frame_size"},
    "_SpatialConvolution": _PLANES,
    "SpatialConvolutionLocal": {
        "weight": "oh ow n_output_plane n_input_plane kh kw | oh*ow n_output_plane n_input_plane*kh*kw",
        "bias": "n_output_plane oh ow",
    },
    "SpatialDepthWiseConvolution": {
        "weight": "n_output_plane n_input_plane*kh*kw | n_output_plane n_input_plane kh kw",
        "bias": "n_output_plane n_input_plane",
    },
    "SpatialFullConvolution": {"weight": "n_input_plane n_output_plane kh kw", "bias": "n_output_plane"},
    "SpatialSubSampling": {"weight": "n_input_plane", "bias": "n_input_plane"},
    "_MapConvolution": {"conn_table": "? 2", "weight": "conn_table:0 kh kw", "bias": "n_output_plane"},
    "VolumetricConvolution": _VOLUMES,
    "VolumetricFullConvolution": {"weight": "n_input_plane n_output_plane kt kh kw", "bias": "n_output_plane"},
    "WeightNorm": {"v": "view_out:0 other_dims", "g": "view_out:0 1"},
}
"""For classes and those that inherit from them: a tensor's sizes, ``|`` between alternatives. A size is a product of
numbers and of the module's numbers by name, maybe divided; ``weight:0`` is the first size of another tensor or the
first number of a list, ``?`` any size."""


def files_fault(module: Any, error: Exception, input: Any) -> str | None:
    """What is wrong with a module from a file, where an error of a call is the file's doing; else ``None``."""
    of_nothing = "None" in str(error) and not _holds_none(input)
    tripped = isinstance(error, RuntimeError | AttributeError | LookupError | ZeroDivisionError)
    if not tripped and not (of_nothing and isinstance(error, TypeError | ValueError)):
        return None
    wrong = misfit(module)
    if wrong is not None:
        return f"the {module.typename} from the file is not right: its {wrong}"
    absent = missing(module, error) if of_nothing else _named(module, error)
    if absent is None and not isinstance(error, AttributeError | LookupError | ZeroDivisionError):
        return None
    why = "has fields that do not go together" if absent is None else f"lacks {absent}"
    return f"the module from the file {why}: {error}"


def missing(module: Any, error: Exception) -> str | None:
    """The fields that a module has not got, by their names in files, where that is what an error is about.

    Not those that may be missing, if there are others.

    >>> import clearstate.nn as nn
    >>> layer = nn.Max(1)
    >>> layer.dimension = None
    >>> missing(layer, TypeError("an integer is required (got type NoneType)"))
    'dimension'
    """
    if "None" not in str(error):
        return None
    absent = _absent_fields(module)
    if absent:
        return " and ".join(absent)
    none = _absent_parameters(module) if "NoneType" in str(error) else []
    return _named(module, error) or " and ".join(none) or None


def _named(module: Any, error: Exception) -> str | None:
    """The tensors that a module has not got and that an error names."""
    told = str(error)
    return " and ".join(n for n in _absent_parameters(module) if re.search(rf"\b{n}\b", told)) or None


def _absent_parameters(module: Any) -> list[str]:
    """Not a bias that no such layer has."""
    hints = hints_of(type(module))
    optional = {name for name, hint in hints.items() if type(None) in typing.get_args(hint)}
    none = [n for n, parameter in module._parameters.items() if parameter is None and n not in optional]
    declared = _declared(module)
    return [name for name in none if name in declared] if declared else none


def _absent_fields(module: Any) -> list[str]:
    cls = type(module)
    attributes = {name: field.attribute for name, field in module.fields.items() if field.attribute}
    nothing = [n for n, a in attributes.items() if not hasattr(cls, a) and getattr(module, a, None) is None]
    optional = _optional(cls.__init__)
    return [name for name in nothing if attributes[name] not in optional] or nothing


def said_of_file(module: Any, error: Exception) -> str:
    """What is wrong with a module from a file that cannot be printed or written, in a few words."""
    if lacks_modules(module):
        return "the file lacks modules"
    wrong = misfit(module)
    if wrong:
        return f"its {wrong}"
    absent = missing(module, error) or " and ".join(_absent_fields(module) or _absent_parameters(module))
    return f"the file lacks {absent}" if absent else f"its fields do not go together: {error}"


@cache
def _optional(constructor: Callable[..., None]) -> frozenset[str]:
    """What a constructor need not be given, or may be told not to do."""
    given = inspect.signature(constructor).parameters.values()
    return frozenset(parameter.name for parameter in given if parameter.default is None or parameter.default is False)


def _holds_none(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_holds_none, value))
    return value is None


def misfit(module: Any) -> str | None:
    """Which tensor of a module has not the sizes that are due, in words; ``None`` where all that is known of fit.

    >>> import torch, clearstate.nn as nn
    >>> layer = nn.SpatialConvolution(3, 16, 5, 5)
    >>> misfit(layer)
    >>> layer.bias = torch.nn.Parameter(torch.ones(4))
    >>> misfit(layer)
    'bias is a tensor of 4, and one of 16 is due'
    """
    for name, alternatives in _declared(module).items():
        held = getattr(module, name, None)
        if not isinstance(held, Tensor):
            continue
        due = [[_size(module, size) for size in sizes.split()] for sizes in alternatives.split("|")]
        if not any(_fits(tuple(held.shape), sizes) for sizes in due):
            text = " or ".join("x".join("?" if size is None else f"{size:g}" for size in sizes) for sizes in due)
            return f"{name} is {describe(held)}, and one of {text} is due"
    return None


def _declared(module: Any) -> dict[str, str]:
    return next((DUE[c.__name__] for c in type(module).__mro__ if c.__name__ in DUE), {})


def _fits(shape: tuple[int, ...], due: list[float | None]) -> bool:
    return len(shape) == len(due) and all(size in (None, came) for came, size in zip(shape, due, strict=True))


def _size(module: Any, text: str) -> float | None:
    product, _, divisor = text.partition("/")
    factors = [_number(module, factor) for factor in product.split("*")]
    if any(factor is None for factor in factors):
        return None
    whole = math.prod(factor for factor in factors if factor is not None)
    return whole / ((_number(module, divisor) if divisor else 1) or 1)


def _number(module: Any, text: str) -> float | None:
    """A number written out, or one of the module's; ``None`` for any, and where the module has none."""
    if text.isdigit():
        return int(text)
    name, _, place = text.partition(":")
    held = getattr(module, name, None)
    if place:
        sizes = held.shape if isinstance(held, Tensor) else held
        held = sizes[int(place)] if isinstance(sizes, list | tuple) and len(sizes) > int(place) else None
    return held if isinstance(held, int | float) else None
