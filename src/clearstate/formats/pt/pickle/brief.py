"""What a value is, in a few words, whatever it is: nested without end, shared a thousandfold, or a number of a mile."""

from __future__ import annotations

from .stubs import Global, Value

LENGTH = 80
"""Characters that are said of a value."""


def brief(value: Value, depth: int = 3) -> str:
    """The value as Python writes it, cut short in depth and length.

    >>> brief(("storage", [1, 2, 3, 4, 5, 6, 7, 8, 9]))
    "('storage', [1, 2, 3, 4, 5, 6, 7, 8, ...])"
    """
    if isinstance(value, Global):
        text = str(value)
    elif isinstance(value, str | bytes | bytearray):
        text = repr(value[:LENGTH])
    elif type(value) is int and value.bit_length() > 256:
        text = f"a number of {value.bit_length()} bits"
    elif isinstance(value, dict | list | tuple | set | frozenset):
        text = _nested(value, depth)
    else:
        text = repr(value)
    return text if len(text) <= LENGTH else f"{text[: LENGTH - 3]}..."


def _nested(value: Value, depth: int) -> str:
    if depth == 0 or isinstance(value, set | frozenset):
        return f"a {type(value).__name__} of {len(value)}"
    parts = []
    for part, _ in zip(value, range(8), strict=False):
        item = f": {brief(value[part], depth - 1)}" if isinstance(value, dict) else ""
        parts.append(brief(part, depth - 1) + item)
    if len(value) > len(parts):
        parts.append("...")
    first, last = ("{", "}") if isinstance(value, dict) else ("[", "]") if isinstance(value, list) else ("(", ")")
    return f"{first}{', '.join(parts)}{',' if last == ')' and len(value) == 1 else ''}{last}"
