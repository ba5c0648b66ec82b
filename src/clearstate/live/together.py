"""What a class's methods write while they work, read off their bytecode: nothing is run.

Sizes, flags and keys that are written together with a cache go with it: half of a cache is none.

``self.length = n; self.table = torch.arange(n)`` in one straight piece of code: who clears the table and leaves the
length tells the next forward that the table is there. What methods read and never write is set from outside, or
by the constructor: no leftover of work.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator, Sequence
from itertools import pairwise
from types import CodeType
from typing import Any, NamedTuple

import torch

from .classes import fact
from .constructors import BASE, CONSTRUCTORS, FILLERS, Left, nested, own_codes, stores
from .holdings import Attribute

PLAIN = (type(None), bool, int, float, str, tuple, torch.Size, torch.device, torch.dtype)
"""What a size, a flag or a key is."""


def companions(cache: Attribute) -> Sequence[Attribute]:
    """The plain attributes of a module that are only written where a cache is, with their values of now.

    Those alone whose constructor leaves a known value or none at all: that is what they can go back to.

    >>> class Table(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.steps = 0
    ...         self.length = None
    ...         self.table = None
    ...     def forward(self, x):
    ...         self.steps += 1
    ...         if len(x) != self.length:
    ...             self.length = len(x)
    ...             self.table = torch.arange(self.length)
    ...         return x + self.table
    >>> layer = Table()
    >>> _ = layer(torch.ones(3))
    >>> [(other.name, other.value) for other in companions(Attribute("", layer, "table", layer.table))]
    [('length', 3)]
    """
    others = _together(type(cache.module)).get(cache.name)
    if not others:
        return ()
    own = cache.module.__dict__
    found = [Attribute(cache.path, cache.module, name, own[name]) for name in others if name in own]
    return [other for other in found if isinstance(other.value, PLAIN) and not any(other.held())]


def is_work(attribute: Attribute) -> bool:
    """Whether an attribute can have been left by work, as far as its class's code tells.

    Not, where methods read it and none writes it: its value came from the constructor or from outside.

    >>> class Loss(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.weights = None
    ...     def forward(self, x):
    ...         self.last = x
    ...         return x * self.weights if self.training else x
    >>> layer = Loss()
    >>> [is_work(Attribute("", layer, name, None)) for name in ("weights", "last", "of_a_hook")]
    [False, True, True]
    """
    cls = type(attribute.module)
    left = stores(cls).get(attribute.name, Left.NOTHING)
    if not isinstance(left, Left) and isinstance(left(), list | dict | set):
        return True
    written, read = _work(cls)
    return attribute.name in written or attribute.name not in read


@fact
def _work(cls: type) -> tuple[frozenset[str], frozenset[str]]:
    """The attributes that methods other than constructors write, and all names that they mention."""
    parts = [_own_work(parent) for parent in cls.__mro__]
    return frozenset(s.name for stores, _ in parts for s in stores), frozenset().union(*(read for _, read in parts))


class _Store(NamedTuple):
    name: str
    block: tuple[CodeType, int]
    constant: bool
    of_itself: bool
    """Whether the value is made of the attribute's own value: a counter."""


@fact
def _together(cls: type) -> dict[str, tuple[str, ...]]:
    """For each attribute that methods compute, the others that are only written in the same blocks of code.

    Those alone of which it is known what the constructor leaves.
    """
    written: dict[str, set[tuple[CodeType, int]]] = {}
    refused = {name for name, left in stores(cls).items() if left is Left.SOMETHING}
    for store in (store for parent in cls.__mro__ for store in _own_work(parent)[0]):
        if store.of_itself:
            refused.add(store.name)
        if not store.constant:
            written.setdefault(store.name, set()).add(store.block)
    return {
        cache: tuple(
            sorted(other for other, at in written.items() if other != cache and other not in refused and at <= blocks)
        )
        for cache, blocks in written.items()
    }


@fact
def _own_work(cls: type) -> tuple[tuple[_Store, ...], frozenset[str]]:
    """What the methods that a class itself defines store, and the names that they mention; without constructors."""
    if cls.__module__ == BASE:
        return (), frozenset()
    codes = [code for name, code in own_codes(cls) if name not in CONSTRUCTORS]
    stored = tuple(store for code in codes for store in _stored(code))
    return stored, frozenset(name for code in nested(codes) for name in code.co_names)


def _stored(code: CodeType) -> Iterator[_Store]:
    """What a function stores on ``self``: a block ends where the code jumps, or where it is jumped to."""
    block = 0
    statement: list[dis.Instruction] = []
    for step in dis.get_instructions(code):
        if step.is_jump_target:
            block += 1
        if step.opname in FILLERS:
            continue
        if step.opname == "STORE_ATTR" and statement and _last(statement[-1]) == "self":
            name = str(step.argval)
            of_itself = any(
                step.opname == "LOAD_ATTR" and step.argval == name and _last(of) == "self"
                for of, step in pairwise(statement)
            )
            constant = len(statement) == 2 and statement[0].opname in ("LOAD_CONST", "LOAD_SMALL_INT", "BUILD_MAP")
            yield _Store(name, (code, block), constant, of_itself)
        if step.opname.startswith("STORE") or step.opname == "POP_TOP" or step.opcode in JUMPS:
            statement = []
            block += step.opcode in JUMPS
            if not step.opname.endswith("LOAD_FAST"):
                continue
        statement.append(step)


JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))


def _last(step: dis.Instruction) -> Any:
    """The variable that an instruction loads last; newer Pythons load two at once."""
    if "LOAD_FAST" not in step.opname:
        return None
    return step.argval[-1] if isinstance(step.argval, tuple) else step.argval
