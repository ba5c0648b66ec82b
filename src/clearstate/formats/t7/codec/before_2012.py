"""Files of the layout before 2012 are told by what they hold where one table of fields is due since. They are not read.

Until 18 September 2011 each class of nn wrote its fields one after another, without names: ``gradInput``, ``output``,
then what else it had, some as values with a type number and some as bare ints and doubles. Packages around nn did so
until 2012. Which field is which, only the code of that day says. Torch 5 had one type of tensor, ``torch.Tensor``, and
wrote an int more into it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from ....errors import FormatError, WrongFormat
from .objects import HEADED, PAYLOADS, Object, Table, Value

OF_TORCH_5 = frozenset(("torch.Tensor", "torch.Storage"))
"""Classes that Torch7 never had."""

ROW = "a {name} is written in it as a row of fields without names"
TENSOR = "a {name} is written in it, which only Torch 5 had"
COUNT = "a number of elements stands in it before their kind"

_CLASS = rb"(?:V \d+%(gap)s)?(?P<name>[A-Za-z_]\w*\.\w+)"
_LENGTH = {"ascii": rb"\d+\n", "little": rb"[^\0]\0\0\0", "big": rb"\0\0\0[^\0]"}


def _heads(mode: str, one: bytes, torch: bytes, nothing: bytes, count: bytes) -> tuple[re.Pattern[bytes], ...]:
    """What a file begins with: an object whose first value is no table; a count before an object; an object."""
    length = _LENGTH[mode]
    gap = (b"\n" if mode == "ascii" else b"") + length
    named = torch + one + length + _CLASS % {b"gap": gap} + (b"\n" if mode == "ascii" else b"")
    row = rb"\s*" if mode == "ascii" else b""
    no_table = rb"(?:" + torch + rb"|" + nothing + rb")"
    return re.compile(row + named + no_table), re.compile(row + count + named), re.compile(row + named)


_HEADS = (
    _heads("ascii", rb"1\s+", rb"4\s+", rb"0\s+", rb"\d+\s+"),
    _heads("little", rb"\x01\0\0\0", rb"\x04\0\0\0", rb"\0\0\0\0", rb"[\s\S]{4}"),
    _heads("big", rb"\0\0\0\x01", rb"\0\0\0\x04", rb"\0\0\0\0", rb"[\s\S]{4}"),
)


def of_head(head: bytes) -> str | None:
    """How the first bytes of a file tell that its layout is of before 2012; ``None`` where they do not.

    >>> of_head(b"4\\n1\\n3\\nV 1\\n13\\nnn.Sequential\\n4\\n2\\n3\\nV 1\\n18\\ntorch.DoubleTensor\\n")
    'a nn.Sequential is written in it as a row of fields without names'
    >>> of_head(b"4\\n1\\n3\\nV 1\\n13\\nnn.Sequential\\n3\\n2\\n5\\n") is None
    True
    """
    for row, count, plain in _HEADS:
        if count.match(head):
            return COUNT
        first = plain.match(head)
        name = first["name"].decode() if first else ""
        if name in OF_TORCH_5:
            return TENSOR.format(name=name)
        if name.startswith("nn.") and name not in HEADED and row.match(head):
            return ROW.format(name=name)
    return None


def of_objects(objects: Iterable[Value], whole: bool) -> str | None:
    """How the objects that were read before an error tell it.

    Args:
        objects: in the order of the file.
        whole: whether all that were begun were also read to their end.

    >>> from clearstate.formats.t7 import Tensor
    >>> of_objects([Table(), Object("nn.Tanh", Tensor.of([1.0]))], whole=False)
    'a nn.Tanh is written in it as a row of fields without names'
    """
    for value in objects:
        if not isinstance(value, Object):
            continue
        if value.typename in OF_TORCH_5:
            return TENSOR.format(name=value.typename)
        if not value.typename.startswith("nn.") or value.typename in (*HEADED, *PAYLOADS):
            continue
        fields = value.state
        named = isinstance(fields, Table) and any(isinstance(key, str | bytes) for key in fields)
        if not named and (whole or (fields is not None and not isinstance(fields, Table))):
            return ROW.format(name=value.typename)
    return None


def named(error: FormatError, head: bytes, objects: Iterable[Value], whole: bool) -> FormatError:
    """The error that a reader met, or a better one where the file is of before 2012."""
    what = of_objects(objects, whole) or of_head(head)
    if what is None:
        return error
    from ...kinds import KINDS

    description, advice = KINDS["t7-before-2012"]
    return WrongFormat(description.format(what=what), advice)
