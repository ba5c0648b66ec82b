"""What a command does with an opened Torch7 file, in the words that all formats share."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import BinaryIO

from ...errors import ClearstateError
from ...inventory import Inventory
from ...roles import GLOSS, Role
from ..changes import FOREIGN, Changes, Dropped, asked_by
from ..differences import Difference
from .codec.reader import File, open_file
from .meaning.inventory import inspect, inspect_file

OTHERS = {**FOREIGN, **dict.fromkeys((".safetensors", ".pt", ".pth", ".ckpt", ".bin"), "a checkpoint")}
"""What files are called that are no Torch7 files, by the endings of their names."""


def reopen(path: str, file: File) -> File:
    """Opens another file of the layout that ``file`` has."""
    return open_file(path, long_size=file.layout.long_size)


def inventory(file: File, size: int | None = None) -> Inventory:
    """What the file holds; of one that was changed, with the bytes it will have."""
    if size is None:
        return inspect_file(file)
    return inspect(file.root, file.path or "", f"Torch7 file, {file.layout}", size)


def going(file: File, changes: Changes, before: Inventory) -> list[Dropped]:
    """What `change` takes away, piece by piece."""
    gone = (entry for entry in before.entries if entry.role in changes.drop and entry.bytes)
    return [Dropped(entry.path, entry.role, GLOSS[entry.role]) for entry in gone]


def change(file: File, changes: Changes) -> list[str]:
    """Drops roles from what the file holds, in memory.

    Raises:
        ClearstateError: something is asked for that only checkpoints of PyTorch have.
    """
    for word in (*changes.dropped, *changes.kept):
        usable = ", ".join(str(role) for role in Role if role.droppable)
        raise ClearstateError(f"{word} is no role, and paths are for checkpoints; from a Torch7 file go {usable}")
    if not changes.only_roles:
        names = ("use", "unwrap", "dtype", "plain")
        asked = " and ".join(name for name in names if getattr(changes, name) != getattr(Changes(), name))
        raise ClearstateError(f"{file.path} is a Torch7 file, and {asked} is for checkpoints of PyTorch")
    from .meaning.clearing import clear

    clear(file.root, changes.drop)
    return []


def left(file: File, changes: Changes) -> list[str]:
    """Paths of what `change` would still change."""
    from .meaning.clearing import not_cleared

    return not_cleared(file.root, changes.drop)


def aimed(file: File, target: str) -> tuple[File, list[str]]:
    """The same, to be written in the layout that it has; and what has no place there: nothing.

    Raises:
        ClearstateError: the target's name asks for another format.
    """
    if asked_by(target, file.path or "", OTHERS):
        raise ClearstateError(
            f"{file.path} is a Torch7 file, and clearing leaves it one: name the new one .t7; "
            "clearstate convert writes it for PyTorch and ONNX"
        )
    return file, []


def write(file: File, target: str, check: Callable[[str, File], None], watch: Callable[[BinaryIO], BinaryIO]) -> None:
    """Writes what the file holds, in its layout; ``check`` reads the finished file before it replaces anything."""
    from ..atomic import replacing
    from .codec.writer import write as write_graph

    with replacing(target, lambda path: check(path, file)) as handle:
        write_graph(file.root, watch(handle), replace(file.layout, indices=None))


def size(file: File) -> int:
    """Bytes that `write` would write."""
    from .codec.writer import written_size

    return written_size(file.root, replace(file.layout, indices=None))


def written(file: File, target: str) -> int:
    """Bytes that `write` has written."""
    return os.path.getsize(target)


def differences(a: File, b: File, ignoring: Collection[Role] = ()) -> list[Difference]:
    """What differs between two files."""
    from .meaning.comparing import compare

    return compare(a.root, b.root, ignoring=ignoring)
