"""The files that a checkpoint comes in, and for each what opens it, writes it and counts what would be written."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from typing import Any, BinaryIO, NamedTuple

from .file import File

SAFETENSORS = ".safetensors"
"""How the names of files end that hold tensors and nothing else."""


class Container(NamedTuple):
    """A sort of file. The layout of what `open` gives names it."""

    open: Callable[[str], File]
    write: Callable[[File, BinaryIO], Any]
    size: Callable[[File], int]


def _in(module: str) -> Any:
    """A module beside this one, imported when the first file of its sort comes up."""
    return importlib.import_module(module, __package__)


ZIP = Container(
    lambda path: _in(".zip").open_zip(path),
    lambda file, handle: _in(".zip").write_zip(file, handle),
    lambda file: _in(".zip").written_size(file),
)
STREAM = Container(
    lambda path: _in(".stream").open_legacy(path),
    lambda file, handle: _in(".stream").write_legacy(file, handle),
    lambda file: _in(".stream").legacy_size(file),
)
FLAT = Container(
    lambda path: _in("...safetensors").open_safetensors(path),
    lambda file, handle: _in("...safetensors").write_safetensors(file.root, handle, file.metadata),
    lambda file: _in("...safetensors").safetensors_size(file.root, file.metadata),
)
TAR = ZIP._replace(open=lambda path: _in(".tar").open_tar(path))
"""Nobody writes the tar format any more: what came in one goes into a zip file."""

CONTAINERS = {"zip": ZIP, "legacy": STREAM, "pickle": STREAM, "tar": TAR, "safetensors": FLAT}
"""By layout."""


def layout_for(path: str, layout: str) -> str:
    """The layout that a file of this name gets when it is written from one of another, or the same, layout.

    >>> layout_for("x.safetensors", "zip"), layout_for("x.pt", "safetensors"), layout_for("x.pt", "legacy")
    ('safetensors', 'zip', 'legacy')
    """
    if os.fspath(path).lower().endswith(SAFETENSORS):
        return "safetensors"
    return "zip" if layout in ("safetensors", "sharded", "tar") else layout
