"""The table of rules: what each class of nn becomes. A rule is a function of the module, its input and the builder.

A class of your own is added the same way::

    @rule(Double, becomes="2 * x")
    def double(module, x, to):
        return to.code("2 * {0}", x)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch


class Unmapped(Exception):
    """This layer, as it is configured, cannot be converted; the text says why.

    >>> raise Unmapped("its input is a table")
    Traceback (most recent call last):
    clearstate.export.rules.table.Unmapped: its input is a table
    """


Function = Callable[[Any, Any, Any], Any]


class Rule(NamedTuple):
    """How a class is converted, and in a few words into what.

    ``container`` rules convert the modules inside and compute nothing themselves. ``in_place`` is whether the class
    really works on its input where its flag ``inplace`` is set.
    """

    function: Function
    becomes: str
    container: bool = False
    in_place: bool = True


RULES: dict[type, Rule] = {}
"""The rule of each class."""


def rule(
    *classes: type, becomes: str, container: bool = False, in_place: bool = True
) -> Callable[[Function], Function]:
    """Adds a rule for these classes.

    >>> import clearstate as cs, clearstate.nn as nn
    >>> class Thrice(nn.Module, typename="my.Thrice"):
    ...     def update_output(self, input):
    ...         return 3 * input
    >>> @rule(Thrice, becomes="3 * x")
    ... def thrice(module, x, to):
    ...     return to.code("3 * {0}", x)
    >>> net = nn.Sequential().add(nn.Linear(2, 2)).add(Thrice())
    >>> cs.to_stock(net)(torch.ones(1, 2)).shape
    torch.Size([1, 2])
    """

    def add(function: Function) -> Function:
        for cls in classes:
            RULES[cls] = Rule(function, becomes, container, in_place)
        return function

    return add


def class_name(module: torch.nn.Module) -> str:
    """The Torch7 class of a module; of another module, its Python class."""
    name = getattr(module, "typename", None)
    return name if isinstance(name, str) else type(module).__qualname__
