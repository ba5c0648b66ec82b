"""What a layer of a user's own holds that nobody declared for files: its parameters, buffers and named children.

A parameter goes to a file under its own name, with its gradient beside it: ``query`` and ``gradQuery``. So a tensor
that has a gradient is read as a parameter, one that has none as a buffer, and a module as a child.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor
from torch.nn import Module

from ...formats.t7.meaning.classes import lookup, snake_case
from ..declarations.object_graph import Reader, Writer
from ..protocol.stateful import Stateful


def gradient_of(name: str) -> str:
    """The field of a parameter's gradient.

    >>> gradient_of("query")
    'gradQuery'
    """
    return f"grad{name[:1].upper()}{name[1:]}"


def write(module: Stateful, state: dict[Any, Any], writing: Writer) -> None:
    """Adds to the fields of a file what a module holds and neither the catalog nor its class names."""
    names = module.__dict__.get("file_names", {})
    for attribute, held in _unnamed(module):
        name = names.get(attribute, attribute)
        state[name] = writing.value(held)
        if attribute in module._parameters:
            state[gradient_of(name)] = writing.gradient(held)


def _unnamed(module: Stateful) -> Iterator[tuple[str, Any]]:
    entry = lookup(module.typename)
    named = {snake_case(name) for name in (entry.roles if entry else ())}
    named.update(field.attribute for field in module.fields.values())
    for held in (module._parameters, module._buffers, module._modules):
        for attribute, value in held.items():
            if value is not None and attribute not in named and not attribute.isdigit():
                yield attribute, value


def read(module: Stateful, reading: Reader) -> None:
    """Takes tensors and modules out of what a file had besides, to be parameters, buffers and children."""
    extra = module.extra
    for name, value in list(extra.items()):
        if not isinstance(name, str) or name not in extra or not isinstance(value, Tensor | Module):
            continue
        attribute = snake_case(name)
        if "." in name or hasattr(module, attribute):
            continue
        grad = extra.get(gradient_of(name))
        if isinstance(value, Tensor) and isinstance(grad, Tensor) and grad.shape == value.shape:
            parameter = reading.parameter(value)
            module.register_parameter(attribute, parameter)
            parameter.grad = grad.to(parameter.dtype)
            del extra[gradient_of(name)]
        elif isinstance(value, Tensor):
            continue
        else:
            module.add_module(attribute, value)
        _named(module, attribute, name)
    for name, value in list(extra.items()):  # once it is known which are gradients
        if isinstance(name, str) and "." not in name and isinstance(value, Tensor):
            attribute = snake_case(name)
            if not hasattr(module, attribute):
                module.register_buffer(attribute, value)
                _named(module, attribute, name)


def _named(module: Stateful, attribute: str, name: str) -> None:
    del module.extra[name]
    if name != attribute:
        module.__dict__.setdefault("file_names", {})[attribute] = name
