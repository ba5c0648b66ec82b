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
    from .codec.layout import Layout
    from .codec.objects import Boolean, Function, Object, Storage, Table, Tensor, references
    from .codec.reader import File, load, loads, open_file
    from .codec.writer import dumps, save, write, written_size
    from .meaning.classes import register
    from .meaning.clearing import clear, not_cleared
    from .meaning.comparing import compare
    from .meaning.inventory import inspect, inspect_file

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
    "Boolean": "codec.objects",
    "clear": "meaning.clearing",
    "compare": "meaning.comparing",
    "Difference": "meaning.comparing",
    "dumps": "codec.writer",
    "File": "codec.reader",
    "Function": "codec.objects",
    "inspect": "meaning.inventory",
    "inspect_file": "meaning.inventory",
    "Layout": "codec.layout",
    "load": "codec.reader",
    "loads": "codec.reader",
    "not_cleared": "meaning.clearing",
    "Object": "codec.objects",
    "open_file": "codec.reader",
    "references": "codec.objects",
    "register": "meaning.classes",
    "save": "codec.writer",
    "Storage": "codec.objects",
    "Table": "codec.objects",
    "Tensor": "codec.objects",
    "write": "codec.writer",
    "written_size": "codec.writer",
}
"""Where each name is: looking into a file need not load what writes one."""

__getattr__ = names(__name__, _ROOMS)
