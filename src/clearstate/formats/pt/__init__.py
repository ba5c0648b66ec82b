"""PyTorch's checkpoint files, read and written without torch and without running anything in them."""

from .archive import open_zip, write_zip
from .clear import clear, not_cleared
from .compare import compare
from .file import File
from .inventory import inspect_file
from .models import state_dict

__all__ = ["File", "clear", "compare", "inspect_file", "not_cleared", "open_zip", "state_dict", "write_zip"]
