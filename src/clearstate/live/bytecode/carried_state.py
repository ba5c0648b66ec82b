"""Finds attributes that a constructor made and methods read before they write them: tables, states of sequences.

Work may have put computed numbers there; they are no caches for that. Taken away, the next call would find nothing
where its class relies on something. Read off the bytecode: nothing is run.
"""

from __future__ import annotations

from .classes import fact
from .constructors import Left, left_by
from .instructions import read
from .own_code import nested, working


def is_carried(cls: type, name: str) -> bool:
    """Whether methods of a class go on from what its constructor left in an attribute.

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
    >>> [is_carried(Steps, name) for name in ("state", "last")]
    [True, False]
    """
    return left_by(cls, name) is Left.SOMETHING and name in _read_first(cls)


def is_only_made(cls: type, name: str) -> bool:
    """Whether the constructor alone writes an attribute that methods read: it is part of what was built.

    >>> import torch
    >>> class Tied(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.weight = torch.nn.Parameter(torch.ones(2, 3))
    ...         self.back = self.weight.t()
    ...     def forward(self, x):
    ...         return x @ self.weight @ self.back
    >>> is_only_made(Tied, "back")
    True
    """
    return is_carried(cls, name) and name not in _written(cls)


@fact
def _read_first(cls: type) -> frozenset[str]:
    """The attributes that some method reads before it has surely written them."""
    return frozenset().union(*(read(code).awaited for parent in cls.__mro__ for code in nested(working(parent))))


@fact
def _written(cls: type) -> frozenset[str]:
    """The attributes that methods other than constructors store."""
    codes = (code for parent in cls.__mro__ for code in nested(working(parent)))
    return frozenset(store.name for code in codes for store in read(code).stores)
