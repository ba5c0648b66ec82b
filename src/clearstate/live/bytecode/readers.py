"""Finds the methods that read an attribute and that a run on a sample did not reach."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

from .methods import Method, methods, reached

SETTLING = frozenset(
    "train eval _apply to cpu cuda half float double bfloat16 type extra_repr __repr__ __getstate__ __setstate__ "
    "__deepcopy__ __copy__ __del__ load_state_dict _load_from_state_dict zero_grad requires_grad_".split()
)
"""Methods that move, copy, show or reset what there is: they do without what is not there."""


@contextmanager
def running(ran: set[CodeType]) -> Iterator[None]:
    """Notes the code of all functions that run inside; of none where a profiler is at work already.

    >>> def twice(x):
    ...     return 2 * x
    >>> ran = set()
    >>> with running(ran):
    ...     _ = twice(2)
    >>> twice.__code__ in ran
    True
    """
    if sys.getprofile() is not None:
        yield
        return

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            ran.add(frame.f_code)

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)


def reader(cls: type, name: str, ran: Collection[CodeType], *, made: bool = False) -> str | None:
    """The method that needs an attribute and that no sample ran, or ran without need of it; ``None`` if there is none.

    A method that only resets the attribute does not need it. What was computed by methods that did not run, and is read
    by one that did, is read there where the sample did not come by. What runs made again, and no other method ever
    makes, is theirs: who reads it besides reads what the last of them left.

    Args:
        cls: the class.
        name: the attribute in question.
        ran: the code of all that ran on the sample; where it is empty, what ``forward`` calls by name.
        made: whether runs without it made it again.

    >>> class Scaler:
    ...     def fit(self, x):
    ...         self.mean, self.seen = x.mean(), x
    ...     def encode(self, x):
    ...         return x - self.mean
    ...     def forward(self, x):
    ...         return x
    >>> ran = {Scaler.forward.__code__}
    >>> [reader(Scaler, name, ran) for name in ("mean", "seen")]
    ['encode', None]
    """
    known = {key: method for key, method in methods(cls).items() if key not in SETTLING}
    ours = {key for key, method in known.items() if method.body in ran} if ran else reached(cls, ["forward"])
    needing = [key for key, method in known.items() if name in method.reads and not _resets(method, name)]
    others = [key for key in needing if key not in ours]
    makers = {key for key, method in known.items() if name in method.computes}
    if makers and ours.isdisjoint(makers):
        others += needing
    if made and makers and makers <= ours:
        return None
    return others[0] if others else None


def _resets(method: Method, name: str) -> bool:
    return name in method.stores and name not in method.computes
