"""Calls as source text: on one line where they fit, else one argument a line, as ``ruff format`` has them."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

WIDTH = 88
"""Columns that a line of generated source takes at most."""


class Call(NamedTuple):
    """A call, or whatever else has items between brackets.

    >>> print(Call("nn.Linear", ("3", "4")))
    nn.Linear(3, 4)
    """

    function: str
    items: tuple[str | Call, ...] = ()
    brackets: str = "()"

    def __str__(self) -> str:
        return f"{self.function}{self.brackets[0]}{', '.join(map(str, self.items))}{self.brackets[1]}"


def call(function: str, *arguments: Any, **named: Any) -> Call:
    """A call with these arguments; what is `None` among the named ones is left out.

    >>> print(call("nn.Conv2d", 3, 4, (3, 5), padding=None, bias=False))
    nn.Conv2d(3, 4, (3, 5), bias=False)
    """
    items = [text(argument) for argument in arguments]
    items += [f"{name}={text(value)}" for name, value in named.items() if value is not None]
    return Call(function, tuple(items))


def text(value: Any) -> str | Call:
    """A number, tuple, string or call as source.

    >>> text(0.5), text(3.0), text((2, 1.0)), text("nearest")
    ('0.5', '3', '(2, 1)', '"nearest"')
    """
    if isinstance(value, Call):
        return value
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple | list):
        inside = ", ".join(str(text(part)) for part in value)
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    if isinstance(value, float):
        return number(value)
    return repr(value)


def number(value: float) -> str:
    """A number as source: whole ones without a point.

    >>> number(2.0), number(1e-05), number(float("inf")), number(-float("inf"))
    ('2', '1e-5', 'math.inf', '-math.inf')
    """
    if math.isnan(value):
        return "math.nan"
    if math.isinf(value):
        return "math.inf" if value > 0 else "-math.inf"
    if value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return repr(value).replace("e-0", "e-").replace("e+", "e")


def lines(prefix: str, what: str | Call, indent: int, suffix: str = "") -> list[str]:
    """A statement or an argument as lines of source.

    >>> lines("x = ", "a + b", 4)
    ['    x = a + b']
    >>> for line in lines("", Call("f", ("a" * 50, "b" * 50)), 0): print(line[:12])
    f(
        aaaaaaaa
        bbbbbbbb
    )
    """
    space = " " * indent
    whole = f"{space}{prefix}{what}{suffix}"
    if isinstance(what, str) or (len(whole) <= WIDTH and not _always_apart(what)):
        return [whole]
    opening, closing = what.brackets[0], what.brackets[1]
    inner = [line for item in what.items for line in lines("", item, indent + 4, ",")]
    return [f"{space}{prefix}{what.function}{opening}", *inner, f"{space}{closing}{suffix}"]


def _always_apart(what: Call) -> bool:
    """Whether each item has a line of its own wherever it would fit: those of a ``nn.Sequential``."""
    return what.function == "nn.Sequential" and len(what.items) > 0
