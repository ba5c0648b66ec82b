"""Clears live modules of the roles asked for."""

from __future__ import annotations

import gc
from collections.abc import Collection

import torch

from ..roles import Role
from .stateful import Stateful


def clear(model: torch.nn.Module, dropped: Collection[Role], *, collect: bool = False) -> None:
    """Drops roles from a module and all modules inside.

    Args:
        model: a module of `clearstate.nn`, or one that holds such modules.
        dropped: ``transient`` and ``gradient`` are what a module can have.
        collect: also collect garbage, and give the device's cached memory back.

    >>> import clearstate.nn as nn
    >>> net = nn.Linear(3, 2)
    >>> net.zero_grad_parameters()
    >>> clear(net, {Role.GRADIENT})
    >>> net.weight.grad is None
    True
    """
    if Role.TRANSIENT in dropped:
        for module in model.modules():
            if isinstance(module, Stateful):
                module.clear_own()
    if Role.GRADIENT in dropped:
        model.zero_grad(set_to_none=True)
    if collect:
        gc.collect()
        empty_caches()


def empty_caches() -> None:
    """Gives cached memory of every accelerator that PyTorch has back to the device."""
    for name in ("cuda", "xpu", "mps"):
        device = getattr(torch, name, None)
        if device is not None and device.is_available():
            device.empty_cache()
