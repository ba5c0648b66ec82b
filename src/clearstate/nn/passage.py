"""The way of an error out of a net: the message names the module it began in, by its path and class, once."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .stateful import Stateful


def passed(error: Exception, module: Stateful, outermost: bool) -> None:
    """Notes that an error leaves a module; the outermost puts the path of the one it began in into the message."""
    chain: list[Stateful] = error.__dict__.setdefault("_through", [])
    chain.append(module)
    if not outermost or "_named" in error.__dict__:
        return
    error.__dict__["_named"] = True
    del error.__dict__["_through"]
    path = []
    for inner, outer in pairwise(chain):
        path.append(next((name for name, child in outer.named_modules() if child is inner), "?"))
    where = ".".join(reversed(path))
    if where and error.args and isinstance(error.args[0], str):
        error.args = (f"in {where} ({chain[0].typename}): {error.args[0]}", *error.args[1:])
