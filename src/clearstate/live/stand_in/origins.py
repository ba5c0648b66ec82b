"""Remembers for each module of a stand-in which module of the model it stands for."""

from __future__ import annotations

import weakref
from typing import Any

import torch

_origins: dict[int, tuple[Any, int, Any]] = {}


def origin(module: torch.nn.Module) -> int:
    """The id of a module or, of one in a stand-in, of the module that it is the stand-in of."""
    known = _origins.get(id(module))
    return id(module) if known is None else known[1]


def original(module: torch.nn.Module) -> torch.nn.Module | None:
    """The module that one in a stand-in is the stand-in of; ``None`` of a module that is in none."""
    known = _origins.get(id(module))
    found: torch.nn.Module | None = None if known is None else known[2]()
    return found


def remember(new: torch.nn.Module, old: torch.nn.Module) -> None:
    key = id(new)
    _origins[key] = weakref.ref(new, lambda _: _origins.pop(key, None)), origin(old), weakref.ref(old)
