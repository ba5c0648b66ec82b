"""PyTorch's checkpoint files, read and written without torch and without running anything in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazily import names

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

__getattr__ = names(__name__, _ROOMS)
