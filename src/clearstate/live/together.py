"""What a class's methods write while they work, read off their bytecode: nothing is run.

Sizes, flags and keys that are written together with a cache go with it: half of a cache is none.

``self.length = n; self.table = torch.arange(n)`` in one straight piece of code: who clears the table and leaves the
length tells the next forward that the table is there. What methods read and never write is set from outside, or
by the constructor: no leftover of work.
"""

from __future__ import annotations

import dis
import inspect
from collections.abc import Hashable, Iterator
from functools import lru_cache
from itertools import pairwise
from types import CodeType
from typing import Any, NamedTuple

import torch

from .constructors import CONSTRUCTORS, FILLERS, Left, nested, stores
from .holdings import Attribute

PLAIN = (type(None), bool, int, float, str, tuple, torch.Size, torch.device, torch.dtype)
"""What a size, a flag or a key is."""


def companions(cache: Attribute) -> Iterator[Attribute]:
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
    own = cache.module.__dict__
    cls: type = type(cache.module)
    for name in sorted(_together(cls).get(cache.name, ())):
        known = stores(cls).get(name, Left.NOTHING)
        if name in own and isinstance(own[name], PLAIN) and known is not Left.SOMETHING:
            other = Attribute(cache.path, cache.module, name, own[name])
            if not other.tensors():
                yield other


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
    cls: type = type(attribute.module)
    left = stores(cls).get(attribute.name, Left.NOTHING)
    if not isinstance(left, Left) and isinstance(left(), list | dict | set):
        return True
    written, read = _work(cls)
    return attribute.name in written or attribute.name not in read


@lru_cache(maxsize=4096)
def _work(cls: Hashable) -> tuple[frozenset[str], frozenset[str]]:
    """The attributes that methods other than constructors write, and all names that they mention."""
    assert isinstance(cls, type)
    read = frozenset(name for code in nested(_methods(cls)) for name in code.co_names)
    return frozenset(store.name for store in _stores(cls)), read


class _Store(NamedTuple):
    name: str
    block: tuple[CodeType, int]
    constant: bool
    of_itself: bool
    """Whether the value is made of the attribute's own value: a counter."""


@lru_cache(maxsize=4096)
def _together(cls: Hashable) -> dict[str, frozenset[str]]:
    """For each attribute that methods compute, the others that are only written in the same blocks of code."""
    assert isinstance(cls, type)
    written: dict[str, set[tuple[CodeType, int]]] = {}
    refused: set[str] = set()
    for store in _stores(cls):
        if store.of_itself:
            refused.add(store.name)
        if not store.constant:
            written.setdefault(store.name, set()).add(store.block)
    return {
        cache: frozenset(
            other for other, at in written.items() if other != cache and other not in refused and at <= blocks
        )
        for cache, blocks in written.items()
    }


def _stores(cls: type) -> Iterator[_Store]:
    for code in _methods(cls):
        yield from _stored(code)


def _methods(cls: type) -> Iterator[CodeType]:
    for parent in cls.__mro__:
        if parent.__module__ == "torch.nn.modules.module":
            continue
        for name, value in parent.__dict__.items():
            method = getattr(value, "__func__", value)
            code = getattr(inspect.unwrap(method) if callable(method) else method, "__code__", None)
            if isinstance(code, CodeType) and name not in CONSTRUCTORS:
                yield code


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
