"""Torch7's file format: the object graph of a ``.t7`` file, read and written byte for byte.

>>> from clearstate.formats import t7
>>> t7.loads(t7.dumps(t7.Table.of([1, "two", True]))).array()
[1.0, 'two', True]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazily import names

if TYPE_CHECKING:
    from ..differences import Difference
    from .classes import register
    from .clearing import clear, not_cleared
    from .comparing import compare
    from .inventory import inspect, inspect_file
    from .layout import Layout
    from .objects import Boolean, Function, Object, Storage, Table, Tensor, references
    from .reader import File, load, loads, open_file
    from .writer import dumps, save, write, written_size

__all__ = [
    "Boolean",
    "Difference",
    "File",
    "Function",
    "Layout",
    "Object",
    "Storage",
    "Table",
    "Tensor",
    "clear",
    "compare",
    "dumps",
    "inspect",
    "inspect_file",
    "load",
    "loads",
    "not_cleared",
    "open_file",
    "references",
    "register",
    "save",
    "write",
    "written_size",
]

_ROOMS = {
    "Boolean": "objects",
    "clear": "clearing",
    "compare": "comparing",
    "Difference": "comparing",
    "dumps": "writer",
    "File": "reader",
    "Function": "objects",
    "inspect": "inventory",
    "inspect_file": "inventory",
    "Layout": "layout",
    "load": "reader",
    "loads": "reader",
    "not_cleared": "clearing",
    "Object": "objects",
    "open_file": "reader",
    "references": "objects",
    "register": "classes",
    "save": "writer",
    "Storage": "objects",
    "Table": "objects",
    "Tensor": "objects",
    "write": "writer",
    "written_size": "writer",
}
"""Where each name is: looking into a file need not load what writes one."""

__getattr__ = names(__name__, _ROOMS)
