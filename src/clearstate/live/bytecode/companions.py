"""Finds attributes that methods write only where they write another one: sizes, flags and keys of a cache.

They go with the cache, since half of it is none. Read off the bytecode: nothing is run.

``self.length = n; self.table = torch.arange(n)`` in one straight piece of code: who clears the table and leaves the
length tells the next forward that the table is there. What methods read and never write is set from outside, or
by the constructor: no leftover of work.
"""

from __future__ import annotations

from collections.abc import Sequence

from .classes import fact
from .constructors import Left, stores
from .instructions import read
from .own_code import nested, working


def companions(cls: type, name: str) -> Sequence[str]:
    """The attributes that methods of a class only write where they write another one.

    Those alone whose constructor leaves a known value or none at all: that is what they can go back to.

    >>> class Table:
    ...     def __init__(self):
    ...         self.steps = 0
    ...         self.length = None
    ...         self.table = None
    ...     def forward(self, x):
    ...         self.steps += 1
    ...         if len(x) != self.length:
    ...             self.length = len(x)
    ...             self.table = range(self.length)
    ...         return x + self.table
    >>> companions(Table, "table")
    ('length',)
    """
    return _companions(cls).get(name, ())


def is_work(cls: type, name: str) -> bool:
    """Whether an attribute can have been left by work, as far as a class's code tells.

    Not, where methods read it and none writes it: its value came from the constructor or from outside.

    >>> class Loss:
    ...     def __init__(self):
    ...         self.weights = None
    ...     def forward(self, x):
    ...         self.last = x
    ...         return x * self.weights if self.training else x
    >>> [is_work(Loss, name) for name in ("weights", "last", "of_a_hook")]
    [False, True, True]
    """
    left = stores(cls).get(name, Left.NOTHING)
    if not isinstance(left, Left) and isinstance(left(), list | dict | set):
        return True
    written, read = _work(cls)
    return name in written or name not in read


@fact
def _work(cls: type) -> tuple[frozenset[str], frozenset[str]]:
    """The attributes that methods other than constructors store on ``self``, and all names that they mention."""
    codes = [code for parent in cls.__mro__ for code in working(parent)]
    return (
        frozenset(store.name for code in codes for store in read(code).stores if store.on_self),
        frozenset(name for code in nested(codes) for name in code.co_names),
    )


@fact
def _companions(cls: type) -> dict[str, tuple[str, ...]]:
    """For each attribute that methods compute, the others that are only written in the same blocks of code.

    Those alone of which it is known what the constructor leaves, and that are not made of themselves: a counter.
    """
    written: dict[str, set[tuple[int, int]]] = {}
    refused = {name for name, left in stores(cls).items() if left is Left.SOMETHING}
    for code in (code for parent in cls.__mro__ for code in working(parent)):
        for store in read(code).stores:
            if store.on_self and store.of_itself:
                refused.add(store.name)
            if store.on_self and not store.alone:
                written.setdefault(store.name, set()).add((id(code), store.block))
    return {
        cache: tuple(
            sorted(other for other, at in written.items() if other != cache and other not in refused and at <= blocks)
        )
        for cache, blocks in written.items()
    }
