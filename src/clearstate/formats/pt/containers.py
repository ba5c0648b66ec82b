"""The files that a checkpoint comes in, and for each what opens it, writes it and counts what would be written."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, BinaryIO, NamedTuple

from ..safetensors import open_safetensors, safetensors_size, write_safetensors
from .archive import open_zip, write_zip, written_size
from .file import File
from .legacy import legacy_size, open_legacy, write_legacy
from .tar import open_tar

SAFETENSORS = ".safetensors"
"""How the names of files end that hold tensors and nothing else."""


class Container(NamedTuple):
    """A sort of file. The layout of what `open` gives names it."""

    open: Callable[[str], File]
    write: Callable[[File, BinaryIO], Any]
    size: Callable[[File], int]


CONTAINERS: dict[str, Container] = {
    "zip": Container(open_zip, write_zip, written_size),
    "legacy": Container(open_legacy, write_legacy, legacy_size),
    "pickle": Container(open_legacy, write_legacy, legacy_size),
    "tar": Container(open_tar, write_zip, written_size),
    "safetensors": Container(
        open_safetensors,
        lambda file, handle: write_safetensors(file.root, handle, file.metadata),
        lambda file: safetensors_size(file.root, file.metadata),
    ),
}
"""By layout. Nobody writes the tar format any more: what came in one goes into a zip file."""


def layout_for(path: str, layout: str) -> str:
    """The layout that a file of this name gets when it is written from one of another, or the same, layout.

    >>> layout_for("x.safetensors", "zip"), layout_for("x.pt", "safetensors"), layout_for("x.pt", "legacy")
    ('safetensors', 'zip', 'legacy')
    """
    if os.fspath(path).lower().endswith(SAFETENSORS):
        return "safetensors"
    return "zip" if layout in ("safetensors", "sharded", "tar") else layout
