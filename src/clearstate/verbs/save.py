"""Writing a model to a file: the kind of file is chosen by its name."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..formats.t7 import Layout

STATES = (".safetensors", ".pt", ".pth", ".bin")
"""Files that hold a state dict: names and tensors."""


def save(value: Any, path: str | os.PathLike[str], *, layout: Layout | None = None) -> None:
    """Writes a model to a file, of the kind that its name says.

    ``.safetensors``, ``.pt``, ``.pth`` and ``.bin`` get the state dict: parameters and running statistics, by name;
    those that are shared stay shared. Every other name gets a ``.t7`` file that Torch7 itself loads and runs.

    Args:
        value: a module; for a Torch7 file also a list, dict, tensor, ...; for a state dict also a dict of tensors.
        path: the file; it is replaced as a whole, once all is written.
        layout: of a Torch7 file: binary with 8-byte longs unless given.

    Raises:
        TypeError: something in it has no Torch7 class, named by its place; or a layout was given for a state dict.
        ClearstateError: something in a state dict is no tensor, or of a type that the format does not have.

    >>> import os, tempfile
    >>> import clearstate as cs, clearstate.nn as nn
    >>> folder = tempfile.mkdtemp()
    >>> for name in "net.t7", "net.safetensors":
    ...     cs.save(nn.Linear(3, 2), os.path.join(folder, name))
    >>> sorted(os.listdir(folder))
    ['net.safetensors', 'net.t7']
    """
    if os.path.splitext(path)[1].lower() not in STATES:
        from ..nn.t7 import files as t7

        t7.save(value, path, layout=layout)
        return
    if layout is not None:
        raise TypeError(f"a layout is for Torch7 files, not for {os.fspath(path)}")
    from ..export.state import write_state

    write_state(value, path)
