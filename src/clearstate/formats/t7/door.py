"""What a command does with an opened Torch7 file, in the words that all formats share."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import BinaryIO

from ...inventory import Inventory
from ...roles import Role
from ..differences import Difference
from .clear import clear, not_cleared
from .compare import compare
from .inventory import inspect, inspect_file
from .reader import File, open_file
from .writer import write, written_size


def reopen(path: str, file: File) -> File:
    """Opens another file of the layout that ``file`` has."""
    return open_file(path, long_size=file.layout.long_size)


def inventory(file: File, size: int | None = None) -> Inventory:
    """What the file holds; of one that was changed, with the bytes it will have."""
    if size is None:
        return inspect_file(file)
    return inspect(file.root, file.path or "", f"Torch7 file, {file.layout}", size)


def drop(file: File, roles: Collection[Role]) -> None:
    """Drops roles from what the file holds, in memory."""
    clear(file.root, roles)


def left(file: File, roles: Collection[Role]) -> list[str]:
    """Paths of what `drop` would still change."""
    return not_cleared(file.root, roles)


def save(file: File, handle: BinaryIO) -> None:
    """Writes what the file holds, in its layout."""
    write(file.root, handle, replace(file.layout, indices=None))


def size(file: File) -> int:
    """Bytes that `save` would write."""
    return written_size(file.root, replace(file.layout, indices=None))


def differences(a: File, b: File, ignoring: Collection[Role] = ()) -> list[Difference]:
    """What differs between two files."""
    return compare(a.root, b.root, ignoring=ignoring)
