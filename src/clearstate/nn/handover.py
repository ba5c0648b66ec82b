"""What one module of a plain call leaves for a later one of the same call: a pooling's indices, for its unpooling.

The protocol keeps such things on the module. A plain call, ``model(x)``, leaves nothing behind: there they wait
here, on this thread, and go when the outermost call ends. Where modules are called one by one (in a ``forward`` of
plain PyTorch, or compiled) nobody knows when that is: there they wait until they are taken.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

import torch
from torch._compile import _disable_dynamo as uncompiled

from .tape import Way, calls


class _Waiting(threading.local):
    def __init__(self) -> None:
        self.given: weakref.WeakKeyDictionary[torch.nn.Module, tuple[Any, bool]] = weakref.WeakKeyDictionary()


_waiting = _Waiting()


@uncompiled
def give(module: torch.nn.Module, value: Any) -> None:
    """Leaves a value for whoever takes what this module gives."""
    within = calls.way is Way.PLAIN
    _waiting.given[module] = value, within
    if within and _ended not in calls.at_end:
        calls.at_end = (*calls.at_end, _ended)


@uncompiled
def take(module: torch.nn.Module) -> Any:
    """What the module gave last on this thread, or ``None``."""
    value, within = _waiting.given.get(module, (None, True))
    if not within:
        del _waiting.given[module]
    return value


def _ended(outermost: torch.nn.Module) -> None:
    """Drops what was given in a call that has ended; what a module gave that was called by itself waits on."""
    for module, (value, within) in list(_waiting.given.items()):
        if module is outermost:
            _waiting.given[module] = value, False
        elif within:
            del _waiting.given[module]
