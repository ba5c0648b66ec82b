"""PyTorch's checkpoint files, read and written without torch and without running anything in them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .archive import open_zip, write_zip
    from .clearing import clear, not_cleared
    from .comparing import compare
    from .file import File
    from .inventory import inspect_file
    from .models import state_dict

__all__ = ["File", "clear", "compare", "inspect_file", "not_cleared", "open_zip", "state_dict", "write_zip"]

_ROOMS = {
    "clear": "clearing",
    "compare": "comparing",
    "File": "file",
    "inspect_file": "inventory",
    "not_cleared": "clearing",
    "open_zip": "archive",
    "state_dict": "models",
    "write_zip": "archive",
}
"""Where each name is: looking into a file need not load what writes one."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_ROOMS[name]}", __name__), name)
    globals()[name] = value
    return value
