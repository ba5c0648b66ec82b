"""Layers and functions that stock PyTorch has not: small classes whose source is copied into what is exported.

They are ordinary code, checked and tested as such, that uses ``torch``, ``nn``, ``F``, ``math`` and each other only.
Lines are short enough for anybody's formatter to leave alone.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from . import convolution, gradients, learned, losses, noise, normalization, pooling, recurrent, shaping

MODULES: tuple[ModuleType, ...] = (
    convolution,
    learned,
    noise,
    normalization,
    pooling,
    recurrent,
    shaping,
    gradients,
    losses,
)

PIECES: dict[str, Any] = {
    name: value
    for module in MODULES
    for name, value in vars(module).items()
    if getattr(value, "__module__", None) == module.__name__
}
"""All of them by name, in the order of their files."""


def register(piece: Any) -> Any:
    """Adds a class or function of your own, whose source goes into what is exported with it; returns it."""
    PIECES[piece.__name__] = piece
    return piece


def namespace() -> dict[str, Any]:
    """What the source of a layer may name."""
    return {"torch": torch, "nn": nn, "F": functional, "math": math, "Tensor": Tensor, **PIECES}


def used(text: str) -> list[str]:
    """The pieces that a source names, and those that they name, each after those it needs.

    >>> used("x = interpolated(x, (2, 2))")
    ['interpolated_along', 'interpolated']
    """
    found: list[str] = []
    _collect(text, found)
    return found


def _collect(text: str, found: list[str]) -> None:
    words = set(re.findall(r"(?<![.\w])[A-Za-z_]\w*", text))
    for name in PIECES:
        if name in words and name not in found:
            _collect(re.sub(rf"\b{name}\b", "", source_of(name)), found)
            found.append(name)


def source_of(name: str) -> str:
    """The source of a piece."""
    return re.sub(r"  # type: ignore.*", "", inspect.getsource(PIECES[name]).rstrip()) + "\n"


def sources(names: Iterable[str]) -> list[str]:
    """The sources of these pieces."""
    return [source_of(name) for name in names]
