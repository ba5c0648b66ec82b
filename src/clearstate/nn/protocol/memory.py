"""What recurrent modules carry from one step of a sequence to the next: it is never kept on the modules.

    with sequence():
        for x in steps:
            y = net(x)            # an nn.LSTM somewhere inside goes on from its last step

A step outside any sequence is a first step.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

Memory = dict[Any, Any]
"""What each recurrent module carries, by module."""


class _Current(threading.local):
    memory: Memory | None = None


_current = _Current()


@contextmanager
def sequence(memory: Memory | None = None) -> Iterator[Memory]:
    """Makes the calls of recurrent modules inside the block steps of one sequence.

    Args:
        memory: what an earlier block gave, to go on from there. The graph of those steps is kept: detach the
            tensors in it to cut it.

    >>> import torch
    >>> from clearstate.nn.packs import rnn
    >>> lstm, x = rnn.LSTM(2, 3), torch.ones(4, 1, 2)
    >>> with sequence() as memory:
    ...     a, b = lstm(x[0]), lstm(x[1])
    >>> with sequence(memory):
    ...     c = lstm(x[2])
    >>> torch.allclose(torch.stack([a, b, c]), rnn.Sequencer(lstm)(x[:3]))
    True
    """
    outer = _current.memory
    _current.memory = inner = {} if memory is None else memory
    try:
        yield inner
    finally:
        _current.memory = outer


def current() -> Memory | None:
    """What is carried now; ``None`` outside any sequence."""
    return _current.memory


def recall(module: Any, first: Callable[[], T]) -> T:
    """What a module carries, or what ``first`` gives where this is its first step."""
    memory = _current.memory
    return memory[module] if memory is not None and module in memory else first()


def carry(module: Any, state: Any) -> None:
    """Hands a state on to the module's next step."""
    if _current.memory is not None:
        _current.memory[module] = state
