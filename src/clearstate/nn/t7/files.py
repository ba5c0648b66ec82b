"""``.t7`` files as live modules."""

from __future__ import annotations

import os
from typing import Any

from ...errors import ClearstateError
from ...formats import t7
from ...formats.t7.codec.objects import Value
from ...roles import Role
from .reading import Reading, Unknown, UnknownClass
from .writing import Writing

__all__ = ["UnknownClass", "load", "save", "to_graph", "to_live"]


def load(path: str | os.PathLike[str], *, unknown: Unknown = "error") -> Any:
    """Reads a ``.t7`` file into live modules.

    Args:
        path: a Torch7 file of any layout.
        unknown: what becomes of a module whose class Python does not have: ``"error"`` raises, ``"keep"`` makes it
            an `Opaque` module, which is written back as it was and raises when called.

    Returns:
        what the file holds: modules, tensors, numbers, strings; lists for tables with keys 1..n, else dicts.

    Raises:
        UnknownClass: see ``unknown``.
        FormatError: the file is no whole Torch7 file.

    >>> import tempfile, os
    >>> import clearstate as cs, clearstate.nn as nn
    >>> path = os.path.join(tempfile.mkdtemp(), "net.t7")
    >>> cs.save(nn.Sequential().add(nn.Linear(3, 2)), path)
    >>> cs.load(path)
    nn.Sequential {
      [input -> (1) -> output]
      (1): nn.Linear(3 -> 2)
    }
    """
    return to_live(t7.load(path), unknown=unknown)


def save(value: Any, path: str | os.PathLike[str], *, layout: t7.Layout | None = None) -> None:
    """Writes live modules (or a list, dict, tensor, ...) to a ``.t7`` file that Torch7 itself loads and runs.

    Args:
        value: what `load` gives back.
        path: the file; it is replaced as a whole, once all is written.
        layout: binary with 8-byte longs unless given.

    Raises:
        TypeError: something in it has no Torch7 class; named by its place.

    >>> import os, tempfile
    >>> import clearstate.nn as nn
    >>> path = os.path.join(tempfile.mkdtemp(), "net.t7")
    >>> nn.save(nn.Linear(3, 2), path)
    >>> nn.load(path)
    nn.Linear(3 -> 2)
    """
    graph = to_graph(value)
    t7.clear(graph, {Role.SLACK})  # a part of a net with flat parameters goes without the rest
    t7.save(graph, path, layout) if layout is not None else t7.save(graph, path)


def to_live(value: Value, *, unknown: Unknown = "error") -> Any:
    """The live form of an object graph."""
    reading = Reading(unknown)
    try:
        live = reading.value(value)
        reading.merge_shared_parameters()
        return live
    except RecursionError:
        raise ClearstateError("modules or tables nested too deep to be made live") from None


def to_graph(value: Any) -> Value:
    """The object graph of live modules."""
    try:
        return Writing().value(value)
    except RecursionError:
        raise ClearstateError("modules or tables nested too deep to be written") from None
