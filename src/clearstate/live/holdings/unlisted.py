"""Tensors that the tables of a module do not list: packed for quantized kernels, or attributes of a parameter."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ...roles import Role
from ..tensors.parts import inner_tensors
from .attributes import Attribute

GRADIENTS = frozenset(("grad_sample", "summed_grad", "main_grad"))
"""Where tools keep gradients on a parameter: of each sample and their sum (Opacus), in more bits (Megatron)."""


def unlisted_tensors(module: torch.nn.Module) -> Iterator[tuple[str, Tensor, Role, str]]:
    """The hidden tensors of one module: the path of each from the module, its role, and the evidence.

    Of what is packed, copies are given: nobody can look at it otherwise.

    >>> layer = torch.nn.Linear(2, 2)
    >>> layer.weight.grad_sample = torch.ones(5, 2, 2)
    >>> [(path, str(role)) for path, _, role, _ in unlisted_tensors(layer)]
    [('weight.grad_sample', 'gradient')]
    """
    for name, parameter in (module.__dict__.get("_parameters") or {}).items():
        for key, value in _attributes(parameter):
            role, evidence = (Role.GRADIENT, "declared") if key in GRADIENTS else (Role.UNKNOWN, "none")
            for steps, tensor in Attribute("", module, key, value).tensors():
                yield f"{name}.{key}{''.join(steps)}", tensor, role, evidence
    for name, value in list(module.__dict__.items()):
        if type(value) is torch.ScriptObject:
            for i, tensor in enumerate(_packed(value)):
                yield f"{name}[{i}]", tensor, Role.PARAMETER, "structural"


def drop_gradients(parameter: Tensor) -> None:
    """Takes all gradients off a parameter, also those that tools keep there.

    >>> weight = torch.nn.Parameter(torch.ones(2))
    >>> weight.grad = weight.grad_sample = torch.ones(2)
    >>> drop_gradients(weight)
    >>> weight.grad, weight.grad_sample
    (None, None)
    """
    parameter.grad = None
    for key, _ in _attributes(parameter):
        if key in GRADIENTS:
            setattr(parameter, key, None)


def _attributes(parameter: Any) -> list[tuple[str, Any]]:
    """What hangs on a parameter; nothing of one that is made of what hangs on it."""
    if parameter is None or hasattr(parameter, "_is_flat_param") or inner_tensors(parameter):
        return []
    return list(vars(parameter).items())


def _packed(value: Any) -> Iterator[Tensor]:
    """The tensors of an object of PyTorch's own code, as it would be pickled."""
    waiting = [value]
    while waiting:
        item = waiting.pop(0)
        if isinstance(item, Tensor):
            yield item
        elif isinstance(item, list | tuple):
            waiting = [*item, *waiting]
        elif type(item) is torch.ScriptObject:
            try:
                waiting.insert(0, item.__getstate__())
            except Exception:  # it cannot be pickled
                continue
