"""Layers of PyTorch itself, which a net of nn may hold: they stay what they are."""

from __future__ import annotations

import ast
from typing import Any

import torch

from ..calls import Call
from ..values import Value
from .table import Rule, Unmapped


def is_stock(module: torch.nn.Module) -> bool:
    """Whether a module is one of PyTorch's layers, with no module inside."""
    return type(module).__module__.startswith("torch.nn.modules.") and not any(True for _ in module.children())


def constructor(module: torch.nn.Module) -> Call:
    """The call that makes a layer like this one, as its ``repr`` says.

    >>> print(constructor(torch.nn.Conv2d(3, 4, (3, 5), padding=1, bias=False)))
    nn.Conv2d(3, 4, kernel_size=(3, 5), stride=(1, 1), padding=(1, 1), bias=False)
    """
    said = repr(module)
    try:
        call = ast.parse(said, mode="eval").body
    except SyntaxError:
        raise Unmapped(f"{said} does not say how it is made") from None
    if not isinstance(call, ast.Call):
        raise Unmapped(f"{said} does not say how it is made")
    items = [_segment(said, part) for part in call.args]
    items += [f"{part.arg}={_segment(said, part.value)}" for part in call.keywords]
    return Call(f"nn.{type(module).__name__}", tuple(items))


def _segment(said: str, part: ast.expr) -> str:
    if isinstance(part, ast.Constant) and isinstance(part.value, str):
        return f'"{part.value}"'
    return ast.get_source_segment(said, part) or ""


def stays(m: torch.nn.Module, x: Any, to: Any) -> Any:
    """A layer of PyTorch as it is."""
    if not isinstance(x, Value):
        raise Unmapped("its input is a table")
    state = {**dict(m.named_parameters()), **dict(m.named_buffers())}
    state.pop("num_batches_tracked", None)
    try:
        return to.layer(x, constructor(m), type(m).__name__.lower(), **state)
    except (NameError, TypeError, ValueError) as error:
        raise Unmapped(f"{m} does not say how it is made: {error}") from None


STOCK = Rule(stays, "what it is")
"""The rule of all of them."""
