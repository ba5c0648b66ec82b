"""What a command does with an opened checkpoint, in the words that all formats share."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import BinaryIO

from ...inventory import Inventory
from ...roles import Role
from ..differences import Difference
from .archive import open_zip, write_zip, written_size
from .clear import clear, not_cleared
from .compare import compare
from .file import File
from .inventory import inspect_file


def reopen(path: str, file: File) -> File:
    """Opens another file of the layout that ``file`` has."""
    return open_zip(path)


def inventory(file: File, size: int | None = None) -> Inventory:
    """What the file holds; of one that was changed, with the bytes it will have."""
    return inspect_file(file if size is None else replace(file, size=size))


def drop(file: File, roles: Collection[Role]) -> None:
    """Drops roles from what the file holds, in memory."""
    clear(file, roles)


def left(file: File, roles: Collection[Role]) -> list[str]:
    """Paths of what `drop` would still take away."""
    return not_cleared(file, roles)


def save(file: File, handle: BinaryIO) -> None:
    """Writes what the file holds, in its layout."""
    write_zip(file, handle)


def size(file: File) -> int:
    """Bytes that `save` would write."""
    return written_size(file)


def differences(a: File, b: File, ignoring: Collection[Role] = ()) -> list[Difference]:
    """What differs between two files."""
    return compare(a, b, ignoring)
