"""What a file says of a module in other words than Python would write: it is written back in the file's words.

A field is noted where what Python would write for it right after reading is not what the file has: a number for a
boolean, two fields that are one attribute, a weight that is computed of others, no field at all. As long as the
attribute is the one that was read, the field is written as the file had it; once it is changed, as Python has it.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from ...formats import t7
from ...formats.t7.codec.objects import Value, element_type, numeric_class
from ...formats.t7.meaning.classes import snake_case
from ..declarations.fields import Form, counted_from_one
from ..declarations.object_graph import Reader
from ..protocol.stateful import Stateful

CLASSES: MutableMapping[Tensor, str] = WeakTensorKeyDictionary()
"""The class that each tensor had in its file, as long as the tensor is there: on a GPU, or not."""

SCALARS = (bool, int, float, str, bytes)


class Noted(NamedTuple):
    """One field: what the file has (``None`` for nothing), and the attribute as it was then."""

    file: Any
    attribute: Any


def note(
    module: Stateful,
    given: Mapping[Any, Value],
    upgraded: Mapping[Any, Value],
    grads: Mapping[str, Any],
    reading: Reader,
) -> None:
    """Notes the fields of a module that has just been read.

    Args:
        module: it.
        given: the fields of the file.
        upgraded: the fields after the class's ``upgrade``, whose values count where a file is of an older Torch7.
        grads: the gradients of the file, by parameter.
        reading: what reads the file.
    """
    noted: dict[str, Noted] = {}
    for name, field in module.fields.items():
        raw = upgraded[name] if name in upgraded else given.get(name)
        value = getattr(module, field.attribute, None) if field.form is not Form.CONSTANT else field.constant
        if is_scalar(value) and is_scalar(raw):
            ours = counted_from_one(value) if field.form is Form.INDEX else value
            if not alike(ours, raw):
                noted[name] = Noted(raw, value)
        elif isinstance(value, list) and field.form is not Form.LONGS and isinstance(raw, t7.Storage):
            noted[name] = Noted(reading.value(raw), [*value])
    train = given.get("train")
    if isinstance(train, float):
        noted["train"] = Noted(train, module.training)
    kind, dtype = given.get("_type"), dtype_of(module)
    named = isinstance(kind, str) and numeric_class(kind) and torch.from_numpy(np.empty(0, element_type(kind))).dtype
    if named and dtype not in (None, named):
        noted["_type"] = Noted(kind, dtype)
    for name in module.derived:
        if isinstance(given.get(name), t7.Tensor):
            computed = getattr(module, snake_case(name)).detach().clone()
            noted[name] = Noted(reading.value(given[name]), (computed, module.training))
    for name in {*module._parameters, *grads}:
        grad, held = getattr(module._parameters.get(name), "grad", None), grads.get(name)
        if grad is None:
            noted[f"grad {name}"] = Noted(held, None)
        elif isinstance(held, Tensor) and held.dtype is not grad.dtype:
            noted[f"grad {name}"] = Noted(held, grad.clone())
    if noted:
        module.__dict__["as_read"] = noted


def dtype_of(module: Stateful) -> torch.dtype | None:
    """The type of a module's own parameters and buffers, which ``_type`` names in a file."""
    held = (*module._parameters.values(), *module._buffers.values())
    return next((t.dtype for t in held if t is not None and t.is_floating_point()), None)


def same_class(made: Tensor, tensor: Tensor) -> None:
    """Says that a tensor stands for another one of the file."""
    if tensor in CLASSES:
        CLASSES[made] = CLASSES[tensor]


def gradient(module: Stateful, name: str) -> Noted | None:
    """What the file has for a parameter's gradient, where that is still the one that was read and not its whole."""
    parameter = module._parameters.get(name)
    noted: Noted | None = module.__dict__.get("as_read", {}).get(f"grad {name}")
    if noted is None or not alike(noted.attribute, getattr(parameter, "grad", None)):
        return None
    converted = parameter is not None and noted.attribute is None and isinstance(noted.file, Tensor)
    return noted._replace(file=noted.file.to(parameter)) if converted else noted


def in_the_words_of_the_file(module: Stateful, name: str, value: Any, ours: Value) -> Value:
    """What to write for a field: ``ours``, or what the file had where ``value`` is still the one that was read."""
    noted = module.__dict__.get("as_read", {}).get(name)
    return noted.file if noted is not None and alike(noted.attribute, value) else ours


def is_scalar(value: Any) -> bool:
    """Whether a value is one that compares in a moment.

    >>> is_scalar(None), is_scalar(2), is_scalar([2])
    (True, True, False)
    """
    return value is None or isinstance(value, SCALARS)


def alike(a: Any, b: Any) -> bool:
    """Whether two values are the same, of the same kind: a number is no boolean, and NaN is NaN.

    >>> alike(1, 1.0), alike(1, True), alike(float("nan"), float("nan")), alike(torch.ones(2), torch.ones(2))
    (True, False, True, True)
    """
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return (
            isinstance(a, Tensor)
            and isinstance(b, Tensor)
            and (a.dtype, a.device, a.shape) == (b.dtype, b.device, b.shape)
            and bool(((a == b) | ((a != a) & (b != b))).all())
        )
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    return bool(a == b or (a != a and b != b))
