"""Changes of one attribute of a module, each of which notes what undoes it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from operator import setitem
from typing import Any

from .attributes import Attribute

Undo = Callable[[], None]
"""What undoes one change."""


def assign(attribute: Attribute, value: Any, done: list[Undo]) -> None:
    """Sets an attribute; ``done`` gets what undoes it."""
    home = attribute.home
    home[attribute.name] = value
    done.append(partial(setitem, home, attribute.name, attribute.value))


def remove(attribute: Attribute, done: list[Undo]) -> None:
    """Takes an attribute away; what is registered comes back in its place among the others."""
    _, module, name, old, table = attribute
    home = attribute.home
    if name not in home:  # it went with another
        return
    if not table:
        del home[name]
        done.append(partial(setitem, home, name, old))
        return
    order = dict(home)
    del home[name]
    done.append(partial(_fill, home, order))
    passing = module.__dict__.get("_non_persistent_buffers_set", set())
    if name in passing:
        passing.discard(name)
        done.append(partial(passing.add, name))


def refill(table: Any, then: Any, done: list[Undo]) -> None:
    """Gives a list, dict or set another content: whoever holds it holds the same object."""
    old = table.copy()
    _fill(table, then)
    done.append(partial(_fill, table, old))


def _fill(table: Any, content: Any) -> None:
    table.clear()
    table.extend(content) if isinstance(table, list | deque) else table.update(content)
