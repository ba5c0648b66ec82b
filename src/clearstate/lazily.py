"""Names of a package that are imported when they are asked for: what is not used is not loaded."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def names(package: str, rooms: Mapping[str, str]) -> Callable[[str], Any]:
    """What a package has for its ``__getattr__``.

    Args:
        package: its name.
        rooms: the module below it that each name is in.

    >>> names("clearstate", {"Role": "roles"})("Role")
    <enum 'Role'>
    """

    def attribute(name: str) -> Any:
        room = rooms.get(name)
        if room is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            value = getattr(importlib.import_module(f"{package}.{room}"), name)
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise ModuleNotFoundError(
                f"{package}.{name} needs PyTorch: pip install 'clearstate[torch]'", name="torch"
            ) from None
        setattr(sys.modules[package], name, value)
        return value

    return attribute
