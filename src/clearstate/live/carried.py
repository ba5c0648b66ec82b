"""What a constructor made and methods go on from: constants in tables, objects at work, the state of a sequence.

Work may have put computed numbers there; it is no cache for that. Taken away, the next call would find nothing where
its class relies on something. Read off the class's bytecode: nothing is run.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import CodeType

from .classes import fact
from .constructors import BASE, CONSTRUCTORS, FILLERS, Left, left_by, nested, own_codes
from .holdings import Attribute


def is_carried(attribute: Attribute) -> bool:
    """Whether methods of the module's class go on from what its constructor left in an attribute.

    >>> import torch
    >>> class Steps(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.state = torch.zeros(1)
    ...         self.last = torch.zeros(1)
    ...     def forward(self, x):
    ...         self.state = self.state + x
    ...         self.last = x * 2
    ...         return self.state * self.last
    >>> layer = Steps()
    >>> [is_carried(Attribute("", layer, name, None)) for name in ("state", "last")]
    [True, False]
    """
    cls = type(attribute.module)
    return left_by(cls, attribute.name) is Left.SOMETHING and attribute.name in _awaited(cls)


def is_only_made(attribute: Attribute) -> bool:
    """Whether the constructor alone writes an attribute that methods read: it is part of what was built.

    >>> import torch
    >>> class Tied(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.weight = torch.nn.Parameter(torch.ones(2, 3))
    ...         self.back = self.weight.t()
    ...     def forward(self, x):
    ...         return x @ self.weight @ self.back
    >>> is_only_made(Attribute("", Tied(), "back", None))
    True
    """
    return is_carried(attribute) and attribute.name not in _written(type(attribute.module))


@fact
def _awaited(cls: type) -> frozenset[str]:
    """The attributes that some method reads before it has surely written them."""
    return frozenset().union(*(_own_awaited(parent) for parent in cls.__mro__))


@fact
def _own_awaited(cls: type) -> frozenset[str]:
    return frozenset(name for code in _working(cls) for name in _read_first(code))


@fact
def _written(cls: type) -> frozenset[str]:
    """The attributes that methods other than constructors store."""
    return frozenset(
        str(step.argval)
        for parent in cls.__mro__
        for code in _working(parent)
        for step in dis.get_instructions(code)
        if step.opname == "STORE_ATTR"
    )


def _working(cls: type) -> Iterator[CodeType]:
    """The code of all methods that a class itself defines, save constructors; nothing of what every module can do."""
    if cls.__module__ != BASE:
        yield from nested(code for name, code in own_codes(cls) if name not in CONSTRUCTORS)


JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))


def _read_first(code: CodeType) -> Iterator[str]:
    """The names that a piece of code reads, by name or by text, before it surely stores an attribute of that name."""
    sure = True
    stored: set[str] = set()
    for step in dis.get_instructions(code):
        if step.opname in FILLERS:
            continue
        sure = sure and not step.is_jump_target and step.opcode not in JUMPS
        name = step.argval
        if step.opname == "STORE_ATTR":
            if sure:
                stored.add(name)
        elif isinstance(name, str) and name not in stored:
            yield name
