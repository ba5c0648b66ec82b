"""Tells where what is declared a leftover is still needed: a trainer in its fit, a process conditioned on more data."""

from __future__ import annotations

from typing import Any

import torch

from ..bytecode.classes import qualified
from ..stand_in.origins import origin

IN_USE = "at work"
"""The evidence of what stays for that."""

AWAITED = frozenset(
    f"gpytorch.variational.{name}"
    for name in (
        "unwhitened_variational_strategy.UnwhitenedVariationalStrategy",
        "ciq_variational_strategy.CiqVariationalStrategy",
    )
)
"""In training, the divergence of these is of what their forward left, and would be another without it, or none."""


def is_in_use(module: torch.nn.Module, name: str, value: Any) -> bool:
    """Whether what a declaration names is needed all the same, and nothing would make it again.

    >>> is_in_use(torch.nn.Linear(2, 2), "_trainer", None)
    False
    """
    if name == "prediction_strategy":
        return _is_conditioned(module, value)
    if name == "_memoize_cache":
        return module.training and any(qualified(parent) in AWAITED for parent in type(module).__mro__)
    status = getattr(getattr(value, "state", None), "status", None)
    return status is not None and str(getattr(status, "value", status)) == "running"


def _is_conditioned(process: Any, strategy: Any) -> bool:
    """Whether a Gaussian process of GPyTorch got its strategy from another one: what it would make itself differs.

    One that it makes for its own data has its own likelihood.
    """
    if strategy is None:
        return False
    ours, theirs = getattr(process, "likelihood", None), getattr(strategy, "likelihood", None)
    return ours is None or theirs is None or origin(ours) != origin(theirs)
