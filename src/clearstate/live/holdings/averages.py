"""Tells copies of the weights in tables and objects by their shapes: an average, which stays.

A model's forward does without its average, and an average comes after a baseline: neither a run nor a baseline says
that it may go. It is told by its form: in order, the shapes of all parameters of the model, or of its module.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .attributes import Attribute, Found
from .modules import modules

Shapes = list[torch.Size]


def is_a_copy(attribute: Attribute, tensors: Sequence[Found], model: torch.nn.Module) -> bool:
    """Whether the tensors in an attribute have, in order, the shapes of several parameters: all, or all that learn.

    >>> model = torch.nn.Linear(3, 2)
    >>> model.average = {name: p.detach().clone() for name, p in model.named_parameters()}
    >>> average = Attribute("", model, "average", model.average)
    >>> is_a_copy(average, average.tensors(), model), is_a_copy(average, average.tensors()[:1], model)
    (True, False)
    """
    if len(tensors) < 2:
        return False
    found = [_shape(f.tensor) for f in tensors if f.tensor.is_floating_point() or f.tensor.is_complex()]
    wholes = [shapes for module in (model, attribute.module) for shapes in _of_parameters(module)]
    return any(len(whole) > 1 and _are_in(whole, found) for whole in wholes)


def _of_parameters(module: torch.nn.Module) -> tuple[Shapes, Shapes]:
    """The shapes of all parameters of a module and those inside, and of those that learn."""
    tables = [inner.__dict__.get("_parameters") or {} for _, inner in modules(module)]
    found = list({id(p): p for table in tables for p in table.values() if p is not None}.values())
    return [_shape(p) for p in found], [_shape(p) for p in found if p.requires_grad]


def _shape(tensor: torch.Tensor) -> torch.Size:
    try:
        return tensor.shape
    except (RuntimeError, ValueError):  # nested, or not yet made
        return torch.Size()


def _are_in(some: Shapes, shapes: Shapes) -> bool:
    """Whether some shapes are all among others, in order."""
    left = iter(shapes)
    return all(any(shape == other for other in left) for shape in some)
