"""The rule of a module, found by its class; the rules of packs are imported once a module of theirs comes up."""

from __future__ import annotations

import importlib
import importlib.util

import torch

from .stock import STOCK, is_stock
from .table import RULES, Rule

PACKS = f"{__name__.partition('.')[0]}.nn.packs."
"""Where classes of other packages are."""


def _import_rules(file: str) -> None:
    """Imports the rules for a file of packs, if there are any."""
    name = f"{__package__}.packs.{file}"
    if importlib.util.find_spec(name) is not None:
        importlib.import_module(name)


def rule_of(module: torch.nn.Module) -> Rule | None:
    """The rule of a module: that of its class, or of a parent whose forward it has not changed."""
    for cls in type(module).__mro__:
        if cls not in RULES and cls.__module__.startswith(PACKS):
            _import_rules(cls.__module__.removeprefix(PACKS))
        if cls in RULES:
            mine, theirs = (
                [getattr(c, name, None) for name in ("update_output", "forward", "draw")] for c in (type(module), cls)
            )
            return RULES[cls] if mine == theirs else None
    return STOCK if is_stock(module) else None
