"""What one module of a plain call leaves for a later one of the same call: a pooling's indices, for its unpooling.

The protocol keeps such things on the module. A plain call, ``model(x)``, leaves nothing behind: there they wait
here, on this thread, and go when the outermost call ends. Where modules are called one by one (in a ``forward`` of
plain PyTorch, or compiled) nobody knows when that is: there they wait until all who take them have done so.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any, NamedTuple

import torch
from torch._compile import _disable_dynamo as uncompiled

from .tape import Way, calls


class _Given(NamedTuple):
    value: Any
    within: bool
    """Whether it was given in a plain call, and goes when that ends."""
    takers: int
    """How many are still to take it."""


class _Waiting(threading.local):
    def __init__(self) -> None:
        self.given: weakref.WeakKeyDictionary[torch.nn.Module, _Given] = weakref.WeakKeyDictionary()


_waiting = _Waiting()


@uncompiled
def give(module: torch.nn.Module, value: Any, takers: int) -> None:
    """Leaves a value for so many takers of what this module gives."""
    within = calls.way is Way.PLAIN
    _waiting.given[module] = _Given(value, within, takers)
    if within and _ended not in calls.at_end:
        calls.at_end = (*calls.at_end, _ended)


@uncompiled
def take(module: torch.nn.Module) -> Any:
    """What the module gave last on this thread, or ``None``."""
    given = _waiting.given.get(module)
    if given is None:
        return None
    if given.within or given.takers > 1:
        _waiting.given[module] = given._replace(takers=given.takers - 1)
    else:
        del _waiting.given[module]
    return given.value


def _ended(outermost: torch.nn.Module) -> None:
    """Drops what was given in a call that has ended; what a module gave that was called by itself waits on."""
    for module, given in list(_waiting.given.items()):
        if module is outermost:
            _waiting.given[module] = given._replace(within=False)
        elif given.within:
            del _waiting.given[module]
