"""What constructors leave in the fields that work fills, and how it is put back."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...formats.t7.meaning.classes import Fresh, Left
from .ownership import TABLES, Kept, emptied, empty


def as_constructed(fresh: Fresh | None, dtype: torch.dtype | None = None) -> Kept:
    """A new value of the kind that a Torch7 constructor leaves in ``output`` or ``gradInput``."""
    if fresh is not None and fresh.left is Left.TABLE:
        return []
    if fresh is not None and fresh.left is Left.TENSORS:
        return [torch.empty(0, dtype=dtype) for _ in range(fresh.detail)]
    if fresh is not None and fresh.left is Left.VALUE:
        return float(fresh.detail)
    return torch.empty(0, dtype=dtype)


def restore(module: torch.nn.Module, name: str, constructed: dict[str, Any]) -> None:
    """Puts back into an attribute what the constructor left there, emptied; removes it where it left nothing."""
    own = module.__dict__
    if name not in constructed:
        own.pop(name, None)
        return
    value = constructed[name]
    if type(value) is Tensor:
        value = empty(value)
    elif isinstance(value, (Tensor, *TABLES)):
        value, former = emptied(value)
        if former is not None:
            own.setdefault("_former", {})[name] = former
    own[name] = value
