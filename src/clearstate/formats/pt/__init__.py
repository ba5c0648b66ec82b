"""PyTorch's checkpoint files, read and written without torch and without running anything in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...lazily import names

if TYPE_CHECKING:
    from .container.file import File
    from .container.zip import open_zip, write_zip
    from .layout.models import state_dict
    from .meaning.clearing import clear, not_cleared
    from .meaning.comparing import compare
    from .meaning.inventory import inspect_file

__all__ = ["File", "clear", "compare", "inspect_file", "not_cleared", "open_zip", "state_dict", "write_zip"]

_ROOMS = {
    "clear": "meaning.clearing",
    "compare": "meaning.comparing",
    "File": "container.file",
    "inspect_file": "meaning.inventory",
    "not_cleared": "meaning.clearing",
    "open_zip": "container.zip",
    "state_dict": "layout.models",
    "write_zip": "container.zip",
}
"""Where each name is: looking into a file need not load what writes one."""

__getattr__ = names(__name__, _ROOMS)
