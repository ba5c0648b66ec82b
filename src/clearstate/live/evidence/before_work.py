"""What an attribute was before work, by a baseline or by its class's constructors; and putting it back."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch

from ..bytecode.companions import companions
from ..bytecode.constructors import Left, left_by
from ..holdings.attributes import Attribute
from ..holdings.undoable import Undo, assign, refill, remove
from ..holdings.values import TABLES
from .baseline import Baseline
from .declared import plan

SETTINGS = (type(None), bool, int, float, str, tuple, torch.Size, torch.device, torch.dtype)
"""What a size, a flag or a key is."""


def companions_of(cache: Attribute) -> Sequence[Attribute]:
    """The sizes, flags and keys of a module that are only written where a cache is, with their values of now.

    >>> class Table(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.length = None
    ...         self.table = None
    ...     def forward(self, x):
    ...         self.length = len(x)
    ...         self.table = torch.arange(self.length)
    ...         return x + self.table
    >>> layer = Table()
    >>> _ = layer(torch.ones(3))
    >>> [(other.name, other.value) for other in companions_of(Attribute("", layer, "table", layer.table))]
    [('length', 3)]
    """
    others = companions(type(cache.module), cache.name)
    if not others:
        return ()
    own = cache.module.__dict__
    found = [Attribute(cache.path, cache.module, name, own[name]) for name in others if name in own]
    return [other for other in found if isinstance(other.value, SETTINGS) and not any(other.held())]


def restore(attribute: Attribute, baseline: Baseline | None, done: list[Undo]) -> None:
    """Puts an attribute back to what it was before work: as in the baseline, or as its constructor left it.

    Sizes and flags that are written together with it go back, too. A list, dict or set that the constructor leaves
    empty stays the same object and is emptied.
    """
    others = companions_of(attribute)
    _restore(attribute, baseline, done)
    if others:
        for other in others:
            _restore(other, baseline, done)


def _restore(attribute: Attribute, baseline: Baseline | None, done: list[Undo]) -> None:
    if baseline is not None and baseline.knows(attribute.module):
        there, then = baseline.value(attribute)
    else:
        left = left_by(type(attribute.module), attribute.name)
        there = left is not Left.NOTHING and attribute.name not in plan(type(attribute.module)).absent
        then = None if isinstance(left, Left) else left()
        if left is Left.SOMETHING and type(attribute.value) in TABLES:
            then = copy.copy(attribute.value)
            then.clear()
    if not there:
        remove(attribute, done)
    elif type(then) in TABLES and type(then) is type(attribute.value):
        refill(attribute.value, then, done)
    else:
        assign(attribute, then, done)
